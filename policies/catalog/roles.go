package catalog

import (
	"fmt"
	"slices"

	"testbed/policies"
	"testbed/policies/external"
)

// The names of the roles.
const (
	RoleCoflow    = "coflow"
	RolePlacement = "placement"
	RoleTask      = "tasks"
)

// Register adds a policy to a role. A program with policies of its own calls it before cli.Process, which then
// knows them as it knows those here. It panics if the role is unknown, or has a policy of that name.
func Register(role string, e Entry) {
	all := All()
	i := slices.IndexFunc(all, func(r Role) bool { return r.Name == role })
	if i < 0 || IsExternal(e.Name) || slices.Contains(all.Names(role), e.Name) {
		panic(fmt.Sprintf("policy %s: no role %q, or it has a policy of that name", e.Name, role))
	}
	registered[role] = append(registered[role], e)
}

// registered are the policies of Register, by role.
var registered = map[string][]Entry{}

// All returns every role with its policies.
func All() Catalog {
	parts := parts()
	all := Catalog{
		{Name: RoleCoflow, Doc: "policy that shares the network among coflows", Required: Always, Default: "fair",
			Examples: []string{"fair", "sebf"}, Policies: slices.Concat(orderings(), samplings()), External: outside(external.Coflow)},
		{Name: RolePlacement, Doc: "policy that chooses the hosts of replicas", Required: WritesBlocks, Default: "hdfs",
			Examples: []string{"hdfs", "sinbad"}, Policies: placements(), External: outside(external.Placement)},
		{Name: RoleTask, Doc: "policy that gives slots to tasks of jobs", Required: RunsTasks, Default: "fifo",
			Examples: []string{"fifo", "fair"}, Policies: schedulers(parts), Parts: parts, External: outside(external.Tasks)},
	}
	for i := range all {
		all[i].Policies = append(all[i].Policies, registered[all[i].Name]...)
	}
	return all
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
	return IsExternal(name) || slices.ContainsFunc(All().Entries(RoleCoflow), func(e Entry) bool { return e.Name == name && e.Holds })
}
