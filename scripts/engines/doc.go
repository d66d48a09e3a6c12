// Package engines runs the commands of docs/scale-out.md: parts of a run on GNU parallel and Slurm, and
// the files for HTCondor, Kubernetes and a CI matrix. It has no code besides its tests.
package engines
