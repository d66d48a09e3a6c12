// Package clone holds the policies against stragglers, tasks that run much longer than others of their stage, as pure
// functions: Dolly clones the tasks of small jobs from the start, and LATE chooses a running task for a backup.
package clone
