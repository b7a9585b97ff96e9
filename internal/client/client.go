// Package client is a client of A2A agents, of 1.0 and of 0.3, over JSON-RPC. It serves `a2ad
// send`, the tests and the benchmarks.
//
// It keeps answers as raw JSON and decodes only what a terminal or a test needs. A stream that was
// cut resumes by itself, without a missing or repeated event, if the server gives its events ids as
// a2ad does. It never sends a message twice unless the caller gave it an idempotency key.
package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/rawjson"
)

const (
	// DefaultMaxBytes is the largest answer or event that is read: the largest Task that a2ad
	// stores.
	DefaultMaxBytes = 65 << 20
	// DefaultTries is how often in a row a stream is resumed without progress.
	DefaultTries = 30

	maxDepth     = 128
	maxErrorBody = 16 << 10
)

// DefaultRetry is how long a resume waits if the server named no time.
var DefaultRetry = backoff.Policy{Base: 200 * time.Millisecond, Max: 5 * time.Second}

// Client talks to one agent. Its fields must not change once it is in use. Its methods are safe for
// concurrent use.
type Client struct {
	URL      string       // of the agent: the server's URL, or that with /agents/<name>
	Version  Version      // of the protocol; Negotiate sets it
	APIKey   string       // sent as a bearer token; empty: none
	HTTP     *http.Client // nil: http.DefaultClient. It must not have a timeout
	MaxBytes int          // 0: DefaultMaxBytes
	Tries    int          // 0: DefaultTries; negative: never resume
	Retry    backoff.Policy

	lastID atomic.Int64
	sleep  func(context.Context, time.Duration) error // waits between connections; nil: a timer. Replaced by tests
}

// SendParams are the params of Send and Stream.
type SendParams struct {
	Message        a2a.Message // Role is always user; an empty ID is filled in
	NoWait         bool        // Send only: answer as soon as the task exists
	HistoryLength  *int
	AcceptedModes  []string
	Metadata       a2a.Raw
	IdempotencyKey string // makes it safe to repeat the send; empty: none
}

// Send sends a message and returns the server's answer: a Message, or the task once it has ended,
// waits for its client, or took longer than the server lets a request wait. Errors of the server
// are an *Error.
func (c *Client) Send(ctx context.Context, p SendParams) (Result, error) {
	if p.Message.ID == "" {
		p.Message.ID = NewMessageID()
	}
	raw, err := c.call(ctx, opSend, p.append(nil, c.Version, p.NoWait), p.header())
	if err != nil {
		return Result{}, err
	}
	return decodeResult(raw)
}

// Get reads a task. A negative history reads all of it.
func (c *Client) Get(ctx context.Context, taskID string, history int) (Result, error) {
	params := appendMember([]byte{'{'}, "id", taskID)
	if history >= 0 {
		params = strconv.AppendInt(append(params, `,"historyLength":`...), int64(history), 10)
	}
	raw, err := c.call(ctx, opGet, append(params, '}'), nil)
	if err != nil {
		return Result{}, err
	}
	return decodeResult(raw)
}

// Cancel ends a task and returns it.
func (c *Client) Cancel(ctx context.Context, taskID string) (Result, error) {
	raw, err := c.call(ctx, opCancel, append(appendMember([]byte{'{'}, "id", taskID), '}'), nil)
	if err != nil {
		return Result{}, err
	}
	return decodeResult(raw)
}

// ListParams selects a page of tasks. Zero values select nothing.
type ListParams struct {
	ContextID        string
	State            a2a.State
	PageSize         int
	PageToken        string
	IncludeArtifacts bool
}

// Page is one page of tasks, newest first.
type Page struct {
	Raw       []byte
	Tasks     []Result
	NextToken string // empty on the last page
	Total     int
}

// List reads a page of the caller's tasks.
func (c *Client) List(ctx context.Context, p ListParams) (Page, error) {
	raw, err := c.call(ctx, opList, p.append(nil, c.Version), nil)
	if err != nil {
		return Page{}, err
	}
	page := Page{Raw: raw}
	for item := range rawjson.Elements(rawjson.Get(raw, "tasks")) {
		task, err := decodeResult(item)
		if err != nil {
			return Page{}, err
		}
		page.Tasks = append(page.Tasks, task)
	}
	page.NextToken, _ = rawjson.String(rawjson.Get(raw, "nextPageToken"))
	total, _ := rawjson.Int(rawjson.Get(raw, "totalSize"))
	page.Total = int(total)
	return page, nil
}

func (p *ListParams) append(dst []byte, v Version) []byte {
	dst = append(dst, '{')
	if p.ContextID != "" {
		dst = append(appendMember(dst, "contextId", p.ContextID), ',')
	}
	if p.State != a2a.StateNone {
		name := p.State.String()
		if v == V10 {
			name = stateName10(p.State)
		}
		dst = append(appendMember(dst, "status", name), ',')
	}
	if p.PageToken != "" {
		dst = append(appendMember(dst, "pageToken", p.PageToken), ',')
	}
	if p.PageSize > 0 {
		dst = append(strconv.AppendInt(append(dst, `"pageSize":`...), int64(p.PageSize), 10), ',')
	}
	dst = append(dst, `"includeArtifacts":`...)
	return append(strconv.AppendBool(dst, p.IncludeArtifacts), '}')
}

// Card is an agent's description of itself.
type Card struct {
	Raw         []byte
	Name        string
	Description string
	Version     string
	Protocol    string      // of 0.3
	URL         string      // of 0.3
	Interfaces  []Interface // in the agent's order; those of 0.3 last
	Streaming   bool
	Push        bool
}

// Card reads the card of the agent.
func (c *Client) Card(ctx context.Context) (Card, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		strings.TrimRight(c.URL, "/")+"/.well-known/agent-card.json", nil)
	if err != nil {
		return Card{}, err
	}
	resp, err := c.do(req)
	if err != nil {
		return Card{}, err
	}
	defer closeBody(resp)
	if resp.StatusCode != http.StatusOK {
		return Card{}, httpError(resp)
	}
	raw, err := c.readJSON(resp.Body)
	if err != nil {
		return Card{}, fmt.Errorf("read the agent card: %w", err)
	}
	str := func(key string) string {
		s, _ := rawjson.String(rawjson.Get(raw, key))
		return s
	}
	card := Card{
		Raw: raw, Name: str("name"), Description: str("description"), Version: str("version"),
		Protocol: str("protocolVersion"), URL: str("url"), Interfaces: interfaces(raw),
	}
	capabilities := rawjson.Get(raw, "capabilities")
	card.Streaming, _ = rawjson.Bool(rawjson.Get(capabilities, "streaming"))
	card.Push, _ = rawjson.Bool(rawjson.Get(capabilities, "pushNotifications"))
	return card, nil
}

// call does one request with one answer and returns the result.
func (c *Client) call(ctx context.Context, o op, params []byte, header http.Header) ([]byte, error) {
	resp, id, sent, err := c.post(ctx, o, params, header, "application/json")
	if err != nil {
		if sent && o == opSend {
			err = unknown(err)
		}
		return nil, err
	}
	defer closeBody(resp)
	if resp.StatusCode != http.StatusOK || !c.isJSON(resp) {
		return nil, httpError(resp)
	}
	body, err := c.readJSON(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the answer to %s: %w", c.Version.method(o), err)
	}
	return open(body, id)
}

// post sends one JSON-RPC request. id is what the answer must carry. sent says that there was a
// connection, so the server may have received the request.
func (c *Client) post(
	ctx context.Context, o op, params []byte, header http.Header, accept string,
) (resp *http.Response, id int64, sent bool, err error) {
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	id = c.lastID.Add(1)
	body := strconv.AppendInt([]byte(`{"jsonrpc":"2.0","id":`), id, 10)
	body = append(appendMember(append(body, ','), "method", c.Version.method(o)), `,"params":`...)
	body = append(append(body, params...), '}')
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return nil, 0, false, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	if c.Version == V10 {
		req.Header.Set("A2A-Version", "1.0")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", accept)
	resp, err = c.do(req)
	return resp, id, connected.Load(), err
}

func (c *Client) do(req *http.Request) (*http.Response, error) {
	if c.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+c.APIKey)
	}
	h := c.HTTP
	if h == nil {
		h = http.DefaultClient
	}
	return h.Do(req)
}

var errTooLarge = errors.New("the answer is too large")

// readJSON reads one document of at most MaxBytes and checks it.
func (c *Client) readJSON(r io.Reader) ([]byte, error) {
	limit := c.maxBytes()
	body, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if len(body) > limit {
		return nil, errTooLarge
	}
	if err := rawjson.Check(body, maxDepth); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	return rawjson.Trim(body), nil
}

func (c *Client) maxBytes() int {
	if c.MaxBytes > 0 {
		return c.MaxBytes
	}
	return DefaultMaxBytes
}

// open returns the result of a checked response, or its error.
func open(body []byte, id int64) ([]byte, error) {
	if object := rawjson.Get(body, "error"); object != nil {
		return nil, rpcError(object)
	}
	result := rawjson.Get(body, "result")
	if result == nil {
		return nil, errors.New("the answer is not a JSON-RPC response: it has neither result nor error")
	}
	if got, ok := rawjson.Int(rawjson.Get(body, "id")); !ok || got != id {
		return nil, fmt.Errorf("the answer belongs to another request: its id is %s, not %d",
			rawjson.Get(body, "id"), id)
	}
	return result, nil
}

// closeBody reads the small rest of a body, so that the connection can be reused.
func closeBody(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, maxErrorBody)
	_ = resp.Body.Close()
}

func appendMember(dst []byte, key, text string) []byte {
	dst = append(rawjson.AppendString(dst, key), ':')
	return rawjson.AppendString(dst, text)
}
