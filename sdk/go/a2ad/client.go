package a2ad

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	requestTimeout = 30 * time.Second
	claimWait      = 30 * time.Second
	maxClaim       = 100 // runs of one answer
	maxAnswer      = 64 << 20
)

// serverError is an error that the server answered with.
type serverError struct {
	status int
	reason string // its code, such as FORBIDDEN
	text   string
	after  time.Duration // until the next try; 0: not said
}

func (e *serverError) Error() string { return fmt.Sprintf("%d %s: %s", e.status, e.reason, e.text) }

// client is the worker API of a server.
type client struct {
	http   *http.Client
	url    string
	apiKey string
}

// answer is what the server answers with.
type answer struct {
	CancelRequested bool           `json:"cancelRequested"`
	Runs            []runInput     `json:"runs"`
	Steps           []recordedStep `json:"steps"`
}

// claim waits for up to most runs of an agent, at most maxClaim. There are none if none came in time.
func (c *client) claim(ctx context.Context, worker, agent string, most int) ([]runInput, error) {
	ctx, cancel := context.WithTimeout(ctx, claimWait+requestTimeout)
	defer cancel()
	body, err := json.Marshal(map[string]any{
		"worker": worker, "agents": []string{agent}, "max": most, "waitSeconds": int(claimWait.Seconds()),
	})
	if err != nil {
		return nil, err
	}
	a, err := c.request(ctx, http.MethodPost, "/claim", body)
	return a.Runs, err
}

// readSteps reads the steps that the claim did not contain.
func (c *client) readSteps(ctx context.Context, run *runInput) error {
	for len(run.Steps) < run.StepCount {
		a, err := c.retried(ctx, run, http.MethodGet, fmt.Sprintf("steps?after=%d", len(run.Steps)), nil)
		if err != nil {
			return err
		}
		if len(a.Steps) == 0 {
			return fmt.Errorf("task %s: step %d is missing", run.TaskID, len(run.Steps)+1)
		}
		run.Steps = append(run.Steps, a.Steps...)
	}
	return nil
}

// report is a reporter.
func (c *client) report(ctx context.Context, run *runInput, events []json.RawMessage) (bool, error) {
	body, err := json.Marshal(map[string]any{"events": events, "batchId": rand.Text()})
	if err != nil {
		return false, err
	}
	a, err := c.retried(ctx, run, http.MethodPost, "events", body)
	return a.CancelRequested, err
}

// heartbeat renews the lease, and returns whether the task was canceled.
func (c *client) heartbeat(ctx context.Context, run *runInput) (bool, error) {
	a, err := c.retried(ctx, run, http.MethodPost, "heartbeat", []byte("{}"))
	return a.CancelRequested, err
}

// finish ends a run that no event has ended.
func (c *client) finish(ctx context.Context, run *runInput, outcome, reason string, after time.Duration) error {
	r := map[string]any{"outcome": outcome}
	if reason != "" {
		r["error"] = reason
	}
	if after > 0 {
		r["retryAfterSeconds"] = int(max(after.Round(time.Second), time.Second).Seconds())
	}
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = c.retried(ctx, run, http.MethodPost, "finish", body)
	return err
}

// retried sends a request until it is answered, or until the lease must have expired.
func (c *client) retried(ctx context.Context, run *runInput, method, what string, body []byte) (answer, error) {
	until := time.Now().Add(time.Duration(run.LeaseSeconds * float64(time.Second)))
	path := fmt.Sprintf("/runs/%s/%d/%s", run.TaskID, run.Epoch, what)
	for try := 0; ; try++ {
		a, err := c.tried(ctx, method, path, body)
		var refused *serverError
		pause := time.Duration(mathrand.Int64N(int64(min(200*time.Millisecond<<min(try, 10), 5*time.Second))))
		if errors.As(err, &refused) {
			switch {
			case refused.reason == "LEASE_LOST":
				return a, &stopped{lost, "the lease is lost: another worker has the task"}
			case refused.status != http.StatusTooManyRequests && refused.status < 500:
				return a, &UsageError{Text: "the server refuses it: " + err.Error()}
			case refused.after > 0:
				pause = refused.after
			}
		}
		if err == nil {
			return a, nil
		}
		if time.Now().Add(pause).After(until) {
			return a, &stopped{lost, fmt.Sprintf("the server cannot be reached: %v", err)}
		}
		if err := sleep(ctx, pause); err != nil {
			return a, err
		}
	}
}

func (c *client) tried(ctx context.Context, method, path string, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.request(ctx, method, path, body)
}

func (c *client) request(ctx context.Context, method, path string, body []byte) (a answer, err error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+"/worker/v1"+path, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", userAgent())
	if c.apiKey != "" {
		req.Header.Set("Authorization", "Bearer "+c.apiKey)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return a, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return a, err
	}
	if resp.StatusCode == http.StatusOK {
		return a, json.Unmarshal(data, &a)
	}
	return a, errorOf(resp, data)
}

const modulePath = "github.com/a2ad/a2ad/sdk/go"

// userAgent names this library and its version, which operators see. A program that is built from the source of the
// library has no version of it.
var userAgent = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return nameOf(info)
	}
	return "a2ad-go"
})

func nameOf(program *debug.BuildInfo) string {
	for _, m := range program.Deps {
		if m.Path == modulePath && strings.HasPrefix(m.Version, "v") {
			return "a2ad-go/" + strings.TrimPrefix(m.Version, "v")
		}
	}
	return "a2ad-go"
}

func errorOf(resp *http.Response, data []byte) error {
	var v struct {
		Error struct{ Reason, Message string }
	}
	e := &serverError{status: resp.StatusCode, text: strings.ToValidUTF8(string(data[:min(len(data), 500)]), "")}
	if json.Unmarshal(data, &v) == nil && v.Error.Reason != "" {
		e.reason, e.text = v.Error.Reason, v.Error.Message
	}
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
		e.after = time.Duration(n) * time.Second
	}
	return e
}
