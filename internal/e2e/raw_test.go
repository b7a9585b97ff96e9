package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// httpAnswer is the answer to a request that no regular client would send.
type httpAnswer struct {
	status int
	header http.Header
	body   []byte
	id     string // of the JSON-RPC response, as written
	code   int    // of its error
	text   string // of its error
	data   struct{ Field string }
	result []byte
}

// post sends a body to the API unchanged.
func (c *cluster) post(r *replica, path, body string, header ...string) httpAnswer {
	c.t.Helper()
	return c.do(r, http.MethodPost, path, strings.NewReader(body), header...)
}

// do is safe for concurrent use: a failure is a test error and an empty answer.
func (c *cluster) do(r *replica, method, path string, body io.Reader, header ...string) httpAnswer {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, r.base, body)
	if err != nil {
		c.t.Error(err)
		return httpAnswer{}
	}
	req.URL.Opaque = path // unchanged, without cleaning
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Content-Type" {
			req.Header.Del(header[i])
		}
		if header[i+1] != "" {
			req.Header.Add(header[i], header[i+1])
		}
	}
	resp, err := c.http.RoundTrip(req)
	if err != nil {
		c.t.Errorf("%s %.80s: %v", method, path, err)
		return httpAnswer{}
	}
	defer resp.Body.Close()
	return readAnswer(c.t, resp)
}

func readAnswer(t *testing.T, resp *http.Response) (a httpAnswer) {
	t.Helper()
	a.status, a.header = resp.StatusCode, resp.Header
	var err error
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		t.Errorf("read the answer: %v", err)
		return a
	}
	var envelope struct {
		ID     json.RawMessage
		Result json.RawMessage
		Error  *struct {
			Code    int
			Message string
			Data    json.RawMessage
		}
	}
	if json.Unmarshal(a.body, &envelope) == nil {
		a.id, a.result = string(envelope.ID), envelope.Result
		if e := envelope.Error; e != nil {
			a.code, a.text = e.Code, e.Message
			_ = json.Unmarshal(e.Data, &a.data) // some errors name no field
		}
	}
	return a
}

// dial opens a connection for raw requests. Reads and writes have a deadline.
func (r *replica) dial() net.Conn {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.base, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		r.t.Fatal(err)
	}
	return conn
}

// exchange writes text on a new connection and returns everything until the server closes it.
func (r *replica) exchange(text string) string {
	r.t.Helper()
	conn := r.dial()
	// The server may answer and close before it has read everything.
	go io.WriteString(conn, text) //nolint:errcheck // what it answers is what counts
	var got bytes.Buffer
	_, _ = io.Copy(&got, conn) // a reset ends it too
	return got.String()
}

// statusOf returns the status of the first response in a result of exchange.
func statusOf(answer string) string {
	first, _, _ := strings.Cut(answer, "\r\n")
	return strings.TrimPrefix(first, "HTTP/1.1 ")
}
