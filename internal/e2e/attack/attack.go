// Package attack does what a hostile client can do to the memory of a server: bodies that are announced and not sent,
// bodies without their end, unread answers, and pages of large tasks.
//
// It promises only to send what it says. Tests that watch the server and the benchmark use it.
package attack

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Target is the server and the attacker's credentials.
type Target struct {
	Addr  string // host:port of its API
	Key   string // API key of the attacker; empty: none
	Agent string // the agent's name
}

// Statuses counts the answers to an attack by HTTP status; 0 counts connections that ended without an answer.
type Statuses struct {
	mu sync.Mutex
	n  map[int]int // guarded by mu
}

// Add counts one answer.
func (s *Statuses) Add(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == nil {
		s.n = make(map[int]int)
	}
	s.n[status]++
}

// All returns the counts.
func (s *Statuses) All() map[int]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[int]int, len(s.n))
	for k, v := range s.n {
		all[k] = v
	}
	return all
}

func (t *Target) head(path string, length int) string {
	auth := ""
	if t.Key != "" {
		auth = "Authorization: Bearer " + t.Key + "\r\n"
	}
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a2ad\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n"+
		"\r\n", path, auth, length)
}

func (t *Target) agentPath() string { return "/agents/" + t.Agent }

// Bodies opens n connections and sends on each a request of size bytes, of which only the first sent bytes follow. It
// returns once all have been tried, with a function that ends them. It counts the answers that arrive.
func (t *Target) Bodies(n, size, sent int, path string, seen *Statuses) (stop func()) {
	if path == "" {
		path = t.agentPath()
	}
	body := strings.Repeat(" ", sent)
	return t.each(n, seen, func(c net.Conn) {
		_, _ = io.WriteString(c, t.head(path, size))
		_, _ = io.WriteString(c, body) // the server may refuse the body before its end
	})
}

// Unread makes a request n times and reads only the start of each answer.
func (t *Target) Unread(n int, request string, seen *Statuses) (stop func()) {
	return t.each(n, seen, func(c net.Conn) {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetReadBuffer(4 << 10) // so that less of the answer fits into kernel buffers
		}
		_, _ = io.WriteString(c, t.head(t.agentPath(), len(request))+request)
	})
}

// each opens n connections, calls play with each, and counts the answers.
func (t *Target) each(n int, seen *Statuses, play func(c net.Conn)) (stop func()) {
	var playing, reading sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	ended := make(chan struct{})
	for range n {
		playing.Go(func() {
			c, err := net.DialTimeout("tcp", t.Addr, 10*time.Second)
			if err != nil {
				seen.Add(0)
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			reading.Go(func() {
				resp, err := http.ReadResponse(bufio.NewReaderSize(c, 512), nil)
				if err != nil {
					return
				}
				seen.Add(resp.StatusCode)
				<-ended
				resp.Body.Close()
			})
			play(c)
		})
	}
	var once sync.Once
	return func() {
		once.Do(func() {
			mu.Lock()
			for _, c := range conns {
				c.Close()
			}
			mu.Unlock()
			playing.Wait()
			mu.Lock()
			for _, c := range conns {
				c.Close()
			}
			mu.Unlock()
			close(ended)
			reading.Wait()
		})
	}
}

// Flood repeats a request from n clients that read the answers, until it is stopped.
func (t *Target) Flood(n int, request string, seen *Statuses) (stop func()) {
	var stopped atomic.Bool
	var wg sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}, Timeout: 60 * time.Second}
	for range n {
		wg.Go(func() {
			for !stopped.Load() {
				status, _, err := t.Post(client, request)
				if err != nil {
					status = 0
				}
				seen.Add(status)
			}
		})
	}
	return func() {
		stopped.Store(true)
		wg.Wait()
		client.CloseIdleConnections()
	}
}

// Post sends one JSON-RPC request and reads at most 64 KiB of the answer.
func (t *Target) Post(client *http.Client, request string) (status int, answer []byte, err error) {
	req, err := http.NewRequest(http.MethodPost, "http://"+t.Addr+t.agentPath(),
		strings.NewReader(request)) //nolint:noctx // the client has a timeout
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if t.Key != "" {
		req.Header.Set("Authorization", "Bearer "+t.Key)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	}
	return resp.StatusCode, answer, err
}

// Large returns a message of about size bytes for the script agent. The script asks for input, so that it continues
// with the next message. task is empty for a new task.
func Large(id, task string, size int, end bool) string {
	var parts strings.Builder
	const part = 900 << 10
	for left := size; left > 0; left -= part {
		fmt.Fprintf(&parts, `{"kind":"text","text":"%s"},`, strings.Repeat("x", min(left, part)))
	}
	script, of := `{"op":"input"}`, ""
	if end {
		script = `{"op":"complete"}`
	}
	if task != "" {
		of = `,"taskId":"` + task + `"`
	}
	return Request("message/send", `{"message":{"messageId":"`+id+`","role":"user"`+of+`,"parts":[`+parts.String()+
		`{"kind":"data","data":{"script":[`+script+`]}}]},"configuration":{"blocking":true,"historyLength":0}}`)
}

// Request returns a JSON-RPC request.
func Request(method, params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
}
