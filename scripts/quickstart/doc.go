// Package quickstart is the first experiment that a user runs: scenario.yaml with its trace
// coflows.txt, and facebook.yaml for the public Facebook trace. Its tests check the figures
// that the comments of these files state. It has no code besides its tests.
package quickstart
