// Package sinbad has the scenarios of the suite of Sinbad's paper (claims.yaml); its tests check those that the suite
// does not run.
package sinbad
