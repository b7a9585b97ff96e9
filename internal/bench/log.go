package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/sse"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// longTask is the number of events of a long task.
const longTask = 10_000

// chunk compares an append to a task with 10,000 chunks with an append to a task with ten.
func (b *bench) chunk(ctx context.Context) error {
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
	const size, rounds, appends = 256, 9, 200
	text := strings.Repeat("x", size)
	event := func(n int) a2a.Event {
		return &a2a.ArtifactUpdate{Append: n > 0,
			Artifact: a2a.Artifact{ID: "a", Parts: []a2a.Part{{Kind: a2a.PartText, Text: text}}}}
	}
	long, err := lease(ctx, s)
	if err != nil {
		return err
	}
	if err := appendAll(ctx, s, long, longTask, event); err != nil {
		return err
	}
	timed := func(l *tasks.Lease, n int) (float64, error) { return timedAppend(ctx, s, l, event(n)) }
	var ratios, shorts []float64
	for round := range rounds + 1 {
		var longTook, shortTook []float64
		for len(longTook) < appends {
			short, err := lease(ctx, s)
			if err != nil {
				return err
			}
			for n := range 20 { // chunks 6 to 15 count
				took, err := timed(short, n)
				if err != nil {
					return err
				}
				if n < 5 || n >= 15 {
					continue
				}
				shortTook = append(shortTook, took)
				if took, err = timed(long, longTask); err != nil {
					return err
				}
				longTook = append(longTook, took)
			}
		}
		if round > 0 {
			ratios, shorts = append(ratios, median(longTook)/median(shortTook)), append(shorts, median(shortTook))
		}
	}
	f := figure{Name: "append of the 10,000th chunk / of the 10th", Unit: "×", Target: atMost(1.3)}.series(ratios)
	f.Baseline = fmt.Sprintf("10th: %s ms, alone, %d B", number(median(shorts)), size)
	f.Detail = fmt.Sprintf("%d rounds of %d each, in turns; medians", len(ratios), appends)
	b.report.add(f)
	return nil
}

// appendAll appends n events in batches.
func appendAll(ctx context.Context, s *store.Store, l *tasks.Lease, n int, event func(n int) a2a.Event) error {
	for i := 0; i < n; {
		var batch tasks.Batch
		for range 50 {
			batch.Events = append(batch.Events, event(i))
			i++
		}
		if _, err := s.Tasks.Append(ctx, l, batch); err != nil {
			return err
		}
	}
	return nil
}

// timedAppend appends one event and returns the time in milliseconds.
func timedAppend(ctx context.Context, s *store.Store, l *tasks.Lease, e a2a.Event) (float64, error) {
	start := time.Now()
	_, err := s.Tasks.Append(ctx, l, tasks.Batch{Events: []a2a.Event{e}})
	return ms(time.Since(start)), err
}

// lease submits a task and claims it.
func lease(ctx context.Context, s *store.Store) (*tasks.Lease, error) {
	if _, err := s.Tasks.Submit(ctx, submission(0)); err != nil {
		return nil, err
	}
	leases, err := s.Tasks.NewClaimer().Claim(ctx, benchAgent, 1, time.Hour, 0)
	if err != nil {
		return nil, err
	}
	if len(leases) != 1 {
		return nil, errors.New("the task could not be claimed")
	}
	return &leases[0], nil
}

// replay measures a client that resumes a stream after the first event.
func (b *bench) replay(ctx context.Context) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	key, err := b.key(ctx, url)
	if err != nil {
		return err
	}
	s, err := b.serve(ctx, "bench-replay", url)
	if err != nil {
		return err
	}
	defer s.stop()
	c, err := dial(ctx, s.addr(), "/agents/script", key, 64<<10)
	if err != nil {
		return err
	}
	defer c.close()
	script := scriptPart(fmt.Sprintf(`{"op":"chunk","id":"a","n":%d,"bytes":200},{"op":"complete"}`, longTask))
	made, err := readStream(c, sendRequest("message/stream", "m", script, ""), "")
	if err != nil {
		return err
	}
	var took []float64
	for range b.number(9, 3) {
		start := time.Now()
		again, err := readStream(c,
			[]byte(`{"jsonrpc":"2.0","id":"r","method":"tasks/resubscribe","params":{"id":"`+made.task+`"}}`),
			"Last-Event-ID: "+made.first+"\r\n")
		if err != nil {
			return err
		}
		took = append(took, time.Since(start).Seconds())
		if again.events != made.events-1 {
			return fmt.Errorf("void: %d events replayed of %d", again.events, made.events-1)
		}
	}
	f := figure{Name: "replay of 10,000 events over HTTP", Unit: "s", Target: atMost(0.7)}.series(took)
	f.Detail = fmt.Sprintf("%d events of 200 B after Last-Event-ID %s, %s kB/event on the wire", made.events-1,
		made.first, number(float64(made.bytes)/float64(made.events)/1000))
	b.report.add(f)
	return nil
}

// streamed is the content of a stream.
type streamed struct {
	task, first string // ids of the task and of the first event
	events      int
	bytes       int
}

// readStream sends a request and reads its stream to the end. Event numbers must have no gap.
func readStream(c *httpConn, request []byte, header string) (got streamed, err error) {
	body, err := c.stream(request, header)
	if err != nil {
		return got, err
	}
	defer body.Close()
	err = eachEvent(body, func(_ int64, id string, data []byte) error {
		if got.events == 0 {
			got.first = id
			got.task = stringAfter(data, `"kind":"task","id":"`, 36)
		}
		got.events++
		got.bytes += len(data)
		return nil
	})
	return got, err
}

// stringAfter returns the n bytes after the last occurrence of marker.
func stringAfter(data []byte, marker string, n int) string {
	for rest := data; ; {
		i := bytes.Index(rest, []byte(marker))
		if i < 0 {
			return ""
		}
		rest = rest[i+len(marker):]
		if len(rest) > n && rest[n] == '"' {
			return string(rest[:n])
		}
	}
}

var errGap = errors.New("void: a stream has a gap")

// eachEvent calls f for each event of a stream.
func eachEvent(body io.Reader, f func(seq int64, id string, data []byte) error) error {
	r := sse.NewReader(body, sse.ReaderOptions{})
	var last int64
	for {
		ev, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		seq, _, ok := sse.ParseID(ev.ID)
		if !ok || last > 0 && seq != last+1 {
			return fmt.Errorf("%w: %q after %d", errGap, ev.ID, last)
		}
		last = seq
		if err := f(seq, ev.ID, ev.Data); err != nil {
			return err
		}
	}
}
