package push

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestUnreachableReceivers(t *testing.T) {
	t.Parallel()
	res := newClient(t, ClientConfig{Policy: dev}).Attempt(t.Context(), request("http://127.0.0.1:1"))
	if res.Class != ClassConnect || res.RemoteIP != "127.0.0.1" || res.Reason == "" {
		t.Errorf("got %+v", res)
	}
}

// TestConnectingIsBounded: a listener with a full queue does not answer at all. Connecting has a
// limit of its own.
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

// TestNamesAreCheckedByTheirAddresses: the receiver listens at 127.0.0.1, which the policy refuses,
// or at 127.0.0.2, which it permits.
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
	// Rebinding: the first answer of the DNS is a permitted address, the next one is not.
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

// TestDialerRefusesSpellings: the dialer refuses every spelling of a local address, even without
// the check of URLs.
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

// TestProxyOfTheEnvironmentIsIgnored: otherwise the guard would only see the address of the proxy.
// Not parallel: it sets the environment.
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
