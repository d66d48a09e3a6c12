package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"testbed/emu/deploy"
	"testbed/emu/inspect"
	"testbed/emu/monitor"
)

// serveHTTP serves the links that match patterns until ctx ends. The name is that of a testbed or of a run; "" is any
// testbed if it is the only one.
func (in *inspector) serveHTTP(ctx context.Context, name string, patterns []string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", in.serve)
	if err != nil {
		return fmt.Errorf("--serve: %w", err)
	}
	fmt.Fprintf(in.stderr, "serving http://%v/ until Ctrl-C\n", l.Addr())
	s := monitor.New(monitor.DefaultLimits())
	both, ends := errgroup.WithContext(ctx)
	both.Go(func() error { return s.Run(ends, l) })
	both.Go(func() error { return in.publish(ends, s, name, patterns) })
	return both.Wait()
}

// publish reads testbeds until ctx ends.
func (in *inspector) publish(ctx context.Context, s *monitor.Server, name string, patterns []string) error {
	tick := time.NewTicker(in.interval)
	defer tick.Stop()
	var was inspect.Reading // of in.entry; nil if there is none
	for waits := ""; ; {
		reason := ""
		now, err := inspect.Reading(nil), error(nil)
		if was == nil {
			if in.entry, reason, err = in.next(ctx, name); err == nil && reason == "" {
				err = in.choose(patterns)
			}
		}
		if err == nil && reason == "" {
			now, err = in.read(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errGone):
			reason = "waiting for the next testbed"
		case err != nil:
			return err
		case was != nil:
			err = s.Publish(in.entry.State.Name, in.compare(was, now), now)
		}
		if reason != "" {
			now = nil
			err = s.Wait(reason)
			if reason != waits {
				fmt.Fprintln(in.stderr, reason)
			}
		}
		if err != nil {
			return err
		}
		was, waits = now, reason
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// next returns the testbed to read, or the reason why there is none.
func (in *inspector) next(ctx context.Context, name string) (deploy.Entry, string, error) {
	entries, err := deploy.List(ctx, in.state)
	if err != nil {
		return deploy.Entry{}, "", err
	}
	var found []deploy.Entry
	var names []string
	for _, e := range entries {
		id, run := e.State.ID, strings.HasPrefix(e.State.ID, name+".")
		if e.Problem == nil && e.State.Ready && (e.State.Kind == deploy.KindUp || e.Live) && (name == "" || name == id || run) {
			found, names = append(found, e), append(names, id)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], "", nil
	case len(found) > 1:
		return deploy.Entry{}, fmt.Sprintf("waiting: %d testbeds are up (%s): name one", len(found), strings.Join(names, ", ")), nil
	case name != "":
		return deploy.Entry{}, fmt.Sprintf("waiting: no testbed %s is up", name), nil
	}
	return deploy.Entry{}, "waiting: no testbed is up", nil
}
