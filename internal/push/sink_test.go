package push

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// A sink is a receiver. It answers as its test says, and records the requests.
type sink struct {
	*httptest.Server
	mu   sync.Mutex
	seen []seenRequest // guarded by mu
}

type seenRequest struct {
	method, target, proto, from string
	header                      http.Header
	body                        string
}

func newSink(t *testing.T, handler http.HandlerFunc) *sink {
	t.Helper()
	s := &sink{}
	s.Server = httptest.NewUnstartedServer(s.note(handler))
	s.Start()
	t.Cleanup(s.stop)
	return s
}

func newTLSSink(t *testing.T, cfg *tls.Config) *sink {
	t.Helper()
	s := &sink{}
	s.Server = httptest.NewUnstartedServer(s.note(ok))
	s.TLS = cfg
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.StartTLS()
	t.Cleanup(s.stop)
	return s
}

func (s *sink) note(handler http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.seen = append(s.seen, seenRequest{r.Method, r.RequestURI, r.Proto, r.RemoteAddr, r.Header.Clone(),
			string(body)})
		s.mu.Unlock()
		handler(w, r)
	})
}

func (s *sink) stop() {
	s.CloseClientConnections()
	s.Close()
}

func (s *sink) requests() []seenRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

func (s *sink) port(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Port()
}

func ok(http.ResponseWriter, *http.Request) {}

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// hang does not answer until the client disconnects.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// raw answers with bytes that net/http would not send, and then calls end.
func raw(text string, end func(net.Conn)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = buf.WriteString(text)
		_ = buf.Flush()
		if end != nil {
			end(conn)
		}
	}
}

// untilClosed waits for the other end to close the connection.
func untilClosed(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

func reset(conn net.Conn) { _ = conn.(*net.TCPConn).SetLinger(0) }

// dev is the policy of `a2ad dev`.
var dev = Policy{AllowHTTP: true, Allow: loopback}

func newClient(t *testing.T, cfg ClientConfig) *Client {
	t.Helper()
	c := NewClient(cfg)
	t.Cleanup(c.Close)
	return c
}

func request(to string) Request {
	return Request{URL: to, Version: V03, ID: "msg_x_1", Task: "task-1", Body: []byte(`{"kind":"task"}`)}
}

// resolver resolves names to answers: addresses, or another name. A name with several lists of
// answers gets the next list at each question.
func resolver(t *testing.T, answers map[string][][]string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	asked := map[string]int{}
	wg.Go(func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			reply, err := resolve(buf[:n], answers, asked)
			if err != nil {
				t.Errorf("DNS: %v", err)
				return
			}
			_, _ = conn.WriteToUDPAddrPort(reply, from)
		}
	})
	t.Cleanup(func() {
		conn.Close()
		wg.Wait()
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp4", conn.LocalAddr().String())
	}}
}

func resolve(question []byte, answers map[string][][]string, asked map[string]int) ([]byte, error) {
	var p dnsmessage.Parser
	head, err := p.Start(question)
	if err != nil {
		return nil, err
	}
	q, err := p.Question()
	if err != nil {
		return nil, err
	}
	key := strings.TrimSuffix(strings.ToLower(q.Name.String()), ".")
	lists, known := answers[key]
	reply := dnsmessage.Header{ID: head.ID, Response: true, Authoritative: true, RecursionAvailable: true}
	if !known {
		reply.RCode = dnsmessage.RCodeNameError
	}
	b := dnsmessage.NewBuilder(nil, reply)
	if err := errors.Join(b.StartQuestions(), b.Question(q), b.StartAnswers()); err != nil {
		return nil, err
	}
	if known {
		n := asked[key+q.Type.String()]
		asked[key+q.Type.String()]++
		if err := addAnswers(&b, q, q.Name, lists[min(n, len(lists)-1)], answers); err != nil {
			return nil, err
		}
	}
	return b.Finish()
}

func addAnswers(b *dnsmessage.Builder, q dnsmessage.Question, name dnsmessage.Name, list []string,
	answers map[string][][]string) error {
	h := dnsmessage.ResourceHeader{Name: name, Class: q.Class, TTL: 0}
	for _, text := range list {
		a, err := netip.ParseAddr(text)
		switch {
		case err != nil:
			to := dnsmessage.MustNewName(text + ".")
			if err := b.CNAMEResource(h, dnsmessage.CNAMEResource{CNAME: to}); err != nil {
				return err
			}
			if err := addAnswers(b, q, to, answers[text][0], answers); err != nil {
				return err
			}
		case a.Is4() && q.Type == dnsmessage.TypeA:
			if err := b.AResource(h, dnsmessage.AResource{A: a.As4()}); err != nil {
				return err
			}
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			if err := b.AAAAResource(h, dnsmessage.AAAAResource{AAAA: a.As16()}); err != nil {
				return err
			}
		}
	}
	return nil
}

// authority signs certificates for names or addresses.
type authority struct {
	pool *x509.CertPool
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{pool: x509.NewCertPool(), key: key}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) issue(t *testing.T, host string, until time.Time) tls.Certificate {
	t.Helper()
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until}
	if ip := net.ParseIP(host); ip != nil {
		tmpl.IPAddresses = []net.IP{ip}
	} else {
		tmpl.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
}
