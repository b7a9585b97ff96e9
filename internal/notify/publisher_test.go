package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/backoff"
)

// wire stands for the database: it records what a Publisher sends, and when.
type wire struct {
	start time.Time

	mu    sync.Mutex
	lines []string      // guarded by mu; "<ms since start> <sorted keys>"
	fail  error         // guarded by mu
	delay time.Duration // guarded by mu
	log   bytes.Buffer  // written under the lock of its handler
}

func (w *wire) notify(ctx context.Context, payloads []string) error {
	at := time.Since(w.start).Milliseconds()
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := w.delay; d > 0 {
		w.mu.Unlock()
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
		w.mu.Lock()
	}
	if err := errors.Join(ctx.Err(), w.fail); err != nil {
		return err
	}
	var keys []string
	for _, p := range payloads {
		_, some, ok := parse(p)
		if !ok {
			return fmt.Errorf("unreadable payload %q", p)
		}
		keys = append(keys, some...)
	}
	slices.Sort(keys)
	w.lines = append(w.lines, fmt.Sprintf("%d %s", at, strings.Join(keys, " ")))
	return nil
}

// broken makes each flush fail with err until it is called with nil.
func (w *wire) broken(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = err
}

func (w *wire) slow(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = d
}

// sent returns what has been sent, once the Publisher has nothing more to do now.
func (w *wire) sent() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.lines)
}

func (w *wire) want(t *testing.T, want ...string) {
	t.Helper()
	if got := w.sent(); !slices.Equal(got, want) {
		t.Errorf("sent:\n got %q\nwant %q", got, want)
	}
}

// published runs test with a Publisher of 5 ms interval inside a bubble.
func published(t *testing.T, cfg PublisherConfig, test func(t *testing.T, p *Publisher, w *wire, stop func())) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{start: time.Now()}
		cfg.Replica = "r1"
		cfg.Notify = w.notify
		cfg.Log = slog.New(slog.NewTextHandler(&w.log, nil))
		p, err := NewPublisher(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		stopped := false
		stop := func() {
			if cancel(); !stopped {
				stopped = true
				if err := <-done; err != nil {
					t.Errorf("Run = %v, want nil", err)
				}
			}
		}
		defer stop()
		test(t, p, w, stop)
	})
}

const ms = time.Millisecond

func taskKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("task:0190a1b2-c3d4-7e5f-8a9b-%012d", i)
	}
	return keys
}

func TestFirstKeyIsSentImmediately(t *testing.T) {
	published(t, PublisherConfig{}, func(t *testing.T, p *Publisher, w *wire, _ func()) {
		for range 3 {
			time.Sleep(time.Second)
			p.Publish("a")
		}
		w.want(t, "1000 a", "2000 a", "3000 a")
	})
}

func TestOneFlushPerInterval(t *testing.T) {
	published(t, PublisherConfig{}, func(t *testing.T, p *Publisher, w *wire, _ func()) {
		p.Publish("a")
		synctest.Wait()
		for _, key := range []string{"b", "c", "b", "d", "e"} { // at 1, 2, 3, 4, 5 ms
			time.Sleep(ms)
			p.Publish(key)
		}
		time.Sleep(20 * ms)
		p.Publish("f")
		synctest.Wait()
		p.Publish("g")
		time.Sleep(20 * ms)
		// e was published in the instant of the second flush: it is in that or in the next.
		if len(w.sent()) == 5 {
			w.want(t, "0 a", "5 b c d", "10 e", "25 f", "30 g")
		} else {
			w.want(t, "0 a", "5 b c d e", "25 f", "30 g")
		}
	})
}

func TestSlowFlushesDoNotOverlap(t *testing.T) {
	published(t, PublisherConfig{}, func(t *testing.T, p *Publisher, w *wire, _ func()) {
		w.slow(12 * ms)
		for _, key := range []string{"a", "b", "c"} { // at 0, 4, 8 ms
			p.Publish(key)
			time.Sleep(4 * ms)
		}
		time.Sleep(100 * ms)
		w.want(t, "0 a", "12 b c")
	})
}

func TestManyKeysGoInOneStatement(t *testing.T) {
	published(t, PublisherConfig{}, func(t *testing.T, p *Publisher, w *wire, _ func()) {
		p.Publish(taskKeys(1000)...)
		if sent := w.sent(); len(sent) != 1 || len(strings.Fields(sent[0])) != 1001 {
			t.Errorf("%d statements, want one with 1000 keys", len(sent))
		}
		if got, want := p.Stats(), (PublisherStats{Flushes: 1, Payloads: 6}); got != want {
			t.Errorf("stats %+v, want %+v", got, want)
		}
	})
}

func TestFailedFlushIsRepeatedAndLoggedOnce(t *testing.T) {
	cfg := PublisherConfig{Backoff: backoff.Policy{Base: ms, Max: 50 * ms}}
	published(t, cfg, func(t *testing.T, p *Publisher, w *wire, _ func()) {
		w.broken(errors.New("database unreachable"))
		p.Publish("a")
		synctest.Wait()
		p.Publish("b", "a")
		time.Sleep(time.Second)
		w.want(t)
		failed := p.Stats().Failed
		if failed < 10 || failed > 200 {
			t.Errorf("%d tries in a second, want backoff between 5 and 50 ms", failed)
		}
		w.broken(nil)
		time.Sleep(50 * ms)
		if sent := w.sent(); len(sent) != 1 || !strings.HasSuffix(sent[0], " a b") {
			t.Errorf("sent %q, want a and b together", sent)
		}
		time.Sleep(time.Second)
		if n := len(w.sent()); n != 1 {
			t.Errorf("%d flushes, want one", n)
		}
		log := w.log.String()
		if strings.Count(log, "level=WARN") != 1 || strings.Count(log, "level=INFO") != 1 ||
			!strings.Contains(log, "database unreachable") {
			t.Errorf("log:\n%swant one warning and one all-clear", log)
		}
	})
}

func TestTooManyKeysBecomeWakeAll(t *testing.T) {
	published(t, PublisherConfig{MaxKeys: 3, Backoff: backoff.Policy{Base: ms, Max: ms}},
		func(t *testing.T, p *Publisher, w *wire, _ func()) {
			w.broken(errors.New("database unreachable"))
			p.Publish("a", "b", "c")
			time.Sleep(100*ms + ms/2) // between two retries
			p.Publish("d")            // kept with the three that failed: one too many
			time.Sleep(100 * ms)
			p.Publish("e", "f", "g", "h")
			p.mu.Lock()
			held := len(p.keys)
			p.mu.Unlock()
			if held > 3 {
				t.Errorf("%d keys are kept, want at most 3", held)
			}
			w.broken(nil)
			time.Sleep(100 * ms)
			p.Publish("i")
			sent := w.sent()
			if len(sent) != 2 || !strings.HasSuffix(sent[0], " *") || !strings.HasSuffix(sent[1], " i") {
				t.Errorf("sent %q, want wake all, then i", sent)
			}
			if n := p.Stats().Collapsed; n != 1 {
				t.Errorf("collapsed %d times, want 1", n)
			}
		})
}

func TestLastFlushOnStop(t *testing.T) {
	published(t, PublisherConfig{Interval: time.Hour}, func(t *testing.T, p *Publisher, w *wire, stop func()) {
		p.Publish("a")
		time.Sleep(ms)
		p.Publish("b", "", "c")
		time.Sleep(ms)
		stop()
		w.want(t, "0 a", "2 b c")
	})
}

func TestStopWaitsForTheFlushInProgress(t *testing.T) {
	published(t, PublisherConfig{}, func(t *testing.T, p *Publisher, w *wire, stop func()) {
		w.slow(100 * ms)
		p.Publish("a")
		time.Sleep(ms)
		p.Publish("b")
		stop()
		w.want(t, "0 a", "100 b")
	})
}

func TestStopIsBounded(t *testing.T) {
	published(t, PublisherConfig{Timeout: time.Second}, func(t *testing.T, p *Publisher, w *wire, stop func()) {
		w.slow(time.Hour)
		p.Publish("a")
		synctest.Wait()
		start := time.Now()
		stop()
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("stop took %v, want twice the timeout", took)
		}
		if log := w.log.String(); !strings.Contains(log, ErrTimeout.Error()) {
			t.Errorf("log %q does not name the timeout", log)
		}
	})
}

func TestEmptyPublishSendsNothing(t *testing.T) {
	published(t, PublisherConfig{}, func(t *testing.T, p *Publisher, w *wire, stop func()) {
		p.Publish()
		p.Publish("")
		time.Sleep(time.Second)
		stop()
		w.want(t)
	})
}

func TestPublisherConfigIsChecked(t *testing.T) {
	t.Parallel()
	notify := func(context.Context, []string) error { return nil }
	for _, cfg := range []PublisherConfig{
		{}, {Replica: "r1"}, {Notify: notify}, {Replica: strings.Repeat("x", 256), Notify: notify},
	} {
		if _, err := NewPublisher(cfg); err == nil {
			t.Errorf("config %q was accepted", cfg.Replica)
		}
	}
}

func BenchmarkPublish(b *testing.B) {
	p, err := NewPublisher(PublisherConfig{Replica: "r1", Notify: func(context.Context, []string) error { return nil }})
	if err != nil {
		b.Fatal(err)
	}
	keys := taskKeys(100) // as many as 5 ms bring at 20,000 a second
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		p.Publish(keys[n%len(keys)])
		if n++; n%len(keys) == 0 {
			p.flush(b.Context())
		}
	}
}
