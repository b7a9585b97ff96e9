package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// authority issues certificates.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.key = a.make(template, template, nil)
	return a
}

func (a *authority) make(template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// issue makes a certificate for clients and for 127.0.0.1.
func (a *authority) issue(change func(*x509.Certificate)) tls.Certificate {
	a.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "someone"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if change != nil {
		change(template)
	}
	cert, key := a.make(template, a.cert, a.key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// write puts a certificate and its key into files.
func write(t *testing.T, dir string, c tls.Certificate) (cert, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: c.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// tlsServer answers with who the client is.
func tlsServer(t *testing.T, cert *ServerCert, c Certs) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := Chain{c}.Authenticate(r)
		var e *Error
		if errors.As(err, &e) {
			http.Error(w, e.reason, e.StatusCode())
			return
		}
		fmt.Fprintf(w, "%s/%s %s %s %v", p.Tenant, p.Owner, p.Actor(), p.Kind, p.Scopes)
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Listener = tls.NewListener(server.Listener, cert.Config())
	server.Start()
	t.Cleanup(server.Close)
	return "https://" + server.Listener.Addr().String()
}

func ask(t *testing.T, url string, roots *x509.CertPool, certs ...tls.Certificate) (string, *tls.ConnectionState, error) {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certs}, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get(url)
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return strings.TrimSpace(string(body)), resp.TLS, err
}

func TestClientCertificateAuthenticates(t *testing.T) {
	t.Parallel()
	servers, clients, strangers := newAuthority(t, "servers"), newAuthority(t, "clients"), newAuthority(t, "strangers")
	dir := t.TempDir()
	certFile, keyFile := write(t, dir, servers.issue(nil))
	caFile := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(caFile, clients.pem(), 0o600); err != nil {
		t.Fatal(err)
	}
	cert, err := NewServerCert(certFile, keyFile, caFile, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	spiffe, err := url.Parse("spiffe://acme.example/words/worker")
	if err != nil {
		t.Fatal(err)
	}
	plain := func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: "ann", Organization: []string{"acme"}} }
	named := func(c *x509.Certificate) { plain(c); c.URIs = []*url.URL{spiffe} }
	for name, tc := range map[string]struct {
		from   TenantFrom
		change func(*x509.Certificate)
		want   string
	}{
		"common name":       {TenantFixed, plain, "default/ann cert ann service [tasks:read]"},
		"URI":               {TenantFixed, named, "default/spiffe://acme.example/words/worker cert spiffe://acme.example/words/worker service [tasks:read]"},
		"organization":      {TenantOrganization, plain, "acme/ann cert ann service [tasks:read]"},
		"trust domain":      {TenantURIHost, named, "acme.example/spiffe://acme.example/words/worker cert spiffe://acme.example/words/worker service [tasks:read]"},
		"no URI":            {TenantURIHost, plain, "certificate without a tenant"},
		"two organizations": {TenantOrganization, func(c *x509.Certificate) { c.Subject.Organization = []string{"a", "b"} }, "certificate without a tenant"},
		"no organization":   {TenantOrganization, nil, "certificate without a tenant"},
		"no name":           {TenantFixed, func(c *x509.Certificate) { c.Subject = pkix.Name{} }, "certificate without an owner"},
	} {
		at := tlsServer(t, cert, Certs{Tenant: "default", From: tc.from, Scopes: []Scope{ScopeTasksRead}})
		got, state, err := ask(t, at, servers.pool(), clients.issue(tc.change))
		if err != nil || got != tc.want || state.NegotiatedProtocol != "h2" || state.Version < tls.VersionTLS12 {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tc.want)
		}
	}
	at := tlsServer(t, cert, Certs{Tenant: "default"})
	if got, _, err := ask(t, at, servers.pool()); err != nil || got != noCredential {
		t.Errorf("without a certificate: %q, %v", got, err)
	}
	for name, bad := range map[string]tls.Certificate{
		"of another authority": strangers.issue(plain),
		"expired":              clients.issue(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }),
		"for servers":          clients.issue(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }),
	} {
		bad.Leaf = nil
		tr := &tls.Config{RootCAs: servers.pool(), GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &bad, nil }}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: tr}}
		if resp, err := client.Get(at); err == nil {
			resp.Body.Close()
			t.Errorf("a certificate %s: %s", name, resp.Status)
		}
		client.CloseIdleConnections()
	}
	leaf := clients.issue(func(c *x509.Certificate) { plain(c); c.NotAfter = time.Now().Add(-time.Second) }).Leaf
	r := request(t)
	r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}
	_, err = Certs{Tenant: "t"}.Authenticate(r)
	refused(t, err, "expired certificate")
}

// TestCertificateIsReadAgain: what was changed is used by the next connection, and what cannot be
// used leaves all as it was.
func TestCertificateIsReadAgain(t *testing.T) {
	t.Parallel()
	first, second := newAuthority(t, "first"), newAuthority(t, "second")
	dir := t.TempDir()
	certFile, keyFile := write(t, dir, first.issue(nil))
	failures := make(chan error, 10)
	cert, err := NewServerCert(certFile, keyFile, "", func(err error) { failures <- err })
	if err != nil {
		t.Fatal(err)
	}
	at := tlsServer(t, cert, Certs{})
	later := func() { // than the last look
		cert.mu.Lock()
		cert.checked = time.Time{}
		cert.mu.Unlock()
	}
	if _, _, err := ask(t, at, first.pool()); err != nil {
		t.Fatal(err)
	}
	write(t, dir, second.issue(nil))
	later()
	if _, _, err := ask(t, at, second.pool()); err != nil {
		t.Errorf("after a change: %v", err)
	}
	if err := os.WriteFile(keyFile, []byte("no key at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		later()
		if _, _, err := ask(t, at, second.pool()); err != nil {
			t.Errorf("with a broken file: %v", err)
		}
	}
	if len(failures) != 1 {
		t.Errorf("told %d times of the broken file, want once", len(failures))
	}
	if err := cert.Reload(); err == nil {
		t.Error("Reload of a broken file")
	}
	if _, err := NewServerCert(certFile, filepath.Join(dir, "none"), "", nil); err == nil {
		t.Error("a key that is not there")
	}
	certFile, keyFile = write(t, dir, first.issue(nil))
	if _, err := NewServerCert(certFile, keyFile, keyFile, nil); !errors.Is(err, errNoAuthority) {
		t.Errorf("authorities without a certificate: %v", err)
	}
}

func TestFailuresAreGathered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := make(map[Failure]int)
		f := &Failures{Record: func(_ context.Context, row Failure) { got[row]++ }}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		for i := range 300 {
			f.Note(fmt.Sprintf("192.0.2.1:%d", 1000+i), refuse("wrong secret", "k1"))
			f.Note("192.0.2.2:5", refuse("wrong secret", fmt.Sprint("k", i)))
			f.Note("192.0.2.1:5", refuse(noCredential, ""))
		}
		time.Sleep(failureEvery)
		synctest.Wait()
		if len(got) != 2 || got[Failure{"192.0.2.1", "wrong secret", "k1", 300}] != 1 || got[Failure{"192.0.2.2", "wrong secret", "", 300}] != 1 {
			t.Errorf("after a minute: %v", got)
		}
		clear(got)
		for i := range 3 * maxFailures {
			f.Note(fmt.Sprintf("[2001:db8::%x]:1", i), refuse("unknown key", ""))
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(got) != maxFailures+1 || got[Failure{"", "unknown key", "", 2 * maxFailures}] != 1 {
			t.Errorf("from many addresses: %d rows", len(got))
		}
	})
}
