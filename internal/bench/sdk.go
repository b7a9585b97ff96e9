package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// workerCosts are the figures of sdk/python/bench/bench.py: seconds, or per second for rates.
type workerCosts struct {
	Idle        float64 `json:"idle"` // a share of a core
	TokenWorker float64 `json:"token_worker"`
	TokenAgent  float64 `json:"token_agent"` // the part that writes nothing
	TokenServer float64 `json:"token_server"`
	StepCPU     float64 `json:"step_cpu"`
	StepCPUAll  float64 `json:"step_cpu_all"` // with the server and the database
	StepP50     float64 `json:"step_p50"`
	StepP99     float64 `json:"step_p99"`
	StepRate    float64 `json:"step_rate"`
	DBOSP50     float64 `json:"dbos_p50"`
	DBOSP99     float64 `json:"dbos_p99"`
	DBOSRate    float64 `json:"dbos_rate"`
	DBOSCPUAll  float64 `json:"dbos_cpu_all"` // with the database
}

// sdk measures what a worker of the Python library costs, and compares its steps with those of DBOS for Python.
func (b *bench) sdk(ctx context.Context) error {
	python, missing := b.sdkPython(ctx)
	if missing != nil {
		b.log.Warn("the Python library cannot be measured", "err", missing)
		b.report.add(figure{Name: "a worker of the Python library", Unit: "×",
			Detail: "not measured: " + missing.Error()})
		return nil
	}
	if err := b.build(ctx); err != nil {
		return err
	}
	var all []workerCosts
	for range b.number(9, 3) {
		got, err := b.workerCosts(ctx, python)
		if err != nil {
			return err
		}
		all = append(all, got)
	}
	const streams = "100 tasks write 50 tokens/s each"
	for _, f := range []struct {
		figure
		value func(c workerCosts) float64
	}{
		{figure{Name: "idle worker with 3 agents", Unit: "% CPU", Target: atMost(0.2)},
			func(c workerCosts) float64 { return c.Idle * 100 }},
		{figure{Name: "a streamed token: CPU of the worker", Unit: "µs", Target: atMost(60), Detail: streams},
			func(c workerCosts) float64 { return c.TokenWorker * 1e6 }},
		{figure{Name: "the same agent without writing", Unit: "µs"},
			func(c workerCosts) float64 { return c.TokenAgent * 1e6 }},
		{figure{Name: "a streamed token: CPU of the server", Unit: "µs", Target: atMost(50),
			Detail: streams + "; without PostgreSQL"},
			func(c workerCosts) float64 { return c.TokenServer * 1e6 }},
		{figure{Name: "a step: CPU of the worker", Unit: "µs"},
			func(c workerCosts) float64 { return c.StepCPU * 1e6 }},
		{figure{Name: "a step of one task: p50", Unit: "ms", Target: atMost(3).onQuiet()},
			func(c workerCosts) float64 { return c.StepP50 * 1e3 }},
		{figure{Name: "a step of one task: DBOS / a2ad, p50", Unit: "×", Target: atLeast(1)},
			func(c workerCosts) float64 { return c.DBOSP50 / c.StepP50 }},
		{figure{Name: "a step of one task: DBOS / a2ad, p99", Unit: "×"},
			func(c workerCosts) float64 { return c.DBOSP99 / c.StepP99 }},
		{figure{Name: "steps of 10 tasks: a2ad / DBOS", Unit: "×", Target: atLeast(1)},
			func(c workerCosts) float64 { return c.StepRate / c.DBOSRate }},
		{figure{Name: "steps of 10 tasks per CPU second: a2ad / DBOS", Unit: "×", Target: atLeast(2),
			Detail: "CPU of client, server and database"},
			func(c workerCosts) float64 { return c.DBOSCPUAll / c.StepCPUAll }},
	} {
		var values []float64
		for _, c := range all {
			values = append(values, f.value(c))
		}
		b.report.add(f.series(values))
	}
	return nil
}

// sdkPython returns the interpreter of an environment with the requirements of the bench.
func (b *bench) sdkPython(ctx context.Context) (string, error) {
	if !b.opts.dbos {
		return "", errors.New("left out by -dbos=false")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(b.root, "scripts", "python-env.sh"),
		"sdk/python/bench/requirements.txt")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("it needs python3 with venv: %w%s", err, stderrOf(err))
	}
	return strings.TrimSpace(string(out)), nil
}

// workerCosts measures once, with a server and a worker of its own.
func (b *bench) workerCosts(ctx context.Context, python string) (c workerCosts, err error) {
	cmd := exec.CommandContext(ctx, python, filepath.Join(b.root, "sdk", "python", "bench", "bench.py"))
	cmd.Env = append(os.Environ(), "A2AD_BIN="+b.a2ad, "PYTHONPATH="+filepath.Join(b.root, "sdk", "python", "src"))
	out, err := cmd.Output()
	if err != nil {
		return c, fmt.Errorf("measure a worker: %w%s", err, stderrOf(err))
	}
	if err := json.Unmarshal([]byte(lastLine(out)), &c); err != nil {
		return c, fmt.Errorf("measure a worker: it ended with %q", lastLine(out))
	}
	return c, nil
}
