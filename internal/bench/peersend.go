package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"
)

// sendRound is what one side did in one round of blocking sends.
type sendRound struct {
	rate      float64 // tasks per second
	cpu       float64 // ms per task
	processes float64 // the part of cpu without PostgreSQL
	own       float64 // share of the cores that the load generator used
	allTasks  float64 // also those before and after the measured span
}

// peerSends measures blocking sends to agents that answer at once.
func (b *bench) peerSends(ctx context.Context, url string, sides []*side, callers int) error {
	rounds := make(map[string][]sendRound)
	for _, s := range sides { // warms up
		if _, err := b.sendRound(ctx, s, callers, b.span(4*time.Second, 2*time.Second)); err != nil {
			return err
		}
	}
	before, err := b.walStat(ctx, url)
	if err != nil {
		return err
	}
	for round := range b.number(9, 3) {
		for i := range sides {
			s := sides[(round+i)%len(sides)]
			r, err := b.sendRound(ctx, s, callers, 2*time.Second)
			if err == nil {
				err = void(r.own)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			rounds[s.name] = append(rounds[s.name], r)
		}
	}
	after, err := b.walStat(ctx, url)
	if err != nil {
		return err
	}
	tasks := 0.0
	for _, r := range rounds["a2ad"] {
		tasks += r.allTasks
	}
	b.reportSends(sides, rounds, callers, float64(after.commits-before.commits)/tasks)
	return nil
}

// sendRound sends for a moment, then measures for a span.
func (b *bench) sendRound(ctx context.Context, s *side, callers int, span time.Duration) (r sendRound, err error) {
	b.count++
	load := &echoLoad{addr: s.addr, key: s.key, v1: true, prefix: fmt.Sprintf("p%d-", b.count)}
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	failed := make(chan error, 1)
	go func() { failed <- load.closed(running, callers) }()
	if err := pause(ctx, 500*time.Millisecond); err != nil {
		return r, errors.Join(err, <-failed)
	}
	before, err := b.sideCPU(s)
	if err != nil {
		return r, err
	}
	n, start := load.done.Load(), time.Now()
	select {
	case err := <-failed:
		return r, err
	case <-time.After(span):
	}
	took, done := time.Since(start), float64(load.done.Load()-n)
	after, err := b.sideCPU(s)
	stop(errEnough)
	if err := errors.Join(err, <-failed); err != nil {
		return r, err
	}
	if done == 0 {
		return r, errors.New("void: no task ended")
	}
	u := after.minus(before)
	return sendRound{
		rate: done / took.Seconds(), cpu: exact(u.server+u.postgres) / done, processes: exact(u.server) / done,
		own: u.own.Seconds() / took.Seconds() / float64(runtime.NumCPU()), allTasks: float64(load.done.Load()),
	}, nil
}

// column returns one value of each round.
func column[T any](rounds []T, value func(T) float64) []float64 {
	values := make([]float64, len(rounds))
	for i, r := range rounds {
		values[i] = value(r)
	}
	return values
}

// ratios divides the values of each round.
func ratios(over, under []float64) []float64 {
	out := make([]float64, len(over))
	for i := range out {
		out[i] = over[i] / under[i]
	}
	return out
}

// Rates of blocking sends as multiples of those of the official servers.
var (
	sendTargets = map[string]float64{jsPeer: 1, goPeer: 2}
	sendAims    = map[string]float64{jsPeer: 2, goPeer: 4}
)

// What a blocking send costs with 32 callers.
const (
	sendCPUTarget = 0.3 // ms
	commitsTarget = 0.5 // per task
	commitsAim    = 0.3
)

// sendCPU ends the names of figures.
const sendCPU = ": CPU per send"

func (b *bench) reportSends(sides []*side, rounds map[string][]sendRound, callers int, commits float64) {
	rate := func(r sendRound) float64 { return r.rate }
	cpu := func(r sendRound) float64 { return r.cpu }
	name := fmt.Sprintf("blocking sends, %d callers", callers)
	rates := byServer{Name: name, Unit: "/s", More: true}
	cpus := byServer{Name: name + sendCPU, Unit: "ms"}
	var owns []string
	for _, s := range sides {
		rates.add(s.name, median(column(rounds[s.name], rate)))
		cpus.add(s.name, median(column(rounds[s.name], cpu)))
		owns = append(owns, fmt.Sprintf("%s %.0f %%", s.name,
			100*median(column(rounds[s.name], func(r sendRound) float64 { return r.own }))))
	}
	b.report.Comparisons = append(b.report.Comparisons, rates, cpus)
	ours := rounds["a2ad"]
	for _, s := range sides[1:] {
		f := figure{Name: name + ": a2ad / " + s.name, Unit: "×", Target: atLeast(sendTargets[s.name]),
			Aim: atLeast(sendAims[s.name])}.series(ratios(column(ours, rate), column(rounds[s.name], rate)))
		f.Baseline = inMemory(s.name)
		f.Detail = fmt.Sprintf("a2ad %s/s, %s %s/s; rounds of 2 s, in turns: %d; "+
			"the load generator used of the cores: %s",
			number(rates.of("a2ad")), s.name, number(rates.of(s.name)), len(ours), strings.Join(owns, ", "))
		b.report.add(f)
	}
	f := figure{Name: name + sendCPU, Unit: "ms"}.series(column(ours, cpu))
	processes := median(column(ours, func(r sendRound) float64 { return r.processes }))
	f.Detail = fmt.Sprintf("server %s ms, the rest is PostgreSQL's; %s", number(processes), cpus.others())
	c := figure{Name: name + ": commits per task", Value: commits}
	if callers == senders {
		f.Target, c.Target, c.Aim = atMost(sendCPUTarget), atMost(commitsTarget), atMost(commitsAim)
	}
	b.report.add(f)
	b.report.add(c)
}

// inMemory describes an official server.
func inMemory(name string) string {
	return fmt.Sprintf("%s %s, tasks in memory, in the same run", name, peerVersions[name])
}
