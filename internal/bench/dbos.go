package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// DBOS is built in a separate module, so that it is no dependency of a2ad.
const (
	dbosVersion = "v1.8.0"
	dbosPath    = "github.com/dbos-inc/dbos-transact-golang"
)

//go:embed testdata/dbos/main.go
var dbosMain []byte

// dbosSteps is the number of steps of one task or workflow in this comparison.
const dbosSteps = 20

// dbosProgram is the program that measures DBOS, built.
type dbosProgram struct{ path, url string }

// buildDBOS builds it in a separate module.
func (b *bench) buildDBOS(ctx context.Context) (string, error) {
	if !b.opts.dbos {
		return "", errors.New("left out by -dbos=false")
	}
	dir := filepath.Join(b.dir, "dbos")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	err := errors.Join(os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module dbosbench\n\ngo 1.26\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "main.go"), dbosMain, 0o644))
	if err != nil {
		return "", err
	}
	for _, args := range [][]string{{"get", dbosPath + "@" + dbosVersion}, {"build", "-o", "dbosbench", "."}} {
		if err := goCommand(ctx, dir, args...); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "dbosbench"), nil
}

// run lets DBOS run workflows for a time, and returns the steps per second.
func (d *dbosProgram) run(ctx context.Context, callers int, span time.Duration) (float64, error) {
	cmd := exec.CommandContext(ctx, d.path, "-url", d.url, "-callers", strconv.Itoa(callers), "-span", span.String(),
		"-steps", strconv.Itoa(dbosSteps), "-bytes", strconv.Itoa(reportBytes))
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("%w%s", err, stderrOf(err))
	}
	var got struct {
		Steps   int64
		Seconds float64
	}
	if err := json.Unmarshal(out, &got); err != nil || got.Steps == 0 {
		return 0, fmt.Errorf("it ended with %q", lastLine(out))
	}
	return float64(got.Steps) / got.Seconds, nil
}

// dbos compares the steps per second of a2ad with those of DBOS's Go library, each in one process on the same
// PostgreSQL.
func (b *bench) dbos(ctx context.Context) error {
	path, missing := b.buildDBOS(ctx)
	if missing != nil {
		b.log.Warn("DBOS cannot be built", "err", missing)
	}
	ours, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	theirs, dropTheirs, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer dropTheirs()
	a, err := newStepAgent(ctx, ours)
	if err != nil {
		return err
	}
	defer a.stop()
	rival := &dbosProgram{path, theirs}
	const each = "submit, claim, each step committed before the next one begins, completion"
	for _, c := range []struct {
		name, detail string
		callers      int
		run          func(ctx context.Context, n int64) error
	}{
		{"32 at once", each, stepSlots, a.recordEach},
		{"alone", each, 1, a.recordEach},
		{"32 at once, reported by an agent", "a worker writes what an agent of the same process reports, " +
			"which does not wait for commits", stepSlots, a.reportAll},
	} {
		f := figure{Name: "steps, " + c.name + ": a2ad / DBOS", Unit: "×", Target: atLeast(1), Detail: c.detail}
		if missing != nil {
			f.Target, f.Detail = nil, "not measured: DBOS could not be built: "+missing.Error()
			b.report.add(f)
			continue
		}
		if err := b.stepsAgainstDBOS(ctx, f, c.callers, c.run, rival); err != nil {
			return err
		}
	}
	return b.checkFinished(ctx, ours)
}

// stepsAgainstDBOS adds the ratio of the rates as a figure. run submits one task and ends when it is completed.
func (b *bench) stepsAgainstDBOS(ctx context.Context, f figure, callers int,
	run func(ctx context.Context, n int64) error, rival *dbosProgram) error {
	span := b.span(5*time.Second, 2*time.Second)
	if _, _, err := b.rate(ctx, callers, time.Second, run); err != nil { // DBOS's program warms up, too
		return err
	}
	var ratios, ours, theirs []float64
	for range b.number(5, 3) {
		tasks, _, err := b.rate(ctx, callers, span, run)
		if err != nil {
			return err
		}
		other, err := rival.run(ctx, callers, span)
		if err != nil {
			return fmt.Errorf("DBOS: %w", err)
		}
		rate := tasks * dbosSteps
		ours, theirs, ratios = append(ours, rate), append(theirs, other), append(ratios, rate/other)
	}
	f = f.series(ratios)
	f.Baseline = fmt.Sprintf("DBOS %s: %s steps/s, RunWorkflow with RunAsStep, its own pool of 20 connections",
		dbosVersion, number(median(theirs)))
	f.Detail = fmt.Sprintf("a2ad: %s steps/s, %s, pool of 16 connections; %d steps of %d B each; %d pairs of %s",
		number(median(ours)), f.Detail, dbosSteps, reportBytes, len(ratios), span)
	b.report.add(f)
	return nil
}
