package a2ad_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
)

func TestWriteWaitsForASlowServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.answer = func(r request) (int, string) {
			if strings.HasSuffix(r.path, "events") {
				time.Sleep(10 * time.Second)
			}
			return 0, ""
		}
		took := make(chan time.Duration, 1)
		_, stop := s.work(a2ad.Options{}, func(ctx context.Context, t *a2ad.Task) (any, error) {
			began := time.Now()
			for range 64 {
				if err := t.Write(ctx, strings.Repeat("x", 16<<10)); err != nil {
					return nil, err
				}
			}
			took <- time.Since(began)
			return nil, nil
		})
		s.add("t", nil)
		if got := <-took; got < 30*time.Second || got > 60*time.Second {
			t.Errorf("writing a mebibyte took %s, want some requests of 10 s", got)
		}
		stop()
	})
}

func TestHeartbeatsKeepTheLeaseAndSeeCancels(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status   int
		body     string
		is       error
		finished int
	}{
		"canceled": {200, `{"cancelRequested": true}`, a2ad.ErrCanceled, 0},
		"lost":     {409, `{"error": {"reason": "LEASE_LOST", "message": "gone"}}`, a2ad.ErrStopped, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t)
			s.answer = func(r request) (int, string) {
				if strings.HasSuffix(r.path, "heartbeat") && r.n == 4 {
					return c.status, c.body
				}
				return 0, ""
			}
			causes := make(chan error, 1)
			_, stop := s.work(a2ad.Options{}, func(ctx context.Context, t *a2ad.Task) (any, error) {
				<-ctx.Done()
				causes <- errors.Join(context.Cause(ctx))
				return nil, t.Write(ctx, "late")
			})
			s.add("t", nil)
			cause := <-causes
			synctest.Wait()
			stop()
			beats := s.sent("heartbeat")
			if !errors.Is(cause, c.is) || errors.Is(cause, a2ad.ErrCanceled) != (name == "canceled") {
				t.Errorf("%s: the cause is %v", name, cause)
			}
			if len(beats) != 4 || beats[3].at != 40*time.Second {
				t.Errorf("%s: %d heartbeats, want 4 in 40 s", name, len(beats))
			}
			if n := len(s.sent("events")) + len(s.sent("finish")); n != 0 {
				t.Errorf("%s: %d requests after the end", name, n)
			}
		})
	}
}

func TestWorkerReconnects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.answer = func(r request) (int, string) {
			if r.path == "claim" && r.n <= 10 {
				return -1, ""
			}
			return 0, ""
		}
		done := make(chan struct{})
		w, stop := s.work(a2ad.Options{}, func(context.Context, *a2ad.Task) (any, error) {
			close(done)
			return nil, nil
		})
		health := func() string {
			rec := httptest.NewRecorder()
			w.Health().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/readyz", nil))
			return fmt.Sprint(rec.Code, " ", strings.TrimSpace(rec.Body.String()))
		}
		synctest.Wait()
		if got := health(); !strings.HasPrefix(got, "503 not ready\nx: ") || !strings.Contains(got, "refused") {
			t.Errorf("while claims fail: %s", got)
		}
		s.add("t", nil)
		<-done
		synctest.Wait()
		if got := health(); got != "200 ok" {
			t.Errorf("once a claim was answered: %s", got)
		}
		stop()
		if got := health(); got != "503 not ready" {
			t.Errorf("after the end: %s", got)
		}
		claims := s.sent("claim")
		for i := range 9 {
			limit := min(400*time.Millisecond<<i, 10*time.Second)
			if pause := claims[i+1].at - claims[i].at; pause < limit/2 || pause > limit {
				t.Errorf("the pause after failure %d is %s, want %s to %s", i+1, pause, limit/2, limit)
			}
		}
	})
}

func TestReportsAreRepeatedWithTheSameBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.answer = func(r request) (int, string) {
			switch {
			case !strings.HasSuffix(r.path, "events"), r.n > 3:
				return 0, ""
			case r.n == 2:
				return 503, `{"error": {"reason": "UNAVAILABLE", "message": "later"}}`
			}
			return -1, ""
		}
		ended := make(chan struct{})
		_, stop := s.work(a2ad.Options{}, func(ctx context.Context, t *a2ad.Task) (any, error) {
			defer close(ended)
			return nil, t.Status(ctx, "hello")
		})
		s.add("t", nil)
		<-ended
		stop()
		got := s.sent("events")
		if len(got) != 5 || got[0].body != got[1].body || got[0].body != got[3].body || got[3].body == got[4].body {
			t.Errorf("the requests are %+v, want one four times, and the end of the task", got)
		}
	})
}

func TestStopReleasesWhatDoesNotEndInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		started, deaf := make(chan string, 3), make(chan struct{})
		_, stop := s.work(a2ad.Options{Grace: 5 * time.Second}, func(ctx context.Context, t *a2ad.Task) (any, error) {
			started <- t.ID()
			switch t.ID() {
			case "short":
				time.Sleep(3 * time.Second)
			case "long":
				<-ctx.Done()
				return nil, ctx.Err()
			case "deaf":
				defer close(deaf)
				time.Sleep(time.Minute) // it does not look at its context
			}
			return "done", nil
		})
		for _, task := range []string{"short", "long", "deaf"} {
			s.add(task, nil)
			<-started
		}
		stop() // which does not wait for it
		<-deaf
		var got []string
		for _, r := range append(s.sent("finish"), s.sent("events")...) {
			got = append(got, fmt.Sprint(r.path, r.at))
			if strings.HasSuffix(r.path, "finish") && r.body != `{"outcome":"release"}` {
				t.Errorf("finish: %s", r.body)
			}
		}
		slices.Sort(got)
		want := []string{"runs/deaf/1/finish5s", "runs/long/1/finish5s", "runs/short/1/events3s"}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		var mu sync.Mutex
		now, most, all := 0, 0, 0
		_, stop := s.work(a2ad.Options{}, func(context.Context, *a2ad.Task) (any, error) {
			mu.Lock()
			now++
			most, all = max(most, now), all+1
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return nil, nil
		}, a2ad.Concurrency(3))
		for i := range 12 {
			s.add(fmt.Sprint(i), nil)
		}
		time.Sleep(10 * time.Second)
		stop()
		if most != 3 || all != 12 {
			t.Errorf("%d at once of %d, want 3 of 12", most, all)
		}
	})
}

func TestStepsThatTheClaimLacksAreRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		step := func(n int) string {
			return fmt.Sprintf(`{"kind": "step", "key": "a#%d", "name": "a", "result": %d, `+
				`"endedAt": "2026-01-01T00:00:00Z"}`, n, n)
		}
		s.answer = func(r request) (int, string) {
			if strings.HasSuffix(r.path, "steps?after=1") {
				return 200, `{"steps": [` + step(2) + `, ` + step(3) + `]}`
			}
			return 0, ""
		}
		sums := make(chan int, 1)
		_, stop := s.work(a2ad.Options{}, func(ctx context.Context, t *a2ad.Task) (any, error) {
			sum := 0
			for range 4 {
				n, err := a2ad.Step(ctx, t, "a", func(context.Context) (int, error) { return 100, nil })
				if err != nil {
					return nil, err
				}
				sum += n
			}
			sums <- sum
			return nil, nil
		})
		s.add("t", map[string]any{"stepCount": 3, "steps": []any{json.RawMessage(step(1))}})
		if got := <-sums; got != 106 {
			t.Errorf("the sum is %d, want 1+2+3 and one new step", got)
		}
		stop()
	})
}

// A run that cannot be read costs the worker nothing else.
func TestRunWithANullStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		done := make(chan string, 2)
		_, stop := s.work(a2ad.Options{}, func(_ context.Context, t *a2ad.Task) (any, error) {
			done <- t.ID()
			return nil, nil
		})
		s.add("wrong", map[string]any{"steps": []any{nil}})
		s.add("right", nil)
		if got := <-done; got != "right" {
			t.Errorf("%q ran", got)
		}
		stop()
	})
}

func TestTrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		type key struct{}
		var mu sync.Mutex
		var spans []string
		trace := func(ctx context.Context, span a2ad.Span) (context.Context, func(a2ad.SpanEnd)) {
			parent, _ := ctx.Value(key{}).(string)
			return context.WithValue(ctx, key{}, span.Name), func(e a2ad.SpanEnd) {
				mu.Lock()
				defer mu.Unlock()
				spans = append(spans, fmt.Sprint(span.Kind, " ", parent, "/", span.Name, " ", span.Key, " ",
					span.Traceparent, " ", e.Err, " ", len(e.Usage)))
			}
		}
		ended := make(chan struct{})
		_, stop := s.work(a2ad.Options{Trace: trace}, func(ctx context.Context, t *a2ad.Task) (any, error) {
			defer close(ended)
			model := func(ctx context.Context) error {
				return t.Usage(ctx, a2ad.Usage{Model: "m", InputTokens: 3})
			}
			breaks := func(context.Context) error { return errors.New("broken") }
			return nil, errors.Join(a2ad.Do(ctx, t, "model", model), a2ad.Do(ctx, t, "tool", breaks))
		})
		s.add("t", map[string]any{"traceparent": "00-1-2-01"})
		<-ended
		stop()
		want := []string{
			"step x/model model#1 00-1-2-01 <nil> 1", "step x/tool tool#1 00-1-2-01 tool: broken 0",
			"invoke_agent /x  00-1-2-01 tool: broken 0",
		}
		if !slices.Equal(spans, want) {
			t.Errorf("the spans are\n%s\nwant\n%s", strings.Join(spans, "\n"), strings.Join(want, "\n"))
		}
	})
}

// What must be stored together is in one request, however large it is.
func TestUsageIsInTheRequestOfItsStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		ended := make(chan struct{})
		_, stop := s.work(a2ad.Options{}, func(ctx context.Context, t *a2ad.Task) (any, error) {
			defer close(ended)
			return a2ad.Step(ctx, t, "model", func(ctx context.Context) (string, error) {
				err := errors.Join(t.Write(ctx, "first"), t.Write(ctx, strings.Repeat("y", 20<<10)),
					t.Usage(ctx, a2ad.Usage{Model: "m", OutputTokens: 7}))
				return strings.Repeat("x", 1<<20-100), err
			})
		})
		s.add("t", nil)
		<-ended
		stop()
		for _, r := range s.sent("events") {
			record := strings.Contains(r.body, `"result":"xxx`)
			if strings.Contains(r.body, `{"usage":`) != record {
				t.Errorf("usage and record are apart: %.300s", r.body)
			}
		}
		if !strings.Contains(fmt.Sprint(s.sent("events")), `{"usage":{"model":"m","outputTokens":7}}`) {
			t.Error("the usage was not sent")
		}
	})
}
