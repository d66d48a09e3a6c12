// Package quickstart is the first experiment that a user runs: scenario.yaml with its trace
// coflows.txt, facebook.yaml for the public Facebook trace, and jobs.yaml for jobs of tasks. Its
// tests check the figures that the comments of these files state. It has no code besides its tests.
package quickstart
