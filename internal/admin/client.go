package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"time"

	"github.com/a2ad/a2ad/internal/sse"
)

// Client calls the API, of a server or of this process.
type Client struct {
	url  string // of the server, without a slash at its end
	key  string // API key or token; empty: none
	http *http.Client
}

// NewClient returns a client of the server at url. The key, if it is not empty, is a bearer token.
func NewClient(url, key string, transport http.RoundTripper) *Client {
	stay := func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a redirect would take the key to another place
	}
	return &Client{url, key, &http.Client{Transport: transport, CheckRedirect: stay}}
}

// Local returns a client of an API in this process. No request leaves it.
func Local(api *API) *Client { return NewClient("http://local", "", inProcess{api}) }

// RequestError says that the server refused a request. Its text is that of the server.
type RequestError struct {
	Status int
	FailureDetail
}

func (e *RequestError) Error() string { return e.Message }

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 128 << 20

// Get asks for what path names, and reads the answer into into.
func (c *Client) Get(ctx context.Context, path string, query, into any) error {
	if query != nil {
		if values := encodeQuery(query); len(values) > 0 {
			path += "?" + values.Encode()
		}
	}
	return c.send(ctx, http.MethodGet, path, nil, into)
}

// Post does what path names, and reads the answer into into.
func (c *Client) Post(ctx context.Context, path string, body, into any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	return c.send(ctx, http.MethodPost, path, b, into)
}

// Follow asks for what path names, and calls do with each event of the stream, until the stream ends or do fails. The
// error is a *RequestError if the server has refused, what do has returned, or ErrCut.
func (c *Client) Follow(ctx context.Context, path string, query any, do func(sse.Event) error) error {
	if values := encodeQuery(query); len(values) > 0 {
		path += "?" + values.Encode()
	}
	resp, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	events := sse.NewReader(resp.Body, sse.ReaderOptions{MaxLine: maxAnswer, MaxEvent: maxAnswer})
	for {
		ev, err := events.Next()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCut, err)
		}
		if err := do(ev); err != nil {
			return err
		}
	}
}

// ErrCut says that the server has ended a stream, or that its connection is lost.
var ErrCut = errors.New("the stream has ended")

func (c *Client) send(ctx context.Context, method, path string, body []byte, into any) error {
	resp, err := c.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.url, err)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%s answered with something else than this version expects: %w", c.url, err)
	}
	return nil
}

// do sends a request. If the server has refused it, the error is a *RequestError.
func (c *Client) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+Prefix+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the rest of its text is the URL
		}
		return nil, fmt.Errorf("ask %s: %w", c.url, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", c.url, err)
	}
	var refused Failure
	if err := json.Unmarshal(answer, &refused); err != nil || refused.Error.Reason == "" {
		return nil, fmt.Errorf("%s has no admin API: it answered %s", c.url, resp.Status)
	}
	return nil, &RequestError{resp.StatusCode, refused.Error}
}

// encodeQuery returns the parameters of a struct: those that are not zero.
func encodeQuery(query any) url.Values {
	values := url.Values{}
	from := reflect.ValueOf(query)
	for _, f := range fieldsOf(from.Type()) {
		v := from.FieldByIndex(f.index)
		if v.IsZero() {
			continue
		}
		switch x := v.Interface().(type) {
		case []string:
			values[f.name] = x
		case time.Time:
			values.Set(f.name, x.Format(time.RFC3339Nano))
		case *bool:
			values.Set(f.name, fmt.Sprint(*x))
		default:
			values.Set(f.name, fmt.Sprint(x))
		}
	}
	return values
}
