package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"

	"testbed/emu/calibration"
	"testbed/emu/kernel"
	"testbed/hosts/disk"
	"testbed/topo/units"
	"testbed/workloads"
)

const (
	diskPacket units.Bytes = 64 * units.KB // the default of write pipelines
	diskChunk  units.Bytes = units.MiB     // for the unthrottled rate
	// diskMost bounds the bytes written to measure the unthrottled rate.
	diskMost units.Bytes = 256 * units.MiB
	// loopChunk is the size of a write under the kernel's throttles: whole pages, the
	// minimum of a device.
	loopChunk = 64 << 10
)

// disks measures the machine's disk and the throttles.
func (m *machine) disks(ctx context.Context) error {
	m.step("disk", 1)
	m.c.Disk = calibration.Disk{Dir: m.o.Dir}
	var free []float64
	for range m.o.Rounds {
		d, stats, err := m.write(ctx, units.MaxRate, diskChunk, m.o.DiskTime/time.Duration(m.o.Rounds), &steadyRate{})
		if err != nil {
			return err
		}
		m.c.Disk.Mode = d
		if stats.Device > 0 {
			free = append(free, float64(stats.Written)*8/stats.Device.Seconds())
		}
	}
	m.c.Disk.Write = calibration.SpreadOf(free)
	bucket := calibration.Throttle{Name: "token bucket"}
	for _, rate := range m.rates() {
		steady := steadyRate{rate: rate}
		_, stats, err := m.write(ctx, rate, diskPacket, m.o.DiskTime, &steady)
		if err != nil {
			return err
		}
		bucket.Rates = append(bucket.Rates, calibration.ThrottledRate{Rate: rate, Error: float64(stats.Achieved())/float64(rate) - 1, SteadyError: steady.off()})
	}
	m.c.Disk.Throttles = append(m.c.Disk.Throttles, bucket)
	for _, f := range kernel.Throttles() {
		t := calibration.Throttle{Name: string(f.Kind), Missing: f.Missing}
		if f.Missing == "" {
			var err error
			if t.Rates, err = m.throttled(ctx, f); err != nil {
				return err
			}
		}
		m.c.Disk.Throttles = append(m.c.Disk.Throttles, t)
	}
	return nil
}

// rates returns the disk rates that the disk itself can sustain.
func (m *machine) rates() (out []units.Rate) {
	for _, r := range m.o.DiskRates {
		if float64(r) < m.c.Disk.Write.Median/2 {
			out = append(out, r)
		}
	}
	return out
}

// write writes packets to an emulated disk for the duration d, and records each in steady.
func (m *machine) write(ctx context.Context, rate units.Rate, packet units.Bytes, d time.Duration, steady *steadyRate) (mode string, _ disk.Stats, err error) {
	dir := filepath.Join(m.dir, "disk")
	k, err := disk.Open(dir, disk.Options{Host: "calibrate", Rate: rate})
	if err != nil {
		return "", disk.Stats{}, err
	}
	defer func() { err = errors.Join(err, k.Close(), os.RemoveAll(dir)) }()
	size := diskMost
	if rate < units.MaxRate {
		size = min(size, max(rate.BytesIn(d), packet))
	}
	size -= size % packet
	r, err := k.Create(workloads.BlockID(0), size)
	if err != nil {
		return "", disk.Stats{}, err
	}
	buf := make([]byte, packet)
	start := time.Now()
	for n := units.Bytes(0); n < size && time.Since(start) < 2*d; n += packet {
		if err := r.Write(ctx, buf); err != nil {
			return "", disk.Stats{}, errors.Join(err, r.Abort())
		}
		steady.wrote(n+packet, time.Since(start))
		if rate == units.MaxRate && time.Since(start) > d {
			break
		}
	}
	stats := k.Stats()
	return k.Mode(), stats, r.Abort()
}

// throttled measures a kernel's throttle on a loop device.
func (m *machine) throttled(ctx context.Context, f kernel.ThrottleFact) (out []calibration.ThrottledRate, err error) {
	name := "testbed-" + filepath.Base(m.owned.Dir())
	path, err := f.CgroupPath(name)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(m.dir, string(f.Kind))
	if err := errors.Join(m.owned.AddCgroup(path), m.owned.AddLoop(file)); err != nil {
		return nil, err
	}
	rates := m.rates()
	if len(rates) == 0 {
		return nil, nil
	}
	size := units.Bytes(loopChunk)
	for _, r := range rates {
		size = max(size, r.BytesIn(2*m.o.DiskTime)/loopChunk*loopChunk)
	}
	l, err := kernel.AttachLoop(file, size)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close(), os.Remove(file)) }()
	c, err := f.NewCgroup(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.Enter(); err != nil {
		return nil, err
	}
	for _, rate := range rates {
		if err := c.Limit(l, rate); err != nil {
			return nil, err
		}
		// Twice as long as the token bucket: the kernel counts in slices of 100 ms.
		n := max(loopChunk, rate.BytesIn(2*m.o.DiskTime)/loopChunk*loopChunk)
		steady := steadyRate{rate: rate}
		took, err := writeDevice(ctx, l.Path(), n, &steady)
		if err != nil {
			return nil, err
		}
		out = append(out, calibration.ThrottledRate{Rate: rate, Error: float64(n)*8/took.Seconds()/float64(rate) - 1, SteadyError: steady.off()})
	}
	return out, nil
}

// writeDevice writes n bytes to a device past the page cache, and records each write in
// steady.
func writeDevice(ctx context.Context, path string, n units.Bytes, steady *steadyRate) (_ time.Duration, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_DIRECT, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	const page = 4096
	buf := make([]byte, loopChunk+page)
	skip := -int(uintptr(unsafe.Pointer(&buf[0]))) & (page - 1)
	buf = buf[skip : skip+loopChunk]
	start := time.Now()
	for at := int64(0); at < int64(n); at += loopChunk {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if _, err := f.WriteAt(buf, at); err != nil {
			return 0, fmt.Errorf("write to %s: %w", path, err)
		}
		steady.wrote(units.Bytes(at+loopChunk), time.Since(start))
	}
	return time.Since(start), nil
}
