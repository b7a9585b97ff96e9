package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// httpConn is one keep-alive connection to a server. It uses a fifth of the CPU time of net/http's client, which
// matters because the load runs on the measured cores.
type httpConn struct {
	conn   net.Conn
	br     *bufio.Reader
	header []byte // the header of every request, up to its length
	out    []byte
	in     []byte
}

func dial(ctx context.Context, addr, path, key string, readBuffer int) (*httpConn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	header := "POST " + path + " HTTP/1.1\r\nHost: " + addr +
		"\r\nContent-Type: application/json\r\nAuthorization: Bearer " + key + "\r\n"
	return &httpConn{conn: c, br: bufio.NewReaderSize(c, readBuffer), header: []byte(header)}, nil
}

func (c *httpConn) close() { c.conn.Close() }

// send writes one request. extra is header lines.
func (c *httpConn) send(body []byte, extra string) error {
	c.out = append(append(c.out[:0], c.header...), extra...)
	c.out = strconv.AppendInt(append(c.out, "Content-Length: "...), int64(len(body)), 10)
	c.out = append(append(c.out, "\r\n\r\n"...), body...)
	_, err := c.conn.Write(c.out)
	return err
}

const ioLimit = 60 * time.Second

// do sends one request and returns its answer, which is valid until the next call.
func (c *httpConn) do(body []byte) ([]byte, error) { return c.doWith(body, "") }

// doWith is do with more header lines.
func (c *httpConn) doWith(body []byte, header string) ([]byte, error) {
	if err := c.conn.SetDeadline(time.Now().Add(ioLimit)); err != nil {
		return nil, err
	}
	if err := c.send(body, header); err != nil {
		return nil, err
	}
	status, length, err := c.readHeader()
	if err != nil {
		return nil, err
	}
	if err := c.readBody(length); err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("HTTP %d: %.300s", status, c.in)
	}
	return c.in, nil
}

// readBody reads a body into c.in. Large responses come in chunks, with a negative length.
func (c *httpConn) readBody(length int) (err error) {
	if length < 0 {
		if c.in, err = io.ReadAll(httputil.NewChunkedReader(c.br)); err != nil {
			return err
		}
		_, err = c.br.Discard(len("\r\n")) // the trailer is empty
		return err
	}
	if cap(c.in) < length {
		c.in = make([]byte, length)
	}
	c.in = c.in[:length]
	_, err = io.ReadFull(c.br, c.in)
	return err
}

var contentLength = []byte("Content-Length: ")

// readHeader reads up to the body. length is -1 if the header names none.
func (c *httpConn) readHeader() (status, length int, err error) {
	length = -1
	for first := true; ; first = false {
		line, err := c.br.ReadSlice('\n')
		if err != nil {
			return 0, 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case first && len(line) >= 12:
			status, err = strconv.Atoi(string(line[9:12]))
		case len(line) == 0:
			return status, length, nil
		case bytes.HasPrefix(line, contentLength):
			length, err = strconv.Atoi(string(line[len(contentLength):]))
		}
		if err != nil {
			return 0, 0, err
		}
	}
}

// stream sends one request and returns the body of its answer, which must be a stream. Read it to its end before you
// use the connection again.
func (c *httpConn) stream(body []byte, extra string) (io.ReadCloser, error) {
	if err := c.send(body, "Accept: text/event-stream\r\n"+extra); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(c.br, nil)
	if err != nil {
		return nil, err
	}
	kind := resp.Header.Get("Content-Type")
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "text/event-stream") {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		resp.Body.Close()
		return nil, fmt.Errorf("HTTP %d, %s: %s", resp.StatusCode, kind, text)
	}
	return resp.Body, nil
}

// sendRequest returns a message/send with one part, a text or a script.
func sendRequest(method, id, part, more string) []byte {
	return []byte(`{"jsonrpc":"2.0","id":"` + id + `","method":"` + method +
		`","params":{"message":{"kind":"message","messageId":"` + id +
		`","role":"user","parts":[` + part + `]` + more + `}}}`)
}

func textPart(text string) string { return `{"kind":"text","text":"` + text + `"}` }

// versionV1 is the header of requests of A2A 1.0.
const versionV1 = "A2A-Version: 1.0\r\n"

// sendRequestV1 returns a request of A2A 1.0 with one text.
func sendRequestV1(method, id, text string) []byte {
	return []byte(`{"jsonrpc":"2.0","id":"` + id + `","method":"` + method + `","params":{"message":{"messageId":"` +
		id + `","role":"ROLE_USER","parts":[{"text":"` + text + `"}]}}}`)
}

func scriptPart(ops string) string { return `{"kind":"data","data":{"script":[` + ops + `]}}` }

// echoLoad sends blocking messages to echo and checks every answer.
type echoLoad struct {
	addr, key string
	v1        bool // A2A 1.0, which the official servers speak; otherwise 0.3
	prefix    string
	next      atomic.Int64
	done      atomic.Int64
}

var (
	completed   = []byte(`"state":"completed"`)
	completedV1 = []byte(`"state":"TASK_STATE_COMPLETED"`)
)

// one sends one message and waits for its task.
func (l *echoLoad) one(c *httpConn) error {
	id := l.prefix + strconv.FormatInt(l.next.Add(1), 10)
	text := "hello hello hello " + id + "."
	request, header, ended := sendRequest("message/send", id, textPart(text), ""), "", completed
	if l.v1 {
		request, header, ended = sendRequestV1("SendMessage", id, text), versionV1, completedV1
	}
	answer, err := c.doWith(request, header)
	if err != nil {
		return err
	}
	// The text must be in both the history and the artifact.
	if !bytes.Contains(answer, ended) || bytes.Count(answer, []byte(text)) < 2 {
		return fmt.Errorf("unexpected answer: %.600s", answer)
	}
	l.done.Add(1)
	return nil
}

// closed keeps n requests in flight until ctx ends.
func (l *echoLoad) closed(ctx context.Context, n int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for range n {
		c, err := dial(ctx, l.addr, "/", l.key, 4096)
		if err != nil {
			cancel(err)
			break
		}
		wg.Go(func() {
			defer c.close()
			for ctx.Err() == nil {
				if err := l.one(c); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, errEnough) {
		return err
	}
	return nil
}

var errEnough = errors.New("measured enough")

// open starts a request at each multiple of 1/perSecond, whether or not earlier ones have ended. Latencies count from
// the intended start. late is the number of starts that were more than 1 ms late.
func (l *echoLoad) open(ctx context.Context, perSecond int, span time.Duration, senders int) (latencies []time.Duration,
	late int, err error) {
	total := int64(span.Seconds() * float64(perSecond))
	latencies = make([]time.Duration, total)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var next, lates atomic.Int64
	start := time.Now().Add(50 * time.Millisecond)
	for range senders {
		c, err := dial(ctx, l.addr, "/", l.key, 4096)
		if err != nil {
			cancel(err)
			break
		}
		wg.Go(func() {
			defer c.close()
			for {
				k := next.Add(1) - 1
				if k >= total || ctx.Err() != nil {
					return
				}
				intended := start.Add(time.Duration(k) * time.Second / time.Duration(perSecond))
				if err := pause(ctx, time.Until(intended)); err != nil {
					return
				}
				if time.Since(intended) > time.Millisecond {
					lates.Add(1)
				}
				if err := l.one(c); err != nil {
					cancel(err)
					return
				}
				latencies[k] = time.Since(intended)
			}
		})
	}
	wg.Wait()
	return latencies, int(lates.Load()), context.Cause(ctx)
}
