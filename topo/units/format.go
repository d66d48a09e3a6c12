package units

import (
	"strconv"
	"strings"
)

// Short returns an amount with three significant digits and a decimal prefix: "12.3 MB",
// "1.00 KB", "999 B". Amounts below 1000 are rounded to a whole number.
func Short(x float64, unit string) string {
	number, prefix := scale(x)
	return number + " " + prefix + unit
}

// Compact returns Short without trailing zeros and without the space, for columns of a known
// width: "12.3MB", "50Mbps", "8.33M".
func Compact(x float64, unit string) string {
	number, prefix := scale(x)
	if strings.Contains(number, ".") {
		number = strings.TrimRight(strings.TrimRight(number, "0"), ".")
	}
	return number + prefix + unit
}

func scale(x float64) (number, prefix string) {
	for _, p := range []string{"K", "M", "G", "T"} {
		if x < 999.5 {
			break
		}
		x, prefix = x/1000, p
	}
	digits := 0
	switch {
	case x < 9.995 && prefix != "":
		digits = 2
	case x < 99.95 && prefix != "":
		digits = 1
	}
	return strconv.FormatFloat(x, 'f', digits, 64), prefix
}

// Percent returns a share in percent with a number of decimals: "12.5 %" for 0.125 and 1.
func Percent(share float64, decimals int) string {
	return strconv.FormatFloat(100*share, 'f', decimals, 64) + " %"
}
