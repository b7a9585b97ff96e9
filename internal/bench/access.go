package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Waiting requests and slow clients of the starvation experiment.
const (
	starveStreams = 1000
	starveSends   = 300
	starveSlow    = 50
)

// starve measures reads on a server with a small pool while many requests wait and slow clients never finish theirs.
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
	s, err := b.serve(ctx, "bench-starve", url, noStreamLimit, "A2AD_DB_POOL=8", "A2AD_BLOCKING_MAX_WAIT=10m",
		"A2AD_WORKERS=8")
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
	if waiting, err = starvers(ctx, s, key, tasks[0]); err != nil {
		return err
	}
	took, err := reads(ctx, s, key, get, span)
	if err != nil {
		return err
	}
	b.report.add(figure{
		Name: "GetTask beside a flood: p99", Value: ms(quantile(took, 0.99)), Unit: "ms", Target: atMost(100).onQuiet(),
		Baseline: fmt.Sprintf("without it %s ms", number(ms(quantile(alone, 0.99)))),
		Detail: fmt.Sprintf("pool of 8, %d sends that wait, %d idle streams, %d slow headers, as many slow bodies; "+
			"p50 %s ms against %s ms, %d reads at %d/s",
			starveSends, starveStreams, starveSlow, number(ms(quantile(took, 0.50))), number(ms(quantile(alone, 0.50))),
			len(took), readsPerSecond),
	})
	return nil
}

// starvers opens waiting requests, idle streams and slow clients. It returns the connections also with an error.
func starvers(ctx context.Context, s *server, key, task string) (waiting []io.Closer, err error) {
	for i := range starveStreams + starveSends {
		c, err := dial(ctx, s.addr(), "/agents/script", key, 512)
		if err != nil {
			return waiting, err
		}
		waiting = append(waiting, c.conn)
		if i < starveStreams {
			_, err = c.stream([]byte(`{"jsonrpc":"2.0","id":1,"method":"tasks/resubscribe","params":{"id":"`+task+
				`"}}`), "")
		} else {
			err = c.send(sendRequest("message/send", fmt.Sprint("w", i), scriptPart(`{"op":"hang"}`), ""), "")
		}
		if err != nil {
			return waiting, err
		}
	}
	for i := range 2 * starveSlow {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.addr())
		if err != nil {
			return waiting, err
		}
		waiting = append(waiting, c)
		text := "POST / HTTP/1.1\r\nHost: x\r\nContent-Ty"
		if i%2 == 0 {
			text = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " + key +
				"\r\nContent-Length: 1000\r\n\r\n{"
		}
		if _, err := io.WriteString(c, text); err != nil {
			return waiting, err
		}
	}
	return waiting, nil
}

const readsPerSecond = 100

// reads sends the same request at each multiple of 1/readsPerSecond. It returns, sorted, the time from each intended
// start to its answer.
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

// timing asks, as another owner, for pairs of one existing and one unknown task, and tests whether the response times
// differ. As a control it also asks for pairs of two unknown tasks: a difference there means that the measurement is
// wrong.
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
	tasks, err := waitingTasks(ctx, s, key, 2000)
	if err != nil {
		return err
	}
	contexts, err := b.contexts(ctx, url, tasks)
	if err != nil {
		return err
	}
	c, err := dial(ctx, s.addr(), "/agents/script", stranger, 4096)
	if err != nil {
		return err
	}
	defer c.close()
	probes := []*probe{
		{name: "get", request: `"method":"tasks/get","params":{"id":"%s"}`},
		{name: "cancel", request: `"method":"tasks/cancel","params":{"id":"%s"}`},
		{name: "resubscribe", request: `"method":"tasks/resubscribe","params":{"id":"%s"}`},
		{name: "message to a task",
			request: `"method":"message/send","params":{"message":{"kind":"message","messageId":"m","role":"user",` +
				`"parts":[{"kind":"text","text":"hello"}],"taskId":"%s"}}`},
		{name: "list of a context", request: `"method":"tasks/list","params":{"contextId":"%s"}`, nothing: `"tasks":[]`,
			ids: contexts},
		{name: "control, get", request: `"method":"tasks/get","params":{"id":"%s"}`, control: true},
	}
	if err := askPairs(c, probes, tasks, b.number(timingRounds, 1)); err != nil {
		return err
	}
	for _, p := range probes {
		b.report.add(p.figure())
	}
	return nil
}

// askPairs warms up, and then sends every probe for every task in random order, in each round.
func askPairs(c *httpConn, probes []*probe, tasks []string, rounds int) error {
	for range 500 { // warm up
		for _, p := range probes {
			if _, err := p.ask(c, unknownBeside(tasks[0])); err != nil {
				return err
			}
		}
	}
	for range rounds {
		for _, k := range rand.Perm(len(tasks)) {
			for _, i := range rand.Perm(len(probes)) {
				p, id := probes[i], tasks[k]
				if p.ids != nil {
					id = p.ids[k]
				}
				if err := p.pair(c, id); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// contexts returns the context of each task.
func (b *bench) contexts(ctx context.Context, url string, tasks []string) ([]string, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx,
		"SELECT t.context_id FROM unnest($1::uuid[]) WITH ORDINALITY AS i (id, n) JOIN a2a.tasks t ON t.id = i.id "+
			"ORDER BY i.n", tasks)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// timingRounds is how often each task is asked for by each probe.
const timingRounds = 10

// probe is one kind of request for objects of another owner.
type probe struct {
	name    string
	request string   // without the envelope, with a %s for the id
	ids     []string // what to request for each task; nil: the task id
	nothing string   // how an empty answer looks; empty: "not found"
	control bool     // neither id of a pair exists
	want    []byte   // the answer that every request must get

	differences []float64 // of the pairs, in seconds: existing minus unknown
	took        []time.Duration
}

// pair requests one id of another owner and one unknown id, in random order.
func (p *probe) pair(c *httpConn, id string) error {
	ids := [2]string{id, unknownBeside(id)}
	if p.control {
		ids[0] = unknownBeside(id)
	}
	var took [2]time.Duration
	first := rand.IntN(2)
	for _, i := range []int{first, 1 - first} {
		var err error
		if took[i], err = p.ask(c, ids[i]); err != nil {
			return err
		}
	}
	p.differences = append(p.differences, (took[0] - took[1]).Seconds())
	p.took = append(p.took, took[0], took[1])
	return nil
}

// ask sends a request and returns the response time. The answer must equal the earlier ones.
func (p *probe) ask(c *httpConn, id string) (time.Duration, error) {
	body := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,`+p.request+`}`, id)
	start := time.Now()
	answer, err := c.do(body)
	took := time.Since(start)
	if p.want == nil {
		p.want = bytes.Clone(answer)
	}
	if err == nil &&
		(!bytes.Equal(answer, p.want) || !bytes.Contains(answer, []byte(cmp.Or(p.nothing, "TASK_NOT_FOUND")))) {
		err = fmt.Errorf("%.300s and %.300s", answer, p.want)
	}
	return took, err
}

// unknownBeside returns an unused id that is next to another id in every index, so that both lookups read the same
// pages.
func unknownBeside(id string) string {
	u := uuid.MustParse(id)
	binary.BigEndian.PutUint64(u[8:], 0x8000000000000000|rand.Uint64()>>2)
	return u.String()
}

const signalFrom = 3.3 // standard deviations: happens by chance once in a thousand runs

func (p *probe) figure() figure {
	z := wilcoxon(p.differences)
	slices.Sort(p.took)
	detail := fmt.Sprintf("%d pairs, signed-rank; median difference %s µs of %s µs; "+
		"detects differences of at least %s µs",
		len(p.differences),
		number(median(p.differences)*1e6), number(quantile(p.took, 0.5).Seconds()*1e6),
		number(shown(p.differences)*1e6))
	name := "foreign against unknown tasks, " + p.name + ": signal in the time"
	if p.control {
		name = "unknown against unknown tasks, " + p.name + ": signal in the time"
	}
	return figure{Name: name, Value: math.Abs(z), Unit: "σ", Target: atMost(signalFrom), Detail: detail}
}

// shown returns the smallest difference that these pairs would have detected: the constant that, added to each
// centered pair, makes a signal.
func shown(differences []float64) float64 {
	m := median(differences)
	d := make([]float64, len(differences))
	low, high := 0.0, 1.0
	for range 40 {
		mid := (low + high) / 2
		for i, v := range differences {
			d[i] = v - m + mid
		}
		if wilcoxon(d) < signalFrom {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// wilcoxon returns the deviation of the signed ranks of paired differences from chance, in standard deviations. Ranks
// limit the effect of the few large differences that a busy machine causes.
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
		rank := float64(i+j+1) / 2 // equal values share their ranks
		for ; i < j; i++ {
			w += math.Copysign(rank, d[i])
		}
	}
	if n == 0 {
		return 0
	}
	return w / math.Sqrt(n*(n+1)*(2*n+1)/6)
}
