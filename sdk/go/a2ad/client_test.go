package a2ad_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
)

const busy = `{"error": {"reason": "UNAVAILABLE", "message": "later"}}`

// Only a refusal of the server itself is one. Other answers are retried until the lease has expired.
func TestForeignAnswersAreRetried(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]struct {
		status int
		body   string
	}{
		"a page of a proxy":          {404, "<html>no such page</html>"},
		"a timeout of a proxy":       {408, ""},
		"a redirect":                 {302, ""},
		"a change of keys":           {401, `{"error": {"reason": "UNAUTHENTICATED", "message": "who?"}}`},
		"a refusal without a reason": {400, `{"error": {"message": "what?"}}`},
		"another form":               {200, `["under maintenance"]`},
		"no JSON":                    {200, "ok"},
		"a lost answer":              {-1, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t)
			s.answer = func(r request) (int, string) {
				if r.path != "claim" && r.n == 1 {
					return answer.status, answer.body
				}
				return 0, ""
			}
			_, stop := s.work(a2ad.Options{}, func(ctx context.Context, t *a2ad.Task) (any, error) {
				if err := t.Status(ctx, "x"); err != nil {
					return nil, fmt.Errorf("Status: %w", err)
				}
				<-time.After(15 * time.Second) // until the second heartbeat
				return nil, a2ad.Retry("", 0)
			})
			s.add("t", nil)
			time.Sleep(20 * time.Second)
			stop()
			events, beats, ends := s.sent("events"), s.sent("heartbeat"), s.sent("finish")
			if len(events) != 2 || events[0].body != events[1].body || len(beats) != 2 || len(ends) != 2 {
				t.Errorf("%s: %d events, %d heartbeats, %d ends, want two of each",
					name, len(events), len(beats), len(ends))
			}
		})
	}
}

func TestAnswerWithoutItsMembersIsRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.answer = func(r request) (int, string) {
			if strings.HasSuffix(r.path, "events") && r.n == 1 {
				return 200, `{"status": "under maintenance"}`
			}
			return 0, ""
		}
		_, stop := s.work(a2ad.Options{}, func(context.Context, *a2ad.Task) (any, error) { return "done", nil })
		s.add("t", nil)
		time.Sleep(time.Minute)
		stop()
		if n := len(s.sent("events")); n != 2 {
			t.Errorf("%d requests, want 2", n)
		}
	})
}

// To follow a redirect could send the key elsewhere, and lose the body.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.header = http.Header{"Location": {"http://proxy/login"}}
		s.answer = func(r request) (int, string) {
			if r.path == "claim" && r.n == 1 {
				return 302, ""
			}
			return 0, ""
		}
		_, stop := s.work(a2ad.Options{}, func(context.Context, *a2ad.Task) (any, error) { return "done", nil })
		s.add("t", nil)
		time.Sleep(time.Minute)
		stop()
		if len(s.sent("login")) != 0 || len(s.sent("events")) != 1 {
			t.Errorf("%d requests of the login page, %d events", len(s.sent("login")), len(s.sent("events")))
		}
	})
}

// Each try of a request gets a third of the lease. When the lease must have expired, the run is lost.
func TestRequestsWithoutAnAnswerLoseTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.answer = func(r request) (int, string) {
			if r.path != "claim" {
				<-r.ctx.Done()
				return -1, ""
			}
			return 0, ""
		}
		var log bytes.Buffer
		_, stop := s.work(a2ad.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))},
			func(ctx context.Context, t *a2ad.Task) (any, error) { return "done", t.Status(ctx, "x") })
		s.add("t", nil)
		time.Sleep(time.Minute)
		stop()
		events := s.sent("events")
		if len(events) != 3 || events[1].at < 10*time.Second || events[1].at > 11*time.Second {
			t.Errorf("the requests are %v, want three in 30 s", events)
		}
		if len(s.sent("finish")) != 0 || !strings.Contains(log.String(), "outcome=lost") {
			t.Errorf("the run was not lost:\n%s", log.String())
		}
	})
}

// After a loss, another worker has the task. So nothing more is sent.
func TestLostLeaseEndsTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.answer = func(r request) (int, string) {
			if strings.HasSuffix(r.path, "events") {
				return 409, `{"error": {"reason": "LEASE_LOST", "message": "gone"}}`
			}
			return 0, ""
		}
		_, stop := s.work(a2ad.Options{}, func(ctx context.Context, t *a2ad.Task) (any, error) {
			_ = t.Status(ctx, "x")
			_ = t.Status(ctx, "y")
			return "done", nil
		})
		s.add("t", nil)
		synctest.Wait()
		stop()
		if n := len(s.sent("runs/t")); n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
	})
}

func TestRetryAfterIsFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.header = http.Header{"Retry-After": {"7"}}
		s.answer = func(r request) (int, string) {
			if r.n == 1 && (r.path == "claim" || strings.HasSuffix(r.path, "events")) {
				return 503, busy
			}
			return 0, ""
		}
		_, stop := s.work(a2ad.Options{}, func(context.Context, *a2ad.Task) (any, error) { return "done", nil })
		s.add("t", nil)
		time.Sleep(time.Minute)
		stop()
		for _, path := range []string{"claim", "events"} {
			if got := s.sent(path); got[1].at-got[0].at != 7*time.Second {
				t.Errorf("%s was sent again after %s, want 7s", path, got[1].at-got[0].at)
			}
		}
	})
}

func TestPauseOfZeroSecondsIsLengthened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.header = http.Header{"Retry-After": {"0"}}
		s.answer = func(r request) (int, string) {
			if r.n <= 3 && strings.HasSuffix(r.path, "events") {
				return 503, busy
			}
			return 0, ""
		}
		_, stop := s.work(a2ad.Options{}, func(context.Context, *a2ad.Task) (any, error) { return "done", nil })
		s.add("t", nil)
		time.Sleep(time.Minute)
		stop()
		if got := s.sent("events"); len(got) != 4 || got[3].at == got[0].at {
			t.Errorf("the requests were sent without a pause: %+v", got)
		}
	})
}

func TestFailedClaimsSayWhatToCheck(t *testing.T) {
	t.Parallel()
	for want, answer := range map[string]struct {
		status int
		body   string
	}{
		"check A2AD_API_KEY":                     {401, ""},
		"has the scope worker":                   {403, ""},
		"is the URL of an a2ad server":           {404, "no such page"},
		`add an agent file to the server`:        {404, `{"error": {"reason": "NOT_FOUND", "message": "no agent"}}`},
		"not that of an a2ad server: it has no ": {200, "{}"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t)
			s.answer = func(request) (int, string) { return answer.status, answer.body }
			w, stop := s.work(a2ad.Options{}, func(context.Context, *a2ad.Task) (any, error) { return nil, nil })
			synctest.Wait()
			if got := w.Status(); got.Ready || !strings.Contains(got.Agents["x"].Error, want) {
				t.Errorf("the status is %+v, want %q", got, want)
			}
			stop()
		})
	}
}

// One task that cannot be read costs the others nothing.
func TestUnreadableTaskIsSkipped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.answer = func(r request) (int, string) {
			if r.path == "claim" && r.n == 1 {
				return 200, `{"runs": [{"taskId": "bad", "epoch": "x"}, {"taskId": "empty", "epoch": 1},
					{"taskId": "good", "epoch": 1, "messages": [{"parts": []}]}]}`
			}
			return 0, ""
		}
		_, stop := s.work(a2ad.Options{}, func(context.Context, *a2ad.Task) (any, error) { return "done", nil })
		synctest.Wait()
		stop()
		if n := len(s.sent("runs/good/1/events")); n != 1 {
			t.Errorf("%d requests of the good task, want 1", n)
		}
	})
}

func TestHealthEndpoint(t *testing.T) {
	t.Parallel()
	w := a2ad.NewWorker(a2ad.Options{Name: "w"})
	w.Agent("x", func(context.Context, *a2ad.Task) (any, error) { return nil, nil })
	for path, want := range map[string]string{
		"/livez":  "200 ok",
		"/readyz": "503 not ready",
		"/status": `200 {"worker":"w","ready":false,"stopping":true,"runs":0,"lastClaim":null,"agents":{"x":{` +
			`"concurrency":8,"running":0,"reachable":false,"lastClaim":null}}}`,
	} {
		rec := httptest.NewRecorder()
		w.Health().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
		if got := fmt.Sprint(rec.Code, " ", strings.TrimSpace(rec.Body.String())); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	w = a2ad.NewWorker(a2ad.Options{Health: "nowhere"})
	w.Agent("x", func(context.Context, *a2ad.Task) (any, error) { return nil, nil })
	if err := w.Serve(t.Context()); err == nil || !strings.Contains(err.Error(), "health endpoint") {
		t.Errorf("Serve = %v", err)
	}
}
