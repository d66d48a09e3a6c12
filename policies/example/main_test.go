package main

import (
	"testing"

	"testbed/policies/policytest"
	"testbed/topo/units"
)

func TestContract(t *testing.T) {
	policytest.Scheduler(t, SmallestFirst{Least: 10 * units.MB})
}
