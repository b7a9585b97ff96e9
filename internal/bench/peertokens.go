package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

const (
	// textTokens is the length of most measured texts: two seconds. That favors a2a-js, whose cost of a token grows
	// with the text before it.
	textTokens = 2 * tokenRate
	// longTokens is the length of a long answer: ten seconds.
	longTokens = 10 * tokenRate
)

// shape is how many streams there are at once, and how many tokens each of them has.
type shape struct{ streams, tokens int }

func (s shape) String() string {
	name := fmt.Sprintf("%d streams of %d tokens/s", s.streams, tokenRate)
	if s.tokens == longTokens {
		name += " for 10 s"
	}
	return name
}

// tokenCPU ends the names of figures.
const tokenCPU = ": CPU per token"

// CPU times of a token as multiples of that of a2a-js, by streams.
var (
	tokenCPUTargets = map[int]float64{20: 2.5, 100: 1.3}
	tokenCPUAims    = map[int]float64{20: 0.5, 100: 0.2}
)

const (
	firstTokenTarget = 5  // ms, p50
	anyTokenTarget   = 25 // ms, p99
	streamsTarget    = 500
)

// peerStreams measures agents that write tokens at a steady pace.
func (b *bench) peerStreams(ctx context.Context, sides []*side, shape shape) error {
	const ramp = 200 * time.Millisecond
	for _, s := range sides { // warms up
		if _, err := b.streamRound(ctx, s, shape.streams, textTokens, ramp); err != nil {
			return err
		}
	}
	rounds, short := make(map[string][]streamRound), make(map[string][]streamRound)
	n := b.number(9, 3)
	if shape.tokens == longTokens {
		n = b.number(5, 1)
	}
	for round := range n {
		for i := range sides {
			s := sides[(round+i)%len(sides)]
			if shape.tokens == longTokens {
				r, err := b.streamRound(ctx, s, shape.streams, textTokens, ramp)
				if err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				short[s.name] = append(short[s.name], r)
			}
			r, err := b.streamRound(ctx, s, shape.streams, shape.tokens, ramp)
			if err == nil {
				err = void(r.own)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			rounds[s.name] = append(rounds[s.name], r)
		}
	}
	b.reportTokenCPU(sides, rounds, shape)
	b.reportPace(sides, rounds, shape)
	if shape.tokens == textTokens {
		b.reportTokenTimes(rounds["a2ad"], shape)
	} else {
		b.reportGrowth(sides, rounds, short, shape)
	}
	return nil
}

// reportGrowth adds how much more a token of a long text costs.
func (b *bench) reportGrowth(sides []*side, long, short map[string][]streamRound, shape shape) {
	cpu := func(r streamRound) float64 { return r.cpu }
	growth := byServer{Name: fmt.Sprintf("%d streams: CPU per token, text of 10 s / of 2 s", shape.streams), Unit: "×"}
	var ours []float64
	for _, s := range sides {
		by := ratios(column(long[s.name], cpu), column(short[s.name], cpu))
		if s.durable {
			ours = by
		}
		growth.add(s.name, median(by))
	}
	b.report.Comparisons = append(b.report.Comparisons, growth)
	f := figure{Name: growth.Name, Unit: "×"}.series(ours)
	f.Detail = growth.others()
	b.report.add(f)
}

func (b *bench) reportTokenCPU(sides []*side, rounds map[string][]streamRound, shape shape) {
	cpu := func(r streamRound) float64 { return r.cpu }
	name := shape.String() + tokenCPU
	cpus := byServer{Name: name, Unit: "ms"}
	var owns []string
	for _, s := range sides {
		cpus.add(s.name, median(column(rounds[s.name], cpu)))
		owns = append(owns, fmt.Sprintf("%s %.0f %%", s.name,
			100*median(column(rounds[s.name], func(r streamRound) float64 { return r.own }))))
	}
	b.report.Comparisons = append(b.report.Comparisons, cpus)
	ours := rounds["a2ad"]
	for _, s := range sides[1:] {
		f := figure{Name: name + ", a2ad / " + s.name, Unit: "×", Baseline: inMemory(s.name)}.
			series(ratios(column(ours, cpu), column(rounds[s.name], cpu)))
		if s.name == jsPeer && shape.tokens == textTokens {
			f.Target, f.Aim = atMost(tokenCPUTargets[shape.streams]), atMost(tokenCPUAims[shape.streams])
		}
		f.Detail = fmt.Sprintf("a2ad %s ms, %s %s ms; rounds, in turns: %d; the load generator used of the cores: %s",
			number(cpus.of("a2ad")), s.name, number(cpus.of(s.name)), len(ours), strings.Join(owns, ", "))
		b.report.add(f)
	}
	f := figure{Name: name, Unit: "ms"}.series(column(ours, cpu))
	f.Detail = fmt.Sprintf("server %s ms, agent %s ms, the rest is PostgreSQL's; %s",
		number(median(column(ours, func(r streamRound) float64 { return r.processes - r.agent }))),
		number(median(column(ours, func(r streamRound) float64 { return r.agent }))), cpus.others())
	b.report.add(f)
}

// reportPace adds how long texts take, of the slowest stream of each round.
func (b *bench) reportPace(sides []*side, rounds map[string][]streamRound, shape shape) {
	slowest := func(r streamRound) float64 { return r.slowest }
	late := func(r streamRound) float64 { return ms(quantile(r.lateness, 0.99)) }
	name := fmt.Sprintf("%v: time of a text of %d s", shape, shape.tokens/tokenRate)
	paces := byServer{Name: name, Unit: "s"}
	var lates []string
	for _, s := range sides {
		paces.add(s.name, median(column(rounds[s.name], slowest)))
		lates = append(lates, fmt.Sprintf("%s %s ms", s.name, number(median(column(rounds[s.name], late)))))
	}
	b.report.Comparisons = append(b.report.Comparisons, paces)
	f := figure{Name: name, Unit: "s"}.series(column(rounds["a2ad"], slowest))
	f.Detail = "the slowest stream of a round; " + paces.others() + "; p99 of lateness: " + strings.Join(lates, ", ")
	b.report.add(f)
}

func (b *bench) reportTokenTimes(ours []streamRound, shape shape) {
	name := shape.String() + ": report to client, "
	f := figure{Name: name + "first token p50", Unit: "ms", Target: atMost(firstTokenTarget)}.
		series(column(ours, func(r streamRound) float64 { return ms(quantile(r.first, 0.5)) }))
	f.Detail = "from the agent's report, over a2ad and its commit, to the client"
	b.report.add(f)
	f = figure{Name: name + "any token p99", Unit: "ms", Target: atMost(anyTokenTarget)}.
		series(column(ours, func(r streamRound) float64 { return ms(quantile(r.report, 0.99)) }))
	f.Detail = fmt.Sprintf("p50 %s ms",
		number(median(column(ours, func(r streamRound) float64 { return ms(quantile(r.report, 0.5)) }))))
	b.report.add(f)
}

const (
	// heldLimit is the lateness that 99 % of the tokens must not reach.
	heldLimit = time.Second
	// mostStreams is what a replica runs at once by default.
	mostStreams = 1000
)

// peerHeld searches the largest number of streams whose pace is held.
func (b *bench) peerHeld(ctx context.Context, url string, sides []*side) error {
	c := byServer{Name: fmt.Sprintf("most streams held at %d tokens/s", tokenRate), Unit: "streams", More: true}
	var limited []string
	for _, s := range sides {
		most, generator, err := b.mostOf(ctx, s)
		if err == nil && s.durable {
			err = b.ebb(ctx, url)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		c.add(s.name, float64(most))
		switch {
		case generator:
			limited = append(limited, s.name+" could not be asked for more, because the load generator was too busy")
		case most == mostStreams:
			limited = append(limited, fmt.Sprintf("%s was not asked for more than %d", s.name, mostStreams))
		}
	}
	b.report.Comparisons = append(b.report.Comparisons, c)
	f := figure{Name: c.Name, Unit: c.Unit, Value: c.of("a2ad"), Target: atLeast(streamsTarget)}
	f.Detail = strings.Join(append([]string{fmt.Sprintf("held: 99 %% of the tokens come less than %v late, "+
		"in one of two tries; %s", heldLimit, c.others())}, limited...), "; ")
	b.report.add(f)
	return nil
}

// mostOf searches for one side. generator reports that the load generator ended the search.
func (b *bench) mostOf(ctx context.Context, s *side) (most int, generator bool, err error) {
	tokens := b.number(5*tokenRate, textTokens)
	most, err = mostHeld(25, mostStreams, float64(b.number(16, 4)), func(streams int) (bool, error) {
		for range 2 { // something else on the machine may spoil one
			r, err := b.streamRound(ctx, s, streams, tokens, time.Second)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				b.log.Info("streams", "server", s.name, "streams", streams, "err", err)
				continue // far too late
			}
			if err != nil {
				return false, err
			}
			late := quantile(r.lateness, 0.99)
			b.log.Info("streams", "server", s.name, "streams", streams, "late", late, "generator", r.own)
			generator = errors.Is(void(r.own), errBusyGenerator)
			if late < heldLimit && !generator {
				return true, nil
			}
		}
		return false, nil
	})
	return most, generator, err
}

// mostHeld returns the largest number that is held, within one part in precision, and limit at most. It doubles from
// start (or halves, if start is not held), and then bisects.
func mostHeld(start, limit int, precision float64, held func(n int) (bool, error)) (int, error) {
	best, failed := 0, limit+1
	for n := start; best == 0 || failed > limit; {
		ok, err := held(n)
		if err != nil {
			return best, err
		}
		if ok {
			best = max(best, n)
		} else {
			failed = min(failed, n)
		}
		switch {
		case best == limit || failed == 1:
			return best, nil
		case failed > limit:
			n = min(2*n, limit)
		case best == 0:
			n = max(n/2, 1)
		}
	}
	for float64(failed-best) > max(1, float64(failed)/precision) {
		n := best + (failed-best)/2
		ok, err := held(n)
		if err != nil {
			return best, err
		}
		if ok {
			best = n
		} else {
			failed = n
		}
	}
	return best, nil
}
