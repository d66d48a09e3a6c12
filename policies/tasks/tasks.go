// Package tasks holds the policies that fill the free slots of hosts with tasks: the orders of
// jobs FIFO, FAIR and DRF, one filler that turns an order into launches, and the restrictions
// that wrap it, delay scheduling and copy-compute splitting.
//
// This package starts no attempts and moves no data: the engine does.
package tasks
