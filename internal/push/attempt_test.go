package push

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestRequestFollowsTheConfig(t *testing.T) {
	t.Parallel()
	secret, _ := NewSecret()
	signer := NewSigner([]Secret{secret}, nil)
	now := time.Unix(1_800_000_000, 0)
	sig, err := signer.Sign("msg_x_1", now, []byte(`{"kind":"task"}`))
	if err != nil {
		t.Fatal(err)
	}
	common := map[string]string{
		"User-Agent": "a2ad/test", "Content-Length": "15", "Webhook-Id": "msg_x_1", "Webhook-Timestamp": "1800000000",
		"Webhook-Signature": sig,
	}
	for name, tt := range map[string]struct {
		change func(*Request)
		want   map[string]string
	}{
		"0.3": {func(*Request) {}, map[string]string{"Content-Type": "application/json", "A2a-Version": "0.3"}},
		"1.0": {func(r *Request) { r.Version = V10 },
			map[string]string{"Content-Type": "application/a2a+json", "A2a-Version": "1.0"}},
		"secrets": {func(r *Request) {
			r.Token, r.Schemes, r.Credentials, r.Traceparent = "tok en", []string{"bAsic",
				"Bearer"}, "dXNlcjpwYXNz", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		}, map[string]string{
			"Content-Type": "application/json", "A2a-Version": "0.3", "X-A2a-Notification-Token": "tok en",
			"A2a-Notification-Token": "tok en",
			"Authorization":          "bAsic dXNlcjpwYXNz",
			"Traceparent":            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		}},
		"a scheme without credentials": {func(r *Request) { r.Schemes = []string{"Basic"} },
			map[string]string{"Content-Type": "application/json", "A2a-Version": "0.3"}},
		"bearer without an issuer": {func(r *Request) { r.Schemes = []string{"Bearer"} },
			map[string]string{"Content-Type": "application/json", "A2a-Version": "0.3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSink(t, ok)
			c := newClient(t, ClientConfig{Policy: dev, UserAgent: "a2ad/test", Now: func() time.Time { return now }})
			r := request(s.URL + "/hook?a=b%20c")
			r.Signer = signer
			tt.change(&r)
			if res := c.Attempt(t.Context(), r); res.Class != ClassDelivered || res.Status != 200 || res.Reason != "" ||
				res.RemoteIP != "127.0.0.1" || res.Took <= 0 {
				t.Errorf("got %+v", res)
			}
			got := s.requests()
			if len(got) != 1 {
				t.Fatalf("%d requests", len(got))
			}
			want := seenRequest{method: "POST", target: "/hook?a=b%20c", proto: "HTTP/1.1", header: http.Header{},
				body: `{"kind":"task"}`}
			for _, m := range []map[string]string{common, tt.want} {
				for k, v := range m {
					want.header[k] = []string{v}
				}
			}
			if diff := cmp.Diff(want, got[0], cmp.AllowUnexported(seenRequest{}),
				cmpopts.IgnoreFields(seenRequest{}, "from")); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatusDecides(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]Class{
		200: ClassDelivered, 201: ClassDelivered, 202: ClassDelivered, 204: ClassDelivered, 299: ClassDelivered,
		300: ClassRedirect, 301: ClassRedirect, 304: ClassRedirect, 307: ClassRedirect, 399: ClassRedirect,
		400: ClassClientError, 401: ClassClientError, 404: ClassClientError, 408: ClassClientError,
		409: ClassClientError, 410: ClassGone, 429: ClassThrottled,
		500: ClassServerError, 501: ClassServerError, 502: ClassThrottled, 503: ClassThrottled, 504: ClassThrottled,
		505: ClassServerError, 600: ClassServerError, 999: ClassServerError,
	} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			s := newSink(t, answer(status, ""))
			res := newClient(t, ClientConfig{Policy: dev}).Attempt(t.Context(), request(s.URL))
			if res.Class != want || res.Status != status || (res.Reason == "") != (want == ClassDelivered) {
				t.Errorf("got %+v, want %s", res, want)
			}
		})
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, to := range []string{"", "/self", "other", "%zz",
			"https://user:hunter2@x.example/hunter2?hunter2#hunter2", "javascript:hunter2"} {
			t.Run(fmt.Sprint(status, to), func(t *testing.T) {
				t.Parallel()
				other := newSink(t, ok)
				if to == "other" {
					to = other.URL + "/x"
				}
				s := newSink(t, func(w http.ResponseWriter, _ *http.Request) {
					w.Header()["Location"] = []string{to}
					w.WriteHeader(status)
				})
				res := newClient(t, ClientConfig{Policy: dev}).Attempt(t.Context(), request(s.URL))
				if res.Class != ClassRedirect || res.Status != status || len(s.requests()) != 1 ||
					len(other.requests()) != 0 || strings.Contains(res.Reason, "hunter2") {
					t.Errorf("got %+v; %d and %d requests", res, len(s.requests()), len(other.requests()))
				}
			})
		}
	}
}

// TestMisbehavingReceivers: an attempt ends by itself, however a receiver misbehaves.
func TestMisbehavingReceivers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		cfg     ClientConfig
		want    Class
		status  int
		check   func(Result) error
	}{
		"takes it and resets": {raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", nil),
			ClientConfig{Policy: dev}, ClassDelivered, 200, answered("abc")},
		"resets after the body": {raw("", reset), ClientConfig{Policy: dev}, ClassConnect, 0, nil},
		"closes after the body": {raw("", nil), ClientConfig{Policy: dev}, ClassConnect, 0, nil},
		"speaks another protocol": {raw("SSH-2.0-OpenSSH_9.9\r\n", nil), ClientConfig{Policy: dev},
			ClassServerError, 0, nil},
		"closes in its header": {raw("HTTP/1.1 200 OK\r\nX-A", nil), ClientConfig{Policy: dev},
			ClassServerError, 0, nil},
		"has a bad length": {raw("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", nil),
			ClientConfig{Policy: dev}, ClassServerError, 0, nil},
		"has 1 MB of header": {raw("HTTP/1.1 200 OK\r\nX-A: "+strings.Repeat("a", 1<<20)+"\r\n\r\n",
			nil), ClientConfig{Policy: dev}, ClassServerError, 0, nil},
		"has 1 MB of header lines": {raw("HTTP/1.1 200 OK\r\n"+strings.Repeat("X-A: a\r\n", 1<<17)+"\r\n",
			nil), ClientConfig{Policy: dev}, ClassServerError, 0, nil},
		"says to continue without end": {raw(strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 10_000),
			untilClosed), ClientConfig{Policy: dev}, ClassServerError, 0, nil},
		"gives early hints without end": {raw(strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n",
			10_000), untilClosed), ClientConfig{Policy: dev}, ClassServerError, 0, nil},
		"says to continue once, then takes": {raw("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 OK\r\n\r\n", nil),
			ClientConfig{Policy: dev}, ClassDelivered, 204, nil},
		"switches protocols": {raw("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nabc",
			untilClosed), ClientConfig{Policy: dev}, ClassServerError, 101, answered("")},
		"answers with a chunk without end": {endless("chunked"), ClientConfig{Policy: dev}, ClassDelivered, 200,
			answered(strings.Repeat("a", 4<<10))},
		"answers with 1 GB": {endless(strconv.Itoa(1 << 30)), ClientConfig{Policy: dev},
			ClassDelivered, 200, answered(strings.Repeat("a", 4<<10))},
		"answers with 10 MB, little is kept": {endless(strconv.Itoa(10 << 20)),
			ClientConfig{Policy: dev, ReadAnswer: 100, KeepAnswer: 10}, ClassDelivered, 200, answered("aaaaaaaaaa")},
		"breaks its gzip": {
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				_, _ = io.WriteString(w, "not gzip")
			}, ClientConfig{Policy: dev}, ClassDelivered, 200, answered("not gzip"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSink(t, tt.handler)
			res := newClient(t, tt.cfg).Attempt(t.Context(), request(s.URL))
			if res.Class != tt.want || res.Status != tt.status || res.RemoteIP != "127.0.0.1" {
				t.Errorf("got %+v, want %s", res, tt.want)
			}
			if tt.check != nil {
				if err := tt.check(res); err != nil {
					t.Error(err)
				}
			}
			if n := len(s.requests()); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// TestTimeIsBounded: whatever a receiver does not do, an attempt ends exactly at its limit.
func TestTimeIsBounded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		url    string
		cfg    ClientConfig
		answer string // what the receiver sends before it stops
		want   Class
		took   time.Duration
		kept   string
	}{
		"no answer": {"http://127.0.0.1/", ClientConfig{}, "", ClassTimeout, 10 * time.Second, ""},
		"half a header": {"http://127.0.0.1/", ClientConfig{}, "HTTP/1.1 200 OK\r\nX-A: b\r\n", ClassTimeout,
			10 * time.Second, ""},
		"only that it goes on": {"http://127.0.0.1/", ClientConfig{}, "HTTP/1.1 100 Continue\r\n\r\n", ClassTimeout,
			10 * time.Second, ""},
		"half a body": {"http://127.0.0.1/", ClientConfig{},
			"HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\nabc", ClassServerError, 15 * time.Second, "abc"},
		"taken, half a body": {"http://127.0.0.1/", ClientConfig{},
			"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", ClassDelivered, 15 * time.Second, "abc"},
		"no handshake": {"https://127.0.0.1/", ClientConfig{}, "", ClassTimeout, 5 * time.Second, ""},
		"header time is set": {"http://127.0.0.1/", ClientConfig{HeaderTimeout: 7 * time.Second}, "", ClassTimeout,
			7 * time.Second, ""},
		"handshake time is set": {"https://127.0.0.1/", ClientConfig{TLSTimeout: 3 * time.Second}, "", ClassTimeout,
			3 * time.Second, ""},
		"time is set": {"http://127.0.0.1/", ClientConfig{Timeout: 2 * time.Second}, "", ClassTimeout,
			2 * time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tt.cfg.Policy = dev
				c := newClient(t, tt.cfg)
				var wg sync.WaitGroup
				defer wg.Wait()
				c.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
					ours, theirs := net.Pipe()
					wg.Go(func() {
						defer theirs.Close()
						if strings.HasPrefix(tt.url, "http:") {
							if _, err := http.ReadRequest(bufio.NewReader(theirs)); err != nil {
								t.Errorf("receiver: %v", err)
							}
							_, _ = io.WriteString(theirs, tt.answer)
						}
						untilClosed(theirs)
					})
					return ours, nil
				}
				res := c.Attempt(t.Context(), request(tt.url))
				if res.Class != tt.want || res.Took != tt.took || string(res.Answer) != tt.kept {
					t.Errorf("got %+v, want %s after %s", res, tt.want, tt.took)
				}
			})
		})
	}
}

func answered(want string) func(Result) error {
	return func(r Result) error {
		if string(r.Answer) != want {
			return fmt.Errorf("got an answer of %d bytes %.20q, want %.20q", len(r.Answer), r.Answer, want)
		}
		return nil
	}
}

// endless writes until the client has read enough. If the client never has, the test times out.
func endless(length string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if length != "chunked" {
			w.Header().Set("Content-Length", length)
		}
		chunk := []byte(strings.Repeat("a", 32<<10))
		for written := 0; written < 256<<20; written += len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
		panic("the client took 256 MB")
	}
}

// TestCanceledAttemptDoesNotBlameTheDestination: a shutdown must not look like a failure of the
// receiver.
func TestCanceledAttemptDoesNotBlameTheDestination(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	s := newSink(t, func(w http.ResponseWriter, r *http.Request) {
		cancel(errors.New("server is stopping"))
		hang(w, r)
	})
	res := newClient(t, ClientConfig{Policy: dev}).Attempt(ctx, request(s.URL))
	if res.Class != ClassCanceled || !strings.Contains(res.Reason, "server is stopping") {
		t.Errorf("got %+v", res)
	}
}
