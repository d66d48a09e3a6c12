package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
)

// LinkLoad is the mean load of the links of a run, over one repeat of an arm.
type LinkLoad struct {
	Run, Arm string
	Repeat   int
	Fabric   *topo.Fabric
	// Span is from the first arrival to the last completion.
	Span time.Duration
	// Links are mean loads by LinkID; 1 is the rate of the link. Loads of host links count all
	// frames on the interfaces of hosts. Loads of uplinks count the frames of flows
	// and the payload of blocks between racks, without acknowledgements, and so are a little
	// too low. The load of a rack is divided evenly over the spines, because captures do not
	// show which spine a packet crossed.
	Links []float64
}

// Loads computes the link loads of one repeat of an arm from the captures in a run directory.
// arm "" stands for the first arm.
func Loads(ctx context.Context, dir, arm string, repeat int) (*LinkLoad, error) {
	m, changes, s, err := openRun(dir)
	if err != nil {
		return nil, fmt.Errorf("loads: %w", err)
	}
	r, err := newRun(s, Options{}, m.Backend)
	if err != nil {
		return nil, fmt.Errorf("loads of %s: %w", dir, err)
	}
	arms, err := r.chosen(ReplayOptions{Arm: arm, Repeat: repeat})
	if err != nil {
		return nil, fmt.Errorf("loads of %s: %w", dir, err)
	}
	arm = arms[0].Name
	captures := filepath.Join(repeatDir(dir, arm, repeat), capturesDir)
	for _, c := range changes {
		if filepath.Dir(filepath.Join(dir, c.File)) == captures {
			return nil, fmt.Errorf("loads of %s: %s: restore it", dir, c)
		}
	}
	f := arms[0].fabric
	res, err := flows.Reduce(ctx, captures, flows.Options{})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("loads of %s: arm %s, repeat %d has no captures (a simulation has none): %w", dir, arm, repeat, err)
	} else if err != nil {
		return nil, err
	}
	l := &LinkLoad{Run: m.Run, Arm: arm, Repeat: repeat, Fabric: f}
	l.Links, l.Span, err = meanLoads(f, res)
	if err != nil {
		return nil, fmt.Errorf("loads of %s: arm %s, repeat %d: %w", dir, arm, repeat, err)
	}
	return l, nil
}

func meanLoads(f *topo.Fabric, res flows.Result) ([]float64, time.Duration, error) {
	span := lastEnd(res.Records)
	if span <= 0 {
		return nil, 0, errors.New("no transfer ended, so there is no time to average over")
	}
	bytes := make([]units.Bytes, len(f.Links()))
	host := map[string]topo.HostID{}
	for h := range topo.HostID(f.Hosts()) {
		host[f.HostName(h)] = h
	}
	for _, c := range res.Captures {
		h, ok := host[c.Host]
		if !ok {
			return nil, 0, fmt.Errorf("a capture of %s, which is not in the fabric of the scenario", c.Host)
		}
		for _, i := range c.Interfaces {
			if i.Name == "eth0" {
				bytes[f.HostUp(h)] += units.Bytes(i.Out.Bytes)
				bytes[f.HostDown(h)] += units.Bytes(i.In.Bytes)
			}
		}
	}
	up, down := make([]units.Bytes, f.Racks()), make([]units.Bytes, f.Racks())
	cross := func(src, dst string, n units.Bytes) {
		if a, b := f.RackOf(host[src]), f.RackOf(host[dst]); a != b {
			up[a] += n
			down[b] += n
		}
	}
	for _, x := range res.Flows {
		cross(x.Src, x.Dst, x.Wire)
	}
	for _, b := range res.Blocks {
		from := b.Client
		for _, to := range b.Hosts { // hops of the pipeline; the first can be local
			cross(from, to, b.Size)
			from = to
		}
	}
	for r := range topo.RackID(f.Racks()) {
		for s := range f.Spines() {
			bytes[f.LeafUp(r, s)] = up[r] / units.Bytes(f.Spines())
			bytes[f.LeafDown(r, s)] = down[r] / units.Bytes(f.Spines())
		}
	}
	loads := make([]float64, len(bytes))
	for id, n := range bytes {
		loads[id] = float64(units.RateOf(n, span)) / float64(f.Link(topo.LinkID(id)).Rate)
	}
	return loads, span, nil
}
