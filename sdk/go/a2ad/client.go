package a2ad

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"time"
)

const (
	claimWait     = 30 * time.Second
	claimTimeout  = claimWait + 30*time.Second
	maxClaim      = 100 // runs that one request may claim
	maxAnswer     = 256 << 20
	maxRetryAfter = time.Minute
)

// serverError is an error that the server, or a proxy before it, answered with.
type serverError struct {
	status int
	reason string // its code, such as FORBIDDEN; empty if a proxy answered
	text   string
	after  time.Duration // until the next try; 0 if the answer does not say
}

func (e *serverError) Error() string {
	if e.reason == "" {
		return fmt.Sprintf("%d: %s", e.status, e.text)
	}
	return fmt.Sprintf("%d %s: %s", e.status, e.reason, e.text)
}

// refuses reports whether each repetition of the request would get this answer too.
func (e *serverError) refuses() bool {
	return e.reason != "" && (e.status == http.StatusBadRequest || e.status == http.StatusConflict ||
		e.status == http.StatusRequestEntityTooLarge)
}

// advice returns what to check if a claim gets this answer, after a separator, or an empty text.
func (e *serverError) advice(agent string) string {
	switch {
	case e.status == http.StatusUnauthorized:
		return "; check A2AD_API_KEY (APIKey)"
	case e.status == http.StatusForbidden:
		return "; check that the API key has the scope worker and may be used for the agent"
	case e.reason == "":
		return "; check that A2AD_URL (URL) is the URL of an a2ad server"
	case e.status == http.StatusNotFound:
		return "; check the name of the agent, or add an agent file to the server: " +
			fmt.Sprintf(`"name: %s", "executor: {pull: {}}"`, agent)
	}
	return ""
}

// client is the worker API of a server.
type client struct {
	http   *http.Client
	url    string
	apiKey string
	logger *slog.Logger
}

// request is a request to the server, and how to read its answer.
type request struct {
	method, path string
	body         []byte
	decode       func(data []byte) error
}

// claim waits for up to most runs of an agent. It returns none if none came in time.
func (c *client) claim(ctx context.Context, worker, agent string, most int) (runs []*runInput, err error) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	return runs, c.send(ctx, request{
		method: http.MethodPost, path: "/claim",
		body: mustCompact(map[string]any{
			"worker": worker, "agents": []string{agent}, "max": min(most, maxClaim),
			"waitSeconds": int(claimWait.Seconds()),
		}),
		decode: func(data []byte) error {
			runs, err = c.decodeRuns(data)
			return err
		},
	})
}

// decodeRuns returns the claimed runs. One that cannot be read costs the others nothing.
func (c *client) decodeRuns(data []byte) (runs []*runInput, err error) {
	var a struct {
		Runs *[]json.RawMessage `json:"runs"`
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, err
	}
	if a.Runs == nil {
		return nil, errors.New("it has no runs")
	}
	var wrong error
	for _, one := range *a.Runs {
		run, err := decodeRun(one)
		if err != nil {
			c.logger.Error("a claimed task cannot be read", "err", err)
			wrong = err
			continue
		}
		runs = append(runs, run)
	}
	if len(runs) == 0 {
		return nil, wrong
	}
	return runs, nil
}

// send sends a request once.
func (c *client) send(ctx context.Context, r request) error {
	req, err := http.NewRequestWithContext(ctx, r.method, c.url+"/worker/v1"+r.path, bytes.NewReader(r.body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", userAgent())
	if c.apiKey != "" {
		req.Header.Set("Authorization", "Bearer "+c.apiKey)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			c.http.CloseIdleConnections() // if one connection is dead, the network may be to blame
		}
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return err
	}
	if len(data) > maxAnswer {
		return errors.New("the response is too large")
	}
	if resp.StatusCode != http.StatusOK {
		return errorOf(resp, data)
	}
	if err := r.decode(data); err != nil {
		return fmt.Errorf("the response is not that of an a2ad server: %w", err)
	}
	return nil
}

var wholeSeconds = regexp.MustCompile(`^[0-9]{1,9}$`)

func errorOf(resp *http.Response, data []byte) error {
	var v struct {
		Error struct{ Reason, Message string }
	}
	e := &serverError{status: resp.StatusCode, text: clean(string(data[:min(len(data), 500)]), maxReason)}
	if json.Unmarshal(data, &v) == nil && v.Error.Reason != "" {
		e.reason, e.text = v.Error.Reason, v.Error.Message
	}
	if after := resp.Header.Get("Retry-After"); wholeSeconds.MatchString(after) {
		n, _ := strconv.Atoi(after) // it has digits only
		e.after = min(time.Duration(n)*time.Second, maxRetryAfter)
	}
	return e
}
