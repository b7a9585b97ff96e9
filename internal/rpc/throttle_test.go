package rpc_test

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/throttle"
)

// slow is a rate that returns a token once in 100 seconds.
func slow(burst int) throttle.Rate { return throttle.Rate{PerSecond: 0.01, Burst: burst} }

// refusal returns the error of an answer, which every binding writes in its own form.
func refusal(t *testing.T, as teller, op *operation) (status string, header http.Header, body string) {
	t.Helper()
	got := as.tell(t, op, false)
	status, rest, _ := strings.Cut(got.text, "\n")
	header = http.Header{}
	for line := range strings.Lines(rest) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && !strings.HasPrefix(line, "{") {
			header.Add(name, value)
		}
	}
	return status, header, strings.TrimSpace(got.raw)
}

// TestOwnerLimitsOverEveryBinding exceeds each limit of an owner once.
func TestOwnerLimitsOverEveryBinding(t *testing.T) {
	t.Parallel()
	const (
		info = `[{"@type":"type.googleapis.com/google.rpc.ErrorInfo",` +
			`"reason":"RATE_LIMITED","domain":"a2a-protocol.org"}]`
		status = `"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"too many reads","details":` + info + `}`
		fault  = `"code":-32603,"message":"too many reads"`
		old    = `{` + fault + `,"data":{"reason":"RATE_LIMITED"},"type":"InternalError",` + status + `}`
	)
	bodies := map[string]string{
		"1.0 JSON-RPC":    `{"jsonrpc":"2.0","id":"x","error":{` + fault + `,"data":` + info + `}}`,
		"0.3 JSON-RPC":    `{"jsonrpc":"2.0","id":"x","error":{` + fault + `,"data":{"reason":"RATE_LIMITED"}}}`,
		"1.0 REST":        `{` + status + `}`,
		"0.3 REST":        old,
		"0.3 REST, proto": old,
		"1.0 gRPC":        `ResourceExhausted too many reads`,
		"0.3 gRPC":        `ResourceExhausted too many reads`,
	}
	for binding, body := range bodies {
		t.Run(binding, func(t *testing.T) {
			t.Parallel()
			m := newMatrix(t, func(_ *engine.Config, c *rpc.Config) {
				c.Limits = throttle.Limits{Reads: slow(5), Sends: slow(4), Streams: slow(3), PushWrites: slow(2)}
			})
			as := m.tellers()[binding]
			x := m.make(t, as, "owner") // a message, a stream, a webhook and a list
			for _, tt := range []struct {
				left   int
				op     operation
				bucket string
				window int
			}{
				{4, operation{name: "GetTask", task: x.task}, "reads", 500},
				{2, operation{name: "SubscribeToTask", task: x.task, lastID: x.event}, "streams", 300},
				{1, operation{name: "DeleteTaskPushNotificationConfig", task: x.task, config: x.config},
					"push-writes", 200},
				{2, operation{name: "SendMessage", script: `{"op":"complete"}`}, "sends", 400},
			} {
				tt.op.apiKey = m.keys["owner"]
				for i := range tt.left {
					if got := as.tell(t, &tt.op, true); got.failed {
						t.Fatalf("%s %d of %d: %s", tt.op.name, i+1, tt.left, got.text)
					}
				}
				status, h, got := refusal(t, as, &tt.op)
				wait, err := strconv.Atoi(h.Get("Retry-After"))
				if status != "429" || err != nil || wait < 90 || wait > 100 {
					t.Errorf("%s above the limit: %s, Retry-After %q: %s",
						tt.op.name, status, h.Get("Retry-After"), got)
				}
				if h.Get("Ratelimit-Policy") != fmt.Sprintf(`"%s";q=%d;w=%d`, tt.bucket, tt.window/100, tt.window) ||
					h.Get("Ratelimit") != fmt.Sprintf(`"%s";r=0;t=%d`, tt.bucket, wait) {
					t.Errorf("%s: %v", tt.op.name, h)
				}
				if tt.bucket == "reads" && got != body &&
					(!strings.HasSuffix(binding, "gRPC") || !strings.HasPrefix(got, body)) {
					t.Errorf("got\n%s\nwant\n%s", got, body)
				}
			}
			// Other owners have their own limits.
			for _, who := range []string{"other user", "other tenant"} {
				op := operation{name: "SendMessage", script: `{"op":"complete"}`, apiKey: m.keys[who]}
				if got := as.tell(t, &op, false); got.failed {
					t.Errorf("%s: %s", who, got.text)
				}
			}
			// A refused stream does not count as a message either.
			op := operation{name: "SendStreamingMessage", script: `{"op":"complete"}`, apiKey: m.keys["other user"]}
			for range 3 {
				if got := as.tell(t, &op, false); got.failed {
					t.Fatal(got.text)
				}
			}
			if got := as.tell(t, &op, false); !strings.Contains(got.raw, "too many") {
				t.Errorf("%s", got.text)
			}
		})
	}
}

// signIn sends a request with a credential, as if a proxy had passed it on.
func (m *matrix) signIn(t *testing.T, key string, forwarded ...string) (int, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, m.URL+"/tasks", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("A2A-Version", "1.0")
	if key != "" {
		req.Header.Set("X-API-Key", key)
	}
	for _, f := range forwarded {
		req.Header.Add("X-Forwarded-For", f)
	}
	resp, err := m.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header
}

func (m *matrix) wantSignIns(t *testing.T, what, key string, forwarded string, want ...int) {
	t.Helper()
	var got []int
	for range want {
		status, h := m.signIn(t, key, forwarded)
		if status == 429 && (h.Get("Retry-After") == "" ||
			!strings.HasPrefix(h.Get("RateLimit"), `"sign-ins";r=0;t=`)) {
			t.Errorf("%s: %v", what, h)
		}
		got = append(got, status)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// TestSignInLimitPerAddress checks the configuration of the server: the proxies it trusts, and the
// headers of a refusal.
func TestSignInLimitPerAddress(t *testing.T) {
	t.Parallel()
	m := newMatrix(t, func(_ *engine.Config, c *rpc.Config) {
		c.Limits.SignIns = slow(3)
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	good, bad := m.keys["owner"], m.keys["unknown key"]
	const a, b = "192.0.2.1", "192.0.2.2"
	m.wantSignIns(t, "a good key", good, a, 200)
	m.wantSignIns(t, "no key", "", a, 401, 401, 401, 401, 401)
	m.wantSignIns(t, "guesses", bad, a, 401, 401, 401, 429, 429)
	m.wantSignIns(t, "a malformed key", "hunter2", a, 429)
	m.wantSignIns(t, "a key accepted before", good, a, 200, 200)
	m.wantSignIns(t, "a good key new to this address", m.keys["other user"], a, 200)
	m.wantSignIns(t, "another address", bad, b, 401)
}

func TestSignInLimitIgnoresForwardedForWithoutTrustedProxies(t *testing.T) {
	t.Parallel()
	m := newMatrix(t, func(_ *engine.Config, c *rpc.Config) { c.Limits.SignIns = slow(3) })
	var got []int
	for i := range 5 {
		status, _ := m.signIn(t, m.keys["unknown key"], fmt.Sprintf("192.0.2.%d", i))
		got = append(got, status)
	}
	if want := []int{401, 401, 401, 429, 429}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAnonymousCallersAreNotLimited(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, func(_ *engine.Config, c *rpc.Config) {
		c.Authenticator = auth.Anonymous{}
		c.Limits = throttle.Limits{Reads: slow(1), SignIns: slow(1)}
	})
	op := operation{name: "ListTasks", size: "1", apiKey: "whatever"}
	for range 5 {
		if got := (overRPC{s, dialects[1]}).tell(t, &op, false); got.failed {
			t.Error(got.text)
		}
	}
}

func TestTasksInFlightAreBoundedPerOwner(t *testing.T) {
	t.Parallel()
	clock := newClock()
	m := newMatrix(t, func(e *engine.Config, _ *rpc.Config) { e.MaxInFlight, e.Now = 3, clock.now })
	for binding, as := range m.tellers() {
		who := operation{apiKey: m.keys["owner"]}
		var running []string
		for range 3 {
			op := who
			op.name, op.script = "SendStreamingMessage", `{"op":"hang"}`
			item, _ := as.follow(t, &op).next(t)
			running = append(running, id(object(t, item["task"])))
		}
		for _, name := range []string{"SendMessage", "SendStreamingMessage"} {
			op := who
			op.name, op.script = name, `{"op":"complete"}`
			status, h, body := refusal(t, as, &op)
			if status != "429" || h.Get("Retry-After") == "" ||
				!strings.Contains(body, "more than 3 tasks are in flight") {
				t.Errorf("%s %s: %s %v %s", binding, name, status, h, body)
			}
			op.apiKey = m.keys["other user"]
			if got := as.tell(t, &op, false); got.failed {
				t.Errorf("%s by another owner: %s", name, got.text)
			}
		}
		for _, task := range running {
			op := who
			op.name, op.task = "CancelTask", task
			if got := as.tell(t, &op, false); got.failed {
				t.Error(got.text)
			}
		}
		op := who
		op.name, op.script = "SendMessage", `{"op":"complete"}`
		clock.advance(time.Second) // a count is good for less than a second
		if got := as.tell(t, &op, false); got.failed {
			t.Errorf("%s: the canceled tasks still count: %s", binding, got.text)
		}
	}
}

// clock is a clock that only the test moves.
type clock struct{ nanos atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.nanos.Store(time.Now().UnixNano())
	return c
}

func (c *clock) now() time.Time { return time.Unix(0, c.nanos.Load()) }

func (c *clock) advance(d time.Duration) { c.nanos.Add(int64(d)) }
