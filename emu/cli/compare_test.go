package cli

import (
	"bytes"
	"strings"
	"testing"

	"testbed/results/rundir/rundirtest"
	"testbed/results/verdict"
)

// A void arm is refused with its reason and exit code 3; the others are compared.
func TestCompareVoidArm(t *testing.T) {
	t.Parallel()
	spec := rundirtest.Default()
	spec.Arms[1].Level = verdict.Void
	dir := rundirtest.Write(t, spec)
	compare := func(args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		code := Main(t.Context(), append([]string{"compare", dir}, args...), strings.NewReader(""), &out, &errs)
		return code, out.String(), errs.String()
	}
	code, out, errs := compare()
	if code != exitVoid || !strings.Contains(out, "sebf+hdfs is void and not compared") || !strings.Contains(out, "degraded [") || !strings.Contains(errs, "void") {
		t.Errorf("exit code %d, want %d\n%s\n%s", code, exitVoid, out, errs)
	}
	if code, out, errs := compare("--arms", "sebf+sinbad"); code != 0 || strings.Contains(out, "void") || errs != "" {
		t.Errorf("an arm that is not void: exit code %d\n%s\n%s", code, out, errs)
	}
}

func TestLocale(t *testing.T) {
	for _, tt := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, false}, {map[string]string{"LANG": "C"}, true}, {map[string]string{"LANG": "C.UTF-8"}, false}, {map[string]string{"LANG": "de_DE.utf8"}, false},
		{map[string]string{"LANG": "C.UTF-8", "LC_ALL": "POSIX"}, true}, {map[string]string{"LC_CTYPE": "en_US.ISO-8859-1"}, true},
	} {
		if got := asciiLocale(func(k string) string { return tt.env[k] }); got != tt.want {
			t.Errorf("asciiLocale(%v) = %v, want %v", tt.env, got, tt.want)
		}
	}
}
