package runner

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"testbed/emu/calibration"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/safefile"
	"testbed/results/summary"
	"testbed/topo"
	"testbed/topo/units"
)

// figuresFile holds what a report needs of a trial, compressed: a line of JSON with all but the longest lists, then
// a line for each flow and for each attempt of a task.
const figuresFile = "figures.jsonl.zst"

// figuresLine is the first line of figuresFile.
type figuresLine struct {
	Flows, Attempts int // lines that follow
	Repeat          summary.Repeat
	Shape           *topo.LeafSpine // of the fabric that was captured; nil if unknown
}

// writeFigures writes the figures of a trial.
func writeFigures(path string, rep summary.Repeat) (err error) {
	file, err := safefile.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	z, err := zstd.NewWriter(file, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	of := figuresLine{Flows: len(rep.Records.Flows), Attempts: len(rep.Records.Attempts), Repeat: rep}
	if rep.Fabric != nil {
		shape := rep.Fabric.Shape()
		of.Shape = &shape
	}
	of.Repeat.Records.Flows, of.Repeat.Records.Attempts, of.Repeat.Fabric, of.Repeat.FlowErrors = nil, nil, nil, nil
	out := json.NewEncoder(z)
	err = out.Encode(of)
	for i := 0; i < of.Flows && err == nil; i++ {
		err = out.Encode(&rep.Records.Flows[i])
	}
	for i := 0; i < of.Attempts && err == nil; i++ {
		err = out.Encode(&rep.Records.Attempts[i])
	}
	if err = errors.Join(err, z.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// readFigures reads the figures of a trial.
func readFigures(path string) (rep summary.Repeat, err error) {
	file, err := safefile.Open(path)
	if err != nil {
		return rep, err
	}
	defer file.Close() // only read from: closing loses no data
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}()
	z, err := zstd.NewReader(bufio.NewReader(file), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return rep, err
	}
	defer z.Close()
	in := json.NewDecoder(z)
	var of figuresLine
	if err := in.Decode(&of); err != nil {
		return rep, err
	}
	rep = of.Repeat
	rep.Records.Flows, rep.Records.Attempts = make([]flows.FlowRecord, of.Flows), make([]flows.AttemptRecord, of.Attempts)
	for i := 0; i < of.Flows && err == nil; i++ {
		err = in.Decode(&rep.Records.Flows[i])
	}
	for i := 0; i < of.Attempts && err == nil; i++ {
		err = in.Decode(&rep.Records.Attempts[i])
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil || of.Shape == nil {
		return rep, err
	}
	if rep.Fabric, err = of.Shape.Build(); err == nil && len(rep.Buckets) > 0 {
		rep.FlowErrors = flowErrors(rep.Fabric, rep.Buckets)
	}
	return rep, err
}

// flowErrors returns the errors of short flows on a fabric whose links have token buckets of some sizes, by rate.
func flowErrors(f *topo.Fabric, buckets map[units.Rate]units.Bytes) *metrics.FlowErrors {
	return metrics.NewFlowErrors(f, calibration.Framing(f.Shape().MTU), func(r units.Rate) units.Bytes { return buckets[r] })
}
