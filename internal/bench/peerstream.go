package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A token has 20 bytes: the time of its report in microseconds, a colon, and its number.
const (
	tokenBytes    = 20
	tokenRate     = 50
	tokenInterval = time.Second / tokenRate
)

// tokenStream is what the client of one stream saw.
type tokenStream struct {
	start   time.Time       // of the request
	arrived []time.Time     // of the tokens
	report  []time.Duration // from the agent's report to the client
	whole   time.Duration   // from the request to the end of the stream
}

// streamRound is what one side did in one round of streams.
type streamRound struct {
	cpu       float64 // ms per token
	processes float64 // the part of cpu without PostgreSQL
	agent     float64 // the part of cpu of a process of the agent alone
	own       float64 // share of the cores that the load generator used
	slowest   float64 // s, of the whole texts
	lateness  []time.Duration
	first     []time.Duration // from report to client, of each stream's first token
	report    []time.Duration // the same of all tokens
}

// streamRound opens streams of n tokens each, whose starts are spread over ramp, and reads them to their ends.
func (b *bench) streamRound(ctx context.Context, s *side, streams, n int, ramp time.Duration) (r streamRound,
	err error) {
	b.count++
	seen := make([]tokenStream, streams)
	conns := make([]*httpConn, streams)
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.close()
			}
		}
	}()
	for i := range conns {
		if conns[i], err = dial(ctx, s.addr, s.tokens, s.key, 4096); err != nil {
			return r, err
		}
	}
	before, err := b.sideCPU(s)
	if err != nil {
		return r, err
	}
	agentBefore := b.agentCPU(s)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	start := time.Now()
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() {
			// The golden ratio spreads the starts, so that the tokens of the streams do not come all at once.
			_, at := math.Modf(float64(i) * 0.6180339887)
			err := pause(ctx, time.Until(start.Add(time.Duration(at*float64(ramp)))))
			if err == nil {
				err = seen[i].read(c, fmt.Sprintf("p%d-%d", b.count, i), n)
			}
			if err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	if err := context.Cause(ctx); err != nil {
		return r, err
	}
	after, err := b.sideCPU(s)
	if err != nil {
		return r, err
	}
	r = roundOf(seen)
	u, tokens := after.minus(before), float64(streams*n)
	r.cpu, r.processes = exact(u.server+u.postgres)/tokens, exact(u.server)/tokens
	r.agent = exact(b.agentCPU(s)-agentBefore) / tokens
	r.own = u.own.Seconds() / took.Seconds() / float64(runtime.NumCPU())
	return r, nil
}

// agentCPU returns the CPU time of an agent in a process of its own.
func (b *bench) agentCPU(s *side) time.Duration {
	if len(s.parts) < 2 {
		return 0
	}
	p, err := procStat(s.parts[1].pid())
	if err != nil {
		return 0
	}
	return p.cpu
}

// roundOf joins and sorts what the clients saw. A token is late if it arrives later than its number times the interval
// after the request of its stream.
func roundOf(seen []tokenStream) (r streamRound) {
	for _, s := range seen {
		for k, at := range s.arrived {
			r.lateness = append(r.lateness, at.Sub(s.start)-time.Duration(k+1)*tokenInterval)
		}
		r.first = append(r.first, s.report[0])
		r.report = append(r.report, s.report...)
		r.slowest = max(r.slowest, s.whole.Seconds())
	}
	slices.Sort(r.lateness)
	slices.Sort(r.first)
	slices.Sort(r.report)
	return r
}

// read asks for n tokens and reads them.
func (t *tokenStream) read(c *httpConn, id string, n int) error {
	if err := c.conn.SetDeadline(time.Now().Add(2 * ioLimit)); err != nil {
		return err
	}
	t.start = time.Now()
	t.arrived, t.report = make([]time.Time, 0, n), make([]time.Duration, 0, n)
	request := sendRequestV1("SendStreamingMessage", id, fmt.Sprintf("tokens %d %d", n, tokenRate))
	body, err := c.stream(request, versionV1)
	if err != nil {
		return err
	}
	defer body.Close()
	ended, err := eachToken(body, func(token []byte) error {
		now := time.Now()
		reported, number, err := parseToken(token)
		if err != nil || number != len(t.arrived) {
			return fmt.Errorf("%w: token %q after %d", errGap, token, len(t.arrived))
		}
		t.arrived = append(t.arrived, now)
		t.report = append(t.report, now.Sub(reported))
		return nil
	})
	t.whole = time.Since(t.start)
	if err == nil && (!ended || len(t.arrived) != n) {
		err = fmt.Errorf("void: a stream ended after %d of %d tokens", len(t.arrived), n)
	}
	return err
}

func parseToken(token []byte) (reported time.Time, number int, err error) {
	micros, rest, ok := strings.Cut(string(token), ":")
	if !ok {
		return reported, 0, errors.New("a token without a colon")
	}
	us, err := strconv.ParseInt(micros, 10, 64)
	if err != nil {
		return reported, 0, err
	}
	number, err = strconv.Atoi(rest)
	return time.UnixMicro(us), number, err
}

var (
	dataLine       = []byte("data:")
	artifactUpdate = []byte(`"artifactUpdate"`)
	textField      = []byte(`"text":"`)
)

// eachToken calls f for each token of a stream. A text may have several. It takes little CPU time, because it runs on
// the measured cores. ended reports whether the task was completed.
func eachToken(body io.Reader, f func(token []byte) error) (ended bool, err error) {
	lines := bufio.NewReaderSize(body, 4096)
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return ended, errors.New("void: a line is longer than expected")
		}
		if errors.Is(err, io.EOF) {
			return ended, nil
		}
		if err != nil {
			return ended, err
		}
		if !bytes.HasPrefix(line, dataLine) {
			continue
		}
		ended = ended || bytes.Contains(line, completedV1)
		if !bytes.Contains(line, artifactUpdate) {
			continue
		}
		for _, rest, ok := bytes.Cut(line, textField); ok; _, rest, ok = bytes.Cut(rest, textField) {
			text, _, _ := bytes.Cut(rest, []byte{'"'})
			if len(text)%tokenBytes != 0 {
				return ended, fmt.Errorf("void: a text of %d bytes", len(text))
			}
			for token := range slices.Chunk(text, tokenBytes) {
				if err := f(token); err != nil {
					return ended, err
				}
			}
		}
	}
}
