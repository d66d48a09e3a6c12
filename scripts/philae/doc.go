// Package philae has the scenarios and traces of the suite of Philae's paper (claims.yaml); its tests check that they
// fit the machine and show the differences between the policies.
package philae
