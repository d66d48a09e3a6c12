package catalog

import (
	"slices"

	"testbed/policies"
)

// The names of the roles.
const (
	RoleCoflow    = "coflow"
	RolePlacement = "placement"
	RoleTask      = "tasks"
)

// All returns every role with its policies.
func All() Catalog {
	return Catalog{
		{Name: RoleCoflow, Doc: "policy that shares the network among coflows", Required: Always, Default: "fair",
			Examples: []string{"fair", "sebf"}, Policies: slices.Concat(orderings(), samplings()), External: externalCoflow()},
		{Name: RolePlacement, Doc: "policy that chooses the hosts of replicas", Required: WritesBlocks, Default: "hdfs",
			Examples: []string{"hdfs", "sinbad"}, Policies: placements()},
		{Name: RoleTask, Doc: "policy that gives slots to tasks of jobs", Required: RunsTasks, Default: "fifo",
			Examples: []string{"fifo", "fair"}, Policies: schedulers()},
	}
}

// Coflow returns the coflow policy of that name, as New does.
func Coflow(name string, params map[string]any) (policies.CoflowScheduler, error) {
	return New[policies.CoflowScheduler](All(), RoleCoflow, name, params)
}

// Placement returns the placement policy of that name, as New does.
func Placement(name string, params map[string]any) (policies.Placer, error) {
	return New[policies.Placer](All(), RolePlacement, name, params)
}

// Task returns the task scheduler of that name, as New does.
func Task(name string, params map[string]any) (policies.TaskScheduler, error) {
	return New[policies.TaskScheduler](All(), RoleTask, name, params)
}

// Holds reports whether the coflow policy of that name sets rate caps.
func Holds(name string) bool {
	return name == External || slices.ContainsFunc(All().Entries(RoleCoflow), func(e Entry) bool { return e.Name == name && e.Holds })
}
