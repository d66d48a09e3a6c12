// Package clone holds the policies against stragglers, tasks that run much longer than others of their stage, as pure
// functions: Dolly clones the tasks of small jobs from the start, and decides which copy of an output is read; LATE,
// Hadoop and Mantri choose running tasks for backups; and a blacklist skips hosts on which tasks straggle.
//
// This package sees no View and remembers nothing: policies/tasks does.
package clone
