package jobs

import "fmt"

// sizeClasses are the largest numbers of tasks of a job in the classes by size, the bins of the evaluation of Dolly
// (Ananthanarayanan and others, NSDI 2013); a last class has the larger jobs.
var sizeClasses = [...]int{10, 50, 150, 500}

// SizeClasses is the number of classes of jobs by size.
const SizeClasses = len(sizeClasses) + 1

// SizeClass returns the class of a job with a number of tasks, from 0.
func SizeClass(tasks int) int {
	for i, most := range sizeClasses {
		if tasks <= most {
			return i
		}
	}
	return len(sizeClasses)
}

// SizeName returns the numbers of tasks of a class in words.
func SizeName(class int) string {
	least, most := SizeBounds(class)
	if most == 0 {
		return fmt.Sprintf("%d or more tasks", least)
	}
	return fmt.Sprintf("%d–%d tasks", least, most)
}

// SizeBounds returns the least and the largest number of tasks of a job in a class; most is 0 for the last class, which
// has no bound.
func SizeBounds(class int) (least, most int) {
	least = 1
	if class > 0 {
		least = sizeClasses[class-1] + 1
	}
	if class < len(sizeClasses) {
		most = sizeClasses[class]
	}
	return least, most
}
