package push

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

// TestMisbehavingReceivers are the cases of S-39 and F45. Each must end by itself, well before the test does.
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

// TestTimeIsBounded: whatever a receiver does not do, an attempt ends when it should, to the millisecond.
func TestTimeIsBounded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		url    string
		cfg    ClientConfig
		answer string // what the receiver sends before it falls silent
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

// endless writes until the client has enough; it fails the test's process if that is never.
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

func TestUnreachableReceivers(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	res := newClient(t, ClientConfig{Policy: dev}).Attempt(t.Context(), request("http://"+l.Addr().String()))
	if res.Class != ClassConnect || res.RemoteIP != "127.0.0.1" || res.Reason == "" {
		t.Errorf("got %+v", res)
	}
}

// A listener whose queue is full does not answer at all: the time to connect is bounded by itself.
func TestConnectingIsBounded(t *testing.T) {
	t.Parallel()
	res := newClient(t, ClientConfig{Policy: dev, DialTimeout: time.Nanosecond}).Attempt(t.Context(),
		request("http://127.0.0.1:9/"))
	if res.Class != ClassTimeout {
		t.Errorf("got %+v", res)
	}
}

func TestTLSIsVerified(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	later := time.Now().Add(time.Hour)
	for name, tt := range map[string]struct {
		server *tls.Config
		want   Class
	}{
		"right": {&tls.Config{Certificates: []tls.Certificate{ca.issue(t, "127.0.0.1", later)}}, ClassDelivered},
		"TLS 1.2": {&tls.Config{Certificates: []tls.Certificate{ca.issue(t, "127.0.0.1", later)},
			MaxVersion: tls.VersionTLS12}, ClassDelivered},
		"wrong name": {&tls.Config{Certificates: []tls.Certificate{ca.issue(t, "other.example", later)}}, ClassTLS},
		"expired": {&tls.Config{Certificates: []tls.Certificate{ca.issue(t, "127.0.0.1",
			time.Now().Add(-time.Minute))}}, ClassTLS},
		"unknown": {&tls.Config{Certificates: []tls.Certificate{newAuthority(t).issue(t, "127.0.0.1", later)}},
			ClassTLS},
		"TLS 1.1": {&tls.Config{Certificates: []tls.Certificate{ca.issue(t, "127.0.0.1", later)},
			MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, ClassTLS},
		"TLS 1.0": {&tls.Config{Certificates: []tls.Certificate{ca.issue(t, "127.0.0.1", later)},
			MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}, ClassTLS},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTLSSink(t, tt.server)
			res := newClient(t, ClientConfig{Policy: Policy{Allow: loopback}, RootCAs: ca.pool}).Attempt(t.Context(),
				request(s.URL))
			if res.Class != tt.want || (len(s.requests()) == 1) != (tt.want == ClassDelivered) {
				t.Errorf("got %+v, want %s", res, tt.want)
			}
		})
	}
}

func TestTLSWithSomethingElse(t *testing.T) {
	t.Parallel()
	s := newSink(t, ok)
	if res := newClient(t, ClientConfig{Policy: dev}).Attempt(t.Context(),
		request("https"+strings.TrimPrefix(s.URL, "http"))); res.Class != ClassTLS {
		t.Errorf("https to an http server: got %+v", res)
	}
}

// The receiver listens at 127.0.0.1, which the policy does not allow, or at 127.0.0.2, which it does.
func TestNamesAreCheckedByTheirAddresses(t *testing.T) {
	t.Parallel()
	private := newSink(t, ok)
	l, err := net.Listen("tcp", "127.0.0.2:"+private.port(t))
	if err != nil {
		t.Skipf("this machine has no 127.0.0.2: %v", err)
	}
	var reached atomic.Int32
	srv := &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) })}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Close() })
	names := resolver(t, map[string][][]string{
		"public.example": {{"127.0.0.2"}}, "private.example": {{"127.0.0.1"}}, "flips.example": {{"127.0.0.2"},
			{"127.0.0.1"}},
		"cname.example": {{"inside.example"}}, "inside.example": {{"127.0.0.1"}}, "both.example": {{"127.0.0.1",
			"127.0.0.2"}}, "bad.example": {{"10.0.0.1", "127.0.0.1", "::1"}},
		"mapped.example": {{"::ffff:127.0.0.1"}}, "meta.example": {{"169.254.169.254"}},
		"nat64.example": {{"64:ff9b::a9fe:a9fe"}}, "v6.example": {{"::1", "fd00::1", "fe80::1"}},
		"down.example": {{"127.0.0.1", "127.0.0.3"}}, "empty.example": {{}},
	})
	policy := Policy{AllowHTTP: true, Allow: prefixes("127.0.0.2/31")}
	attempt := func(c *Client, name string) Result {
		return c.Attempt(t.Context(), request("http://"+name+":"+private.port(t)+"/"))
	}
	for name, want := range map[string]Class{
		"public.example": ClassDelivered, "private.example": ClassBlocked, "cname.example": ClassBlocked,
		"bad.example": ClassBlocked, "mapped.example": ClassBlocked,
		"meta.example": ClassBlocked, "nat64.example": ClassBlocked, "v6.example": ClassBlocked,
		"both.example":    ClassDelivered,
		"nowhere.example": ClassDNS, "empty.example": ClassDNS,
		"down.example": ClassConnect, // one address is permitted and does not answer: it may work later
	} {
		if res := attempt(newClient(t, ClientConfig{Policy: policy, Resolver: names}), name); res.Class != want {
			t.Errorf("%s: got %+v, want %s", name, res, want)
		}
	}
	// Rebinding: the first question is answered with a permitted address, the next one is not.
	for i, want := range []Class{ClassDelivered, ClassBlocked, ClassBlocked} {
		if res := attempt(newClient(t, ClientConfig{Policy: policy, Resolver: names}),
			"flips.example"); res.Class != want {
			t.Errorf("flips.example, question %d: got %+v, want %s", i, res, want)
		}
	}
	if n := len(private.requests()); n != 0 {
		t.Errorf("the private receiver was reached %d times", n)
	}
	if reached.Load() != 3 {
		t.Errorf("the public receiver was reached %d times, want 3", reached.Load())
	}
}

// The dialer refuses every spelling of a local address by itself, without the check of URLs.
func TestDialerRefusesSpellings(t *testing.T) {
	t.Parallel()
	s := newSink(t, ok)
	for _, host := range []string{"127.0.0.1", "localhost", "::1", "::ffff:127.0.0.1", "0", "0.0.0.0", "::",
		"2130706433", "0x7f.1", "0x7f000001", "0177.0.0.1", "127.1", "localhost."} {
		for name, r := range map[string]*net.Resolver{"own": {PreferGo: true}, "default": net.DefaultResolver} {
			g := &guardedDialer{dialer: net.Dialer{Timeout: 5 * time.Second, Resolver: r}}
			conn, err := g.DialContext(t.Context(), "tcp", net.JoinHostPort(host, s.port(t)))
			if err == nil {
				conn.Close()
				t.Errorf("%s was reached with the %s resolver", host, name)
			}
		}
	}
	g := &guardedDialer{policy: dev}
	conn, err := g.DialContext(t.Context(), "tcp", "127.0.0.1:"+s.port(t))
	if err != nil {
		t.Fatalf("allowed, but not reached: %v", err)
	}
	conn.Close()
}

func TestBlockedAndBadURLsAreNotCalled(t *testing.T) {
	t.Parallel()
	s := newSink(t, ok)
	c := newClient(t, ClientConfig{Policy: Policy{AllowHTTP: true}})
	for raw, want := range map[string]Class{s.URL: ClassBlocked, "http://localhost:" + s.port(t): ClassBlocked,
		"ftp://x/": ClassBadURL, "": ClassBadURL, "http://u:p@h/": ClassBadURL} {
		if res := c.Attempt(t.Context(), request(raw)); res.Class != want || res.Reason == "" {
			t.Errorf("%q: got %+v, want %s", raw, res, want)
		}
	}
	for name, change := range map[string]func(*Request){
		"token":       func(r *Request) { r.Token = "a\r\nX: y" },
		"credentials": func(r *Request) { r.Schemes, r.Credentials = []string{"Basic"}, "a\nhunter2" },
		"scheme":      func(r *Request) { r.Schemes, r.Credentials = []string{"a\x00"}, "b" },
	} {
		r := request(s.URL)
		change(&r)
		if res := newClient(t, ClientConfig{Policy: dev}).Attempt(t.Context(), r); res.Class != ClassBadURL ||
			strings.Contains(res.Reason, "hunter2") {
			t.Errorf("%s: got %+v", name, res)
		}
	}
	r := request(s.URL)
	r.ID = "a.b"
	if res := newClient(t, ClientConfig{Policy: dev}).Attempt(t.Context(), r); res.Class != ClassInternal {
		t.Errorf("an id with a dot: got %+v", res)
	}
	if n := len(s.requests()); n != 0 {
		t.Errorf("%d requests were made", n)
	}
}

// Shutdown must not look like a failure of the receiver.
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

// The environment's proxy would be the only address that the guard sees. Not parallel: it sets the environment.
func TestProxyOfTheEnvironmentIsIgnored(t *testing.T) {
	proxy := newSink(t, ok)
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, proxy.URL)
	}
	s := newSink(t, ok)
	names := resolver(t, map[string][][]string{"sink.example": {{"127.0.0.1"}}})
	target := "http://sink.example:" + s.port(t)
	if res := newClient(t, ClientConfig{Policy: dev, Resolver: names}).Attempt(t.Context(),
		request(target)); res.Class != ClassDelivered {
		t.Errorf("got %+v", res)
	}
	if len(s.requests()) != 1 || len(proxy.requests()) != 0 {
		t.Errorf("%d requests directly, %d by the proxy", len(s.requests()), len(proxy.requests()))
	}
	u, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	if res := newClient(t, ClientConfig{Policy: Policy{AllowHTTP: true}, Proxy: u}).Attempt(t.Context(),
		request("http://sink.example/x")); res.Class != ClassDelivered || len(proxy.requests()) != 1 {
		t.Errorf("a proxy that was configured: got %+v, %d requests", res, len(proxy.requests()))
	}
}

func TestConnectionsAreReusedAndCookiesAreNot(t *testing.T) {
	t.Parallel()
	s := newSink(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Set-Cookie", "a=b")
		_, _ = io.WriteString(w, "ok")
	})
	c := newClient(t, ClientConfig{Policy: dev})
	from := map[string]bool{}
	for range 3 {
		if res := c.Attempt(t.Context(), request(s.URL)); res.Class != ClassDelivered || string(res.Answer) != "ok" {
			t.Fatalf("got %+v", res)
		}
	}
	for _, r := range s.requests() {
		if r.header.Get("Cookie") != "" || r.header.Get("Accept-Encoding") != "" {
			t.Errorf("sent %v", r.header)
		}
		from[r.from] = true
	}
	if len(from) != 1 {
		t.Errorf("%d connections for three requests one after the other", len(from))
	}
}

func TestDirectivesOfAnswers(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		status    int
		header    map[string]string
		after     time.Duration
		directive Directive
	}{
		"seconds":             {503, map[string]string{"Retry-After": "120"}, 2 * time.Minute, ""},
		"seconds with spaces": {429, map[string]string{"Retry-After": " 5 "}, 5 * time.Second, ""},
		"more than there are": {429, map[string]string{"Retry-After": "99999999999999999999999"}, maxRetryAfter,
			""},
		"a long time": {429, map[string]string{"Retry-After": "9999999999"}, maxRetryAfter, ""},
		"date": {503, map[string]string{"Retry-After": "Fri, 20 Nov 2026 10:01:00 GMT", "Date": ""},
			time.Minute, ""},
		"date of a wrong clock": {503,
			map[string]string{"Retry-After": "Fri, 20 Nov 2020 10:01:00 GMT",
				"Date": "Fri, 20 Nov 2020 10:00:30 GMT"}, 30 * time.Second, ""},
		"date that has passed": {503, map[string]string{"Retry-After": "Fri, 20 Nov 2026 09:00:00 GMT", "Date": ""},
			0, ""},
		"negative":                {503, map[string]string{"Retry-After": "-5"}, 0, ""},
		"nonsense":                {503, map[string]string{"Retry-After": "soon"}, 0, ""},
		"fraction":                {503, map[string]string{"Retry-After": "1.5"}, 0, ""},
		"delivered":               {200, map[string]string{"Retry-After": "5"}, 0, ""},
		"disable":                 {500, map[string]string{"webhook-delivery": "disable"}, 0, DirectiveDisable},
		"abort":                   {400, map[string]string{"Webhook-Delivery": " Abort-Message "}, 0, DirectiveAbort},
		"disable while taking it": {200, map[string]string{"webhook-delivery": "disable"}, 0, DirectiveDisable},
		"unknown directive":       {500, map[string]string{"webhook-delivery": "explode"}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSink(t, func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range tt.header {
					w.Header()[http.CanonicalHeaderKey(k)] = []string{v}
				}
				w.WriteHeader(tt.status)
			})
			res := newClient(t, ClientConfig{Policy: dev, Now: func() time.Time { return now }}).Attempt(t.Context(),
				request(s.URL))
			if res.RetryAfter != tt.after || res.Directive != tt.directive {
				t.Errorf("got %s and %q, want %s and %q", res.RetryAfter, res.Directive, tt.after, tt.directive)
			}
		})
	}
}

// A sink that echoes all it got shows none of it in what we keep.
func TestEchoedSecretsAreNotKept(t *testing.T) {
	t.Parallel()
	const canary = `canary"<&/ 1234`
	echo := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_ = r.Header.Write(w)
		fmt.Fprintf(w, "%q", r.Header)
	}
	for name, handler := range map[string]http.HandlerFunc{
		"body": echo,
		"status line": func(w http.ResponseWriter, r *http.Request) {
			raw("HTTP/1.1 bad "+r.Header.Get("Authorization")+"\r\n\r\n", nil)(w, r)
		},
		"no HTTP": func(w http.ResponseWriter,
			r *http.Request) {
			raw(r.Header.Get("Authorization")+"\r\n\r\n", nil)(w, r)
		},
		"content type": func(w http.ResponseWriter, r *http.Request) {
			raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: "+r.Header.Get("X-A2a-Notification-Token")+"\r\n\r\n", nil)(w, r)
		},
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Location"] = []string{"https://x.example/?" +
				url.QueryEscape(r.Header.Get("A2a-Notification-Token")) + r.Header.Get("A2a-Notification-Token")}
			w.WriteHeader(http.StatusFound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSink(t, handler)
			r := request(s.URL)
			r.Token, r.Schemes, r.Credentials = canary, []string{"Bearer"}, canary
			res := newClient(t, ClientConfig{Policy: dev}).Attempt(t.Context(), r)
			if text := res.Reason + string(res.Answer); strings.Contains(text, "canary\"") ||
				strings.Contains(text, `canary\"`) {
				t.Errorf("kept %q, %q", res.Reason, res.Answer)
			}
			if len(res.Reason) > maxReason+len(redacted) || strings.ContainsAny(res.Reason, "\r\n") {
				t.Errorf("reason %q", res.Reason)
			}
		})
	}
}

func TestRequestsPrintNoSecrets(t *testing.T) {
	t.Parallel()
	r := request("https://example.com/?hunter2")
	r.Token, r.Credentials, r.Body = "hunter2", "hunter2", []byte("hunter2")
	var out bytes.Buffer
	for _, v := range []any{r, &r, struct{ R Request }{r}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "v", v)
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "r", r, "p", &r)
	if strings.Contains(out.String(), "hunter2") || strings.Contains(out.String(), fmt.Sprintf("%x", "hunter2")) ||
		!strings.Contains(out.String(), r.ID) {
		t.Errorf("seen:\n%s", &out)
	}
}

// TestFencedRequestIsCanceledForAnyTransportError: when a write is refused the transport closes the connection, and may
// report the read that ended with it. That is no fault of the destination.
func TestFencedRequestIsCanceledForAnyTransportError(t *testing.T) {
	t.Parallel()
	var seen observer
	valid := seen.observe(func() bool { return false })
	c := newClient(t, ClientConfig{Policy: dev})
	if class, reason := c.classify(t.Context(), net.ErrClosed, &seen); class != ClassConnect {
		t.Errorf("before any write: %s, %s", class, reason)
	}
	if valid() {
		t.Fatal("the lease is valid")
	}
	if class, reason := c.classify(t.Context(), net.ErrClosed, &seen); class != ClassCanceled ||
		reason != errLeaseExpired.Error() {
		t.Errorf("after a refused write: %s, %s", class, reason)
	}
}
