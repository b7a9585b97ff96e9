package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// reportBytes is the size of what an event or a step says.
const reportBytes = 200

var (
	reportText = strings.Repeat("x", reportBytes)
	stepInput  = sha256.Sum256([]byte(reportText))
	stepResult = a2a.Raw(strconv.Quote(reportText))
)

// chunkEvent is an event of reportBytes.
func chunkEvent(appends bool) a2a.Event {
	return &a2a.ArtifactUpdate{Append: appends,
		Artifact: a2a.Artifact{ID: "a", Parts: []a2a.Part{{Kind: a2a.PartText, Text: reportText}}}}
}

// workStep is the n-th step of a task, with a result of reportBytes.
func workStep(n int) a2a.StepRecord {
	return a2a.StepRecord{
		Step: a2a.Step{Key: "work#" + strconv.Itoa(n), Name: "work", Input: stepInput[:], Result: stepResult,
			Attempts: 1},
		Seq: n, Kind: a2a.StepWork, Ended: true,
	}
}

// step compares the record of a step with that of an event of the same size, as a worker appends both.
func (b *bench) step(ctx context.Context) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	s, err := b.store(ctx, url)
	if err != nil {
		return err
	}
	defer s.Close()
	for _, c := range []stepShape{
		{"32 at once", 32, 1, 1.2}, {"alone", 1, 1, 1.2}, {"8 at once, batches of 64", 8, 64, 1.3},
	} {
		if err := b.stepAgainstEvent(ctx, s, c); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

type stepShape struct {
	name           string
	callers, batch int
	most           float64 // the target: a row of a step has two unique indexes, that of an event has one
}

// stepAgainstEvent adds the ratios of CPU and of time.
func (b *bench) stepAgainstEvent(ctx context.Context, s *store.Store, c stepShape) error {
	span := b.span(2*time.Second, time.Second)
	var rates, cpus [2][]float64 // of events, of steps
	var cpuRatios, timeRatios []float64
	for round := range b.number(15, 11) + 1 { // single rounds differ by a third
		for i := range rates {
			kind := (i + round) % 2 // what one leaves to vacuum is not always a burden on the other
			appendOne, err := appender(ctx, s, c.callers, c.batch, kind == 1)
			if err != nil {
				return err
			}
			rate, cpu, err := b.rate(ctx, c.callers, span, appendOne)
			if err != nil {
				return err
			}
			if round > 0 { // the first round warms up plans and connections
				rates[kind], cpus[kind] = append(rates[kind], rate), append(cpus[kind], cpu)
			}
		}
		if last := len(cpus[1]) - 1; last >= 0 {
			cpuRatios = append(cpuRatios, cpus[1][last]/cpus[0][last])
			timeRatios = append(timeRatios, rates[0][last]/rates[1][last])
		}
	}
	f := figure{Name: "step / event, " + c.name + ": CPU", Unit: "×", Target: atMost(c.most)}.series(cpuRatios)
	f.Baseline = fmt.Sprintf("event: %.0f µs CPU (client and PostgreSQL)", median(cpus[0])/float64(c.batch))
	f.Detail = fmt.Sprintf("step: %.0f µs; %d B each; %d pairs of %s", median(cpus[1])/float64(c.batch), reportBytes,
		len(cpuRatios), span)
	b.report.add(f)
	f = figure{Name: "step / event, " + c.name + ": time", Unit: "×", Target: atMost(c.most)}.series(timeRatios)
	f.Baseline = fmt.Sprintf("events: %s/s", number(median(rates[0])*float64(c.batch)))
	f.Detail = fmt.Sprintf("steps: %s/s, in the same pairs", number(median(rates[1])*float64(c.batch)))
	b.report.add(f)
	return nil
}

// appender leases a task for each caller, and returns a function that appends one batch of steps or events to one of
// them.
func appender(ctx context.Context, s *store.Store, callers, batch int, steps bool) (
	func(ctx context.Context, n int64) error, error,
) {
	leases, err := leaseMany(ctx, s, callers)
	if err != nil {
		return nil, err
	}
	free := make(chan *tasks.Lease, callers)
	for i := range leases {
		free <- &leases[i]
	}
	return func(ctx context.Context, _ int64) error {
		l := <-free
		defer func() { free <- l }()
		var report tasks.Batch
		for i := range batch {
			if steps {
				report.Steps = append(report.Steps, workStep(l.Steps+1+i))
			} else {
				report.Events = append(report.Events, chunkEvent(i > 0))
			}
		}
		_, err := s.Tasks.Append(ctx, l, report)
		return err
	}, nil
}

// leaseMany submits tasks and claims them.
func leaseMany(ctx context.Context, s *store.Store, n int) ([]tasks.Lease, error) {
	if err := fill(ctx, s, n); err != nil {
		return nil, err
	}
	leases, err := s.Tasks.NewClaimer().Claim(ctx, benchAgent, n, time.Hour, 0)
	if err == nil && len(leases) != n {
		err = fmt.Errorf("void: claimed %d of %d", len(leases), n)
	}
	return leases, err
}
