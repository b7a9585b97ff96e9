package a2ad

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"time"
)

// maxPause is the longest pause between two tries of a request.
const maxPause = 5 * time.Second

// runRequest is a request of a run.
type runRequest struct {
	request
	age       time.Duration // how old the lease may be when the answer does not say that it was renewed
	mayRefuse bool          // the server may refuse what the agent did
}

func pathOf(run *runInput, what string) string {
	return fmt.Sprintf("/runs/%s/%d/%s", run.TaskID, run.Epoch, what)
}

// steps reads the steps that the claim did not contain.
func (c *client) steps(ctx context.Context, run *runInput) error {
	for len(run.Steps) < run.StepCount {
		err := c.retried(ctx, run, runRequest{request: request{
			method: http.MethodGet, path: pathOf(run, fmt.Sprintf("steps?after=%d", len(run.Steps))),
			decode: func(data []byte) error {
				more, err := decodeSteps(data)
				run.Steps = append(run.Steps, more...)
				return err
			},
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

func decodeSteps(data []byte) ([]*recordedStep, error) {
	var a struct {
		Steps []*recordedStep `json:"steps"`
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, err
	}
	if len(a.Steps) == 0 {
		return nil, errors.New("the next step is missing")
	}
	for _, step := range a.Steps {
		if err := step.check(); err != nil {
			return nil, err
		}
	}
	return a.Steps, nil
}

// report is a reporter.
func (c *client) report(ctx context.Context, run *runInput, events []json.RawMessage, batch string) (bool, error) {
	body := mustCompact(struct {
		Events  []json.RawMessage `json:"events"`
		BatchID string            `json:"batchId"`
	}{events, batch})
	var wasCanceled bool
	err := c.retried(ctx, run, runRequest{
		request: request{http.MethodPost, pathOf(run, "events"), body, readCanceled(&wasCanceled)},
		age:     run.lease.length / 4, mayRefuse: true,
	})
	return wasCanceled, err
}

// heartbeat renews the lease, and returns whether the task was canceled.
func (c *client) heartbeat(ctx context.Context, run *runInput) (bool, error) {
	var wasCanceled bool
	err := c.retried(ctx, run, runRequest{
		request: request{http.MethodPost, pathOf(run, "heartbeat"), []byte("{}"), readCanceled(&wasCanceled)},
	})
	return wasCanceled, err
}

func readCanceled(to *bool) func([]byte) error {
	return func(data []byte) error {
		var a struct {
			CancelRequested *bool `json:"cancelRequested"`
		}
		if err := json.Unmarshal(data, &a); err != nil {
			return err
		}
		if a.CancelRequested == nil {
			return errors.New("cancelRequested is not true or false")
		}
		*to = *a.CancelRequested
		return nil
	}
}

// finish ends a run that no event has ended.
func (c *client) finish(ctx context.Context, run *runInput, outcome, reason string, after time.Duration) error {
	body := mustCompact(struct {
		Outcome    string `json:"outcome"`
		Error      string `json:"error,omitempty"`
		RetryAfter int    `json:"retryAfterSeconds,omitempty"`
	}{outcome, reason, seconds(after)})
	return c.retried(ctx, run, runRequest{
		request: request{http.MethodPost, pathOf(run, "finish"), body, func(data []byte) error {
			var object map[string]json.RawMessage
			err := json.Unmarshal(data, &object)
			if err == nil && object == nil {
				err = errors.New("it is not an object")
			}
			return err
		}},
		mayRefuse: true,
	})
}

// retried repeats a request until it is answered, or until the lease must have expired. It sends the request at least
// once, because the server knows best. Each try gets a third of the lease, so that one lost answer does not cost the
// run.
func (c *client) retried(ctx context.Context, run *runInput, r runRequest) error {
	third := run.lease.length / 3
	for try := 1; ; try++ {
		started := time.Now()
		timeout := third
		if left := run.lease.left(); left > 0 {
			timeout = min(third, left)
		}
		err := c.sendWithin(ctx, r.request, timeout)
		if err == nil {
			run.lease.renew(started.Add(-r.age))
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		pause := rand.N(min(100*time.Millisecond<<min(try, 10), maxPause))
		var answered *serverError
		if errors.As(err, &answered) {
			if answered.reason == "LEASE_LOST" {
				return &stopped{outcome: lost, text: "the lease is lost"}
			}
			if r.mayRefuse && answered.refuses() {
				return &UsageError{Text: refusal(answered), Refused: true}
			}
			pause = max(pause, answered.after)
		}
		if err := sleep(ctx, max(min(pause, third, run.lease.left()), 0)); err != nil {
			return err
		}
		if run.lease.left() <= 0 {
			return &stopped{outcome: lost, text: fmt.Sprintf("requests failed until the lease expired: %v", err)}
		}
	}
}

func (c *client) sendWithin(ctx context.Context, r request, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return c.send(ctx, r)
}

var placeInRequest = regexp.MustCompile(`^events\[\d+\]: `)

// refusal returns what the author of an agent needs of an error: not the place in the request.
func refusal(e *serverError) string {
	if e.reason != "INVALID_AGENT_RESPONSE" {
		return e.Error()
	}
	return placeInRequest.ReplaceAllString(e.text, "")
}
