// Package engines runs the commands of two documents: docs/scale-out.md, parts of a run on GNU parallel and
// Slurm, and the files for HTCondor, Kubernetes and a CI matrix; docs/recipes.md, scenarios for ten
// questions; and those of the workflow in scripts/ci. It has no code besides its tests.
package engines
