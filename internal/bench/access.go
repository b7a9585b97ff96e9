package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Requests that wait, and those that never say what they want, in the starvation experiment.
const (
	starveStreams = 1000
	starveSends   = 300
	starveSlow    = 50
)

// starve measures reads on a server with a small pool, beside many who wait and some who never
// say what they want.
func (b *bench) starve(ctx context.Context) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	key, err := b.key(ctx, url)
	if err != nil {
		return err
	}
	s, err := b.serve(ctx, "bench-starve", url, noStreamLimit, "A2AD_DB_POOL=8", "A2AD_BLOCKING_MAX_WAIT=10m", "A2AD_WORKERS=8")
	if err != nil {
		return err
	}
	defer s.stop()
	tasks, err := waitingTasks(ctx, s, key, 1)
	if err != nil {
		return err
	}
	get := []byte(`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"` + tasks[0] + `"}}`)
	span := b.span(20*time.Second, 4*time.Second)
	alone, err := reads(ctx, s, key, get, span/2)
	if err != nil {
		return err
	}
	var waiting []io.Closer
	defer func() {
		for _, c := range waiting {
			c.Close()
		}
	}()
	for i := range starveStreams + starveSends {
		c, err := dial(ctx, s.addr(), "/agents/script", key, 512)
		if err != nil {
			return err
		}
		waiting = append(waiting, c.conn)
		if i < starveStreams {
			_, err = c.stream([]byte(`{"jsonrpc":"2.0","id":1,"method":"tasks/resubscribe","params":{"id":"`+tasks[0]+`"}}`), "")
		} else {
			err = c.send(sendRequest("message/send", fmt.Sprint("w", i), scriptPart(`{"op":"hang"}`), ""), "")
		}
		if err != nil {
			return err
		}
	}
	for i := range 2 * starveSlow {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.addr())
		if err != nil {
			return err
		}
		waiting = append(waiting, c)
		text := "POST / HTTP/1.1\r\nHost: x\r\nContent-Ty"
		if i%2 == 0 {
			text = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " + key + "\r\nContent-Length: 1000\r\n\r\n{"
		}
		if _, err := io.WriteString(c, text); err != nil {
			return err
		}
	}
	took, err := reads(ctx, s, key, get, span)
	if err != nil {
		return err
	}
	b.report.add(figure{
		Name: "GetTask beside a flood: p99", Value: ms(quantile(took, 0.99)), Unit: "ms", Target: atMost(100).onQuiet(),
		Baseline: fmt.Sprintf("without it %s ms", number(ms(quantile(alone, 0.99)))),
		Detail: fmt.Sprintf("pool of 8, %d sends that wait, %d idle streams, %d slow headers, as many slow bodies; p50 %s ms against %s ms, %d reads at %d/s",
			starveSends, starveStreams, starveSlow, number(ms(quantile(took, 0.50))), number(ms(quantile(alone, 0.50))), len(took), readsPerSecond),
	})
	return nil
}

const readsPerSecond = 100

// reads asks for the same at each multiple of 1/readsPerSecond and returns how long each answer took from when it
// was to be asked for, in order.
func reads(ctx context.Context, s *server, key string, body []byte, span time.Duration) ([]time.Duration, error) {
	c, err := dial(ctx, s.addr(), "/agents/script", key, 4096)
	if err != nil {
		return nil, err
	}
	defer c.close()
	var took []time.Duration
	start := time.Now()
	for k := range int(span.Seconds() * readsPerSecond) {
		intended := start.Add(time.Duration(k) * time.Second / readsPerSecond)
		if err := pause(ctx, time.Until(intended)); err != nil {
			return nil, err
		}
		answer, err := c.do(body)
		if err != nil {
			return nil, err
		}
		if bytes.Contains(answer, []byte(`"error"`)) {
			return nil, fmt.Errorf("not a task: %.300s", answer)
		}
		took = append(took, time.Since(intended))
	}
	slices.Sort(took)
	return took, nil
}

// timing asks, as another owner, for tasks that somebody has and for tasks that nobody has, in
// pairs, and looks for a difference in how long the refusals take.
func (b *bench) timing(ctx context.Context) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	key, err := b.key(ctx, url)
	if err != nil {
		return err
	}
	stranger, err := b.keyOf(ctx, url, "stranger")
	if err != nil {
		return err
	}
	s, err := b.serve(ctx, "bench-timing", url, "A2AD_MAX_TASKS_IN_FLIGHT=0")
	if err != nil {
		return err
	}
	defer s.stop()
	const pairs = 2000
	tasks, err := waitingTasks(ctx, s, key, pairs)
	if err != nil {
		return err
	}
	c, err := dial(ctx, s.addr(), "/agents/script", stranger, 4096)
	if err != nil {
		return err
	}
	defer c.close()
	var want []byte
	ask := func(id string) (time.Duration, error) {
		body := []byte(`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"` + id + `"}}`)
		start := time.Now()
		answer, err := c.do(body)
		took := time.Since(start)
		if want == nil {
			want = bytes.Clone(answer)
		}
		if err == nil && (!bytes.Equal(answer, want) || !bytes.Contains(answer, []byte("TASK_NOT_FOUND"))) {
			err = fmt.Errorf("%.300s and %.300s", answer, want)
		}
		return took, err
	}
	for range 500 { // to warm up
		if _, err := ask(uuid.Must(uuid.NewV7()).String()); err != nil {
			return err
		}
	}
	differences := make([]float64, 0, pairs)
	var all []time.Duration
	rand.Shuffle(len(tasks), func(i, j int) { tasks[i], tasks[j] = tasks[j], tasks[i] })
	for _, task := range tasks {
		ids := [2]string{task, uuid.Must(uuid.NewV7()).String()}
		first := rand.IntN(2)
		var took [2]time.Duration
		for _, i := range []int{first, 1 - first} {
			if took[i], err = ask(ids[i]); err != nil {
				return err
			}
		}
		differences = append(differences, (took[0] - took[1]).Seconds())
		all = append(all, took[0], took[1])
	}
	slices.Sort(all)
	z := wilcoxon(differences)
	slices.Sort(differences)
	b.report.add(figure{
		Name: "foreign against unknown tasks: signal in the time", Value: math.Abs(z), Unit: "σ", Target: atMost(3.3),
		Detail: fmt.Sprintf("%d pairs, signed-rank; median difference %s µs of %s µs", pairs, number(differences[pairs/2]*1e6), number(quantile(all, 0.5).Seconds()*1e6)),
	})
	return nil
}

// wilcoxon returns by how many standard deviations the signed ranks of paired differences are
// off what chance would have: their signs are weighed by their size, and a few large ones,
// which a busy machine makes, count for little.
func wilcoxon(differences []float64) float64 {
	d := slices.DeleteFunc(slices.Clone(differences), func(v float64) bool { return v == 0 })
	slices.SortFunc(d, func(a, b float64) int {
		switch a, b = math.Abs(a), math.Abs(b); {
		case a < b:
			return -1
		case a > b:
			return 1
		}
		return 0
	})
	n, w := float64(len(d)), 0.0
	for i := 0; i < len(d); {
		j := i
		for j < len(d) && math.Abs(d[j]) == math.Abs(d[i]) {
			j++
		}
		rank := float64(i+j+1) / 2 // those that are equal share their ranks
		for ; i < j; i++ {
			w += math.Copysign(rank, d[i])
		}
	}
	if n == 0 {
		return 0
	}
	return w / math.Sqrt(n*(n+1)*(2*n+1)/6)
}
