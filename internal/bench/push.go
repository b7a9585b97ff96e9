package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// pushSettings let the server call the sinks.
var pushSettings = []string{"A2AD_PUSH_ALLOW_HTTP=on", "A2AD_PUSH_ALLOW_CIDRS=127.0.0.0/8"}

// pushSink is a receiver of webhooks that answers at once, or hangs.
type pushSink struct {
	*httptest.Server
	hang bool

	mu   sync.Mutex
	came map[string]time.Time // guarded by mu; webhook-id to its first arrival
}

func newPushSink(hang bool) *pushSink {
	s := &pushSink{hang: hang, came: map[string]time.Time{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		now := time.Now()
		if s.hang {
			_, _ = io.Copy(io.Discard, r.Body) // so that the server notices when its client disconnects
			<-r.Context().Done()
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if id := r.Header.Get("Webhook-Id"); s.came[id].IsZero() {
			s.came[id] = now
		}
	}))
	return s
}

func (s *pushSink) close() {
	s.CloseClientConnections()
	s.Close()
}

func (s *pushSink) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.came)
}

// await waits until n notifications have arrived.
func (s *pushSink) await(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errUndelivered)
	defer cancel()
	for s.count() < n {
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d came: %w", s.count(), n, context.Cause(ctx))
		}
	}
	return nil
}

var errUndelivered = errors.New("webhooks were not delivered in time")

// push measures webhooks: their rate, their delay, and their delay while other destinations hang.
func (b *bench) push(ctx context.Context) error {
	var rates, costs []float64
	for range b.number(3, 1) {
		rate, cost, err := b.pushRate(ctx, b.number(6000, 2000))
		if err != nil {
			return err
		}
		rates, costs = append(rates, rate), append(costs, cost)
	}
	f := figure{Name: "webhooks to one sink: rate", Unit: "/s", Target: atLeast(800).onQuiet(),
		Aim: atLeast(3000)}.series(rates)
	f.Detail = "one event each, queued beforehand; 8 to 32 requests at once, as the default is"
	b.report.add(f)
	f = figure{Name: "CPU of the server and PostgreSQL per webhook", Unit: "ms"}.series(costs)
	f.Detail = "of the same deliveries; the sink is in another process"
	b.report.add(f)
	if err := b.pushDelay(ctx); err != nil {
		return err
	}
	return b.pushFree(ctx)
}

// pushFree compares the life of a task without webhooks among many tasks with webhooks and among none.
func (b *bench) pushFree(ctx context.Context) error {
	var life [2]func(ctx context.Context, n int64) error
	for i, hookList := range []int{b.number(20_000, 2000), 0} {
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
		if err := fillPush(ctx, s, hookList, "http://127.0.0.1:1"); err != nil {
			return err
		}
		// Only the webhooks are due; no task may wait for a worker.
		for _, statement := range []string{"DELETE FROM a2a.task_ready", "VACUUM ANALYZE"} {
			if err := b.exec(ctx, url, statement); err != nil {
				return err
			}
		}
		claims := s.Tasks.NewClaimer()
		life[i] = func(ctx context.Context, n int64) error { return liveWithout(ctx, s, claims, n) }
	}
	const lives = 200
	var ratios, alone []float64
	for round := range b.number(9, 5) + 1 {
		var took [2][]float64
		for n := range lives {
			for k := range life {
				i := (k + n) % 2 // the second one pays for leftovers of the first
				start := time.Now()
				if err := life[i](ctx, int64(n)); err != nil {
					return err
				}
				took[i] = append(took[i], ms(time.Since(start)))
			}
		}
		if round > 0 { // plans, caches and connections warm up
			ratios, alone = append(ratios, median(took[0])/median(took[1])), append(alone, median(took[1]))
		}
	}
	f := figure{Name: "life of a task without webhooks: beside many / beside none", Unit: "×",
		Target: atMost(1.05).onQuiet()}.series(ratios)
	f.Baseline = fmt.Sprintf("beside none: %s ms", number(median(alone)))
	f.Detail = fmt.Sprintf("5 events each; %d rounds of %d each, in turns; medians; %d webhooks of other tasks are due",
		len(ratios), lives, b.number(20_000, 2000))
	b.report.add(f)
	return nil
}

// liveWithout runs a task without webhooks through its life of five events.
func liveWithout(ctx context.Context, s *store.Store, claims *tasks.Claimer, n int64) error {
	if _, err := s.Tasks.Submit(ctx, submission(n)); err != nil {
		return err
	}
	leases, err := claims.Claim(ctx, benchAgent, 1, time.Hour, 0)
	if err != nil {
		return err
	}
	if len(leases) != 1 {
		return errors.New("void: the task could not be claimed")
	}
	for _, e := range []a2a.Event{
		&a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a", Parts: []a2a.Part{{Kind: a2a.PartText, Text: "hello"}}}},
		&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking}},
		&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted}},
	} {
		if _, err := s.Tasks.Append(ctx, &leases[0], tasks.Batch{Events: []a2a.Event{e}}); err != nil {
			return err
		}
	}
	return nil
}

// webhook returns a webhook of a sink, without secrets. The sink's URL has a port and no path.
func webhook(sink string) *webhooks.NewWebhook {
	return &webhooks.NewWebhook{
		ConfigID: "default", URL: sink + "/hook", Origin: sink, Version: a2a.PushV03,
		Seal: func(a2a.ID) (token, credentials []byte, err error) { return nil, nil, nil },
	}
}

// fillPush submits tasks with a webhook.
func fillPush(ctx context.Context, s *store.Store, taskList int, sink string) error {
	var wg sync.WaitGroup
	errs := make([]error, senders)
	for w := range senders {
		wg.Go(func() {
			for i := w; i < taskList && errs[w] == nil; i += senders {
				in := submission(int64(i))
				in.Push = webhook(sink)
				_, errs[w] = s.Tasks.Submit(ctx, in)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// pushRate fills a queue of webhooks and measures how fast an otherwise idle server delivers it, and the CPU time that
// the server and PostgreSQL need for each, in milliseconds.
func (b *bench) pushRate(ctx context.Context, taskList int) (perSecond, cost float64, err error) {
	url, drop, err := b.database(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer drop()
	sink := newPushSink(false)
	defer sink.close()
	st, err := b.store(ctx, url)
	if err != nil {
		return 0, 0, err
	}
	err = fillPush(ctx, st, taskList, sink.URL)
	st.Close()
	if err != nil {
		return 0, 0, err
	}
	s, err := b.serve(ctx, "bench-push", url, append(pushSettings, "A2AD_WORKERS=0")...)
	if err != nil {
		return 0, 0, err
	}
	defer s.stop()
	before, err := b.usage(s)
	if err != nil {
		return 0, 0, err
	}
	start, from := time.Now(), sink.count()
	profiled := make(chan error, 1)
	go func() { profiled <- b.profile(ctx, s, "push", 3*time.Second) }()
	if err := sink.await(ctx, taskList); err != nil {
		return 0, 0, err
	}
	n, took := float64(taskList-from), time.Since(start)
	after, err := b.usage(s)
	if err != nil {
		return 0, 0, err
	}
	used := after.minus(before)
	return n / took.Seconds(), ms(used.server+used.postgres) / n, <-profiled
}

// pushDelay measures the time from the commit of an event to its arrival, first on an idle server and then while ten
// other destinations hang.
func (b *bench) pushDelay(ctx context.Context) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	key, err := b.key(ctx, url)
	if err != nil {
		return err
	}
	s, err := b.serve(ctx, "bench-push-delay", url, append(pushSettings, "A2AD_WORKERS=0")...)
	if err != nil {
		return err
	}
	defer s.stop()
	if _, err := b.paced(ctx, s, url, key, 2*time.Second); err != nil { // warm up
		return err
	}
	span := b.span(20*time.Second, 5*time.Second)
	alone, err := b.paced(ctx, s, url, key, span)
	if err != nil {
		return err
	}
	p99 := ms(quantile(alone, 0.99))
	b.report.add(figure{Name: "commit to the webhook's request: p50", Value: ms(quantile(alone, 0.50)), Unit: "ms"})
	b.report.add(figure{
		Name: "commit to the webhook's request: p99", Value: p99, Unit: "ms", Target: atMost(60).onQuiet(),
		Detail: fmt.Sprintf("%d tasks at %d/s; worst %s ms", len(alone), pacedRate, number(ms(alone[len(alone)-1]))),
	})
	for range 10 {
		hung := newPushSink(true)
		defer hung.close()
		for range 50 {
			if err := post(ctx, s, key, hung.URL); err != nil {
				return err
			}
		}
	}
	beside, err := b.paced(ctx, s, url, key, span)
	if err != nil {
		return err
	}
	b.report.add(figure{
		Name: "the same p99 while 10 destinations hang", Value: ms(quantile(beside, 0.99)) / p99, Unit: "×",
		Target: atMost(2).onQuiet(),
		Detail: fmt.Sprintf("%s ms; 500 webhooks wait for the ten", number(ms(quantile(beside, 0.99)))),
	})
	return nil
}

const pacedRate = 50

// post sends a message with a webhook.
func post(ctx context.Context, s *server, key, hook string) error {
	body := `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message","messageId":"m",` +
		`"role":"user","parts":[` + textPart("hello") +
		`]},"configuration":{"blocking":false,"pushNotificationConfig":{"url":"` + hook + `/hook"}}}}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && !bytes.Contains(answer, []byte(`"result"`)) {
		err = fmt.Errorf("message/send answered %s", answer)
	}
	return err
}

// paced sends messages with a webhook for a time. It returns, sorted, the time from the commit of each event to its
// arrival.
func (b *bench) paced(ctx context.Context, s *server, url, key string, span time.Duration) ([]time.Duration, error) {
	sink := newPushSink(false)
	defer sink.close()
	n := int(span.Seconds() * pacedRate)
	tick := time.NewTicker(time.Second / pacedRate)
	defer tick.Stop()
	for range n {
		if err := post(ctx, s, key, sink.URL); err != nil {
			return nil, err
		}
		<-tick.C
	}
	if err := sink.await(ctx, n); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx,
		`SELECT p.id::text, e.seq, e.committed_at FROM a2a.push_configs p JOIN a2a.task_events e
			ON e.task_id = p.task_id WHERE p.origin = $1`, sink.URL)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var delays []time.Duration
	for rows.Next() {
		var id string
		var seq int64
		var at time.Time
		if err := rows.Scan(&id, &seq, &at); err != nil {
			return nil, err
		}
		came, ok := sink.came["msg_"+id+"_"+strconv.FormatInt(seq, 10)]
		if !ok {
			return nil, fmt.Errorf("void: event %d of webhook %s did not arrive", seq, id)
		}
		delays = append(delays, came.Sub(at))
	}
	slices.Sort(delays)
	return delays, rows.Err()
}
