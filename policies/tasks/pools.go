package tasks

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"testbed/workloads/jobs"
)

// The bounds of the settings of a pool.
const (
	maxWeight   = 1e6
	maxMinShare = 1000000 // slots
)

// ParsePools parses settings of pools such as "prod=2:10:4,adhoc=0.5": for each pool, its user, its
// weight, and optionally its minimum shares of map and reduce slots. The error joins all errors.
func ParsePools(text string) ([]Pool, error) {
	var out []Pool
	var errs []error
	for part := range strings.SplitSeq(text, ",") {
		p, err := parsePool(strings.TrimSpace(part))
		if err != nil {
			errs = append(errs, fmt.Errorf("pool %q: %w", part, err))
			continue
		}
		if slices.ContainsFunc(out, func(o Pool) bool { return o.Name == p.Name }) {
			errs = append(errs, fmt.Errorf("pool %q: user %q has two pools", part, p.Name))
		}
		out = append(out, p)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return out, nil
}

func parsePool(text string) (p Pool, err error) {
	name, settings, ok := strings.Cut(text, "=")
	if p.Name = strings.TrimSpace(name); !ok || p.Name == "" {
		return p, errors.New(`expected user=weight, or user=weight:maps:reduces with minimum shares, such as "prod=2:10:4"`)
	}
	fields := strings.Split(settings, ":")
	if len(fields) > 1+jobs.TaskKinds {
		return p, fmt.Errorf("%d numbers: expected a weight and at most two minimum shares", len(fields))
	}
	if p.Weight, err = strconv.ParseFloat(strings.TrimSpace(fields[0]), 64); err != nil || !(p.Weight > 0 && p.Weight <= maxWeight) || math.IsNaN(p.Weight) {
		return p, fmt.Errorf("weight %q: must be a number above 0, at most %v", fields[0], maxWeight)
	}
	for k, f := range fields[1:] {
		if p.Min[k], err = strconv.Atoi(strings.TrimSpace(f)); err != nil || p.Min[k] < 0 || p.Min[k] > maxMinShare {
			return p, fmt.Errorf("minimum share %q: must be a whole number of slots from 0 to %d", f, maxMinShare)
		}
	}
	return p, nil
}
