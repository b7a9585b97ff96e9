package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/auth/authtest"
)

// tlsServer answers with the principal of the client.
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

func ask(t *testing.T, url string, roots *x509.CertPool,
	certs ...tls.Certificate) (string, *tls.ConnectionState, error) {
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
	servers, clients, strangers := authtest.New(t, "servers"), authtest.New(t, "clients"), authtest.New(t, "strangers")
	dir := t.TempDir()
	certFile, keyFile := authtest.Write(t, dir, servers.Issue(nil))
	caFile := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(caFile, clients.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	cert, err := NewServerCert(certFile, keyFile, caFile, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	spiffe := authtest.URI(t, "spiffe://acme.example/words/worker")
	plain := func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: "ann", Organization: []string{"acme"}} }
	named := func(c *x509.Certificate) { plain(c); c.URIs = []*url.URL{spiffe} }
	for name, tc := range map[string]struct {
		from   TenantFrom
		change func(*x509.Certificate)
		want   string
	}{
		"common name": {TenantFixed, plain, "default/ann cert ann service [tasks:read]"},
		"URI": {TenantFixed, named,
			"default/spiffe://acme.example/words/worker cert spiffe://acme.example/words/worker service [tasks:read]"},
		"organization": {TenantOrganization, plain, "acme/ann cert ann service [tasks:read]"},
		"trust domain": {TenantURIHost, named,
			"acme.example/spiffe://acme.example/words/worker cert spiffe://acme.example/words/worker service " +
				"[tasks:read]"},
		"no URI": {TenantURIHost, plain, "certificate without a tenant"},
		"two organizations": {TenantOrganization, func(c *x509.Certificate) {
			c.Subject.Organization = []string{"a", "b"}
		}, "certificate without a tenant"},
		"no organization": {TenantOrganization, nil, "certificate without a tenant"},
		"no name": {TenantFixed, func(c *x509.Certificate) {
			c.Subject = pkix.Name{}
		}, "certificate without an owner"},
	} {
		at := tlsServer(t, cert, Certs{Tenant: "default", From: tc.from, Scopes: []Scope{ScopeTasksRead}})
		got, state, err := ask(t, at, servers.Pool(), clients.Issue(tc.change))
		if err != nil || got != tc.want || state.NegotiatedProtocol != "h2" || state.Version < tls.VersionTLS12 {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tc.want)
		}
	}
	at := tlsServer(t, cert, Certs{Tenant: "default"})
	if got, _, err := ask(t, at, servers.Pool()); err != nil || got != noCredential {
		t.Errorf("without a certificate: %q, %v", got, err)
	}
	for name, bad := range map[string]tls.Certificate{
		"of another authority": strangers.Issue(plain),
		"expired":              clients.Issue(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }),
		"for servers": clients.Issue(func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}),
	} {
		bad.Leaf = nil
		tr := &tls.Config{RootCAs: servers.Pool(),
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &bad, nil }}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: tr}}
		if resp, err := client.Get(at); err == nil {
			resp.Body.Close()
			t.Errorf("a certificate %s: %s", name, resp.Status)
		}
		client.CloseIdleConnections()
	}
	leaf := clients.Issue(func(c *x509.Certificate) { plain(c); c.NotAfter = time.Now().Add(-time.Second) }).Leaf
	r := request(t)
	r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}
	_, err = Certs{Tenant: "t"}.Authenticate(r)
	refused(t, err, "expired certificate")
}

// A resumed session would not check the authorities again. TLS before 1.2 is not secure.
func TestConnectionsUseNewSessionsAndTLS12(t *testing.T) {
	t.Parallel()
	servers, clients := authtest.New(t, "servers"), authtest.New(t, "clients")
	dir := t.TempDir()
	certFile, keyFile := authtest.Write(t, dir, servers.Issue(nil))
	caFile := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(caFile, clients.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	resumed := map[string]bool{}
	for _, ca := range []string{caFile, ""} {
		cert, err := NewServerCert(certFile, keyFile, ca, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		at := tlsServer(t, cert, Certs{Tenant: "t"})
		for version, ok := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false,
			tls.VersionTLS12: true, tls.VersionTLS13: true} {
			cfg := &tls.Config{
				RootCAs: servers.Pool(), Certificates: []tls.Certificate{clients.Issue(nil)},
				ClientSessionCache: tls.NewLRUClientSessionCache(1),
				MinVersion:         version, MaxVersion: version,
			}
			for range 2 {
				tr := &http.Transport{TLSClientConfig: cfg}
				resp, err := (&http.Client{Transport: tr}).Get(at)
				if (err == nil) != ok {
					t.Errorf("%s: %v", tls.VersionName(version), err)
				}
				if err == nil {
					resumed[ca] = resumed[ca] || resp.TLS.DidResume
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				tr.CloseIdleConnections()
			}
		}
	}
	if resumed[caFile] || !resumed[""] {
		t.Errorf("resumed with authorities of clients: %t, want false; and without: %t, want true", resumed[caFile],
			resumed[""])
	}
}

// The next connection uses changed files. Files that cannot be used change nothing.
func TestChangedCertificateIsReloaded(t *testing.T) {
	t.Parallel()
	first, second := authtest.New(t, "first"), authtest.New(t, "second")
	dir := t.TempDir()
	certFile, keyFile := authtest.Write(t, dir, first.Issue(nil))
	failures := make(chan error, 10)
	cert, err := NewServerCert(certFile, keyFile, "", func(err error) { failures <- err })
	if err != nil {
		t.Fatal(err)
	}
	at := tlsServer(t, cert, Certs{})
	later := func() { // after the last check of the files
		cert.mu.Lock()
		cert.checked = time.Time{}
		cert.mu.Unlock()
	}
	if _, _, err := ask(t, at, first.Pool()); err != nil {
		t.Fatal(err)
	}
	authtest.Write(t, dir, second.Issue(nil))
	later()
	if _, _, err := ask(t, at, second.Pool()); err != nil {
		t.Errorf("after a change: %v", err)
	}
	if err := os.WriteFile(keyFile, []byte("no key at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		later()
		if _, _, err := ask(t, at, second.Pool()); err != nil {
			t.Errorf("with a broken file: %v", err)
		}
	}
	if len(failures) != 1 {
		t.Errorf("got %d reports of the broken file, want 1", len(failures))
	}
	if err := cert.Reload(); err == nil {
		t.Error("Reload of a broken file")
	}
	if _, err := NewServerCert(certFile, filepath.Join(dir, "none"), "", nil); err == nil {
		t.Error("a key that is not there")
	}
	certFile, keyFile = authtest.Write(t, dir, first.Issue(nil))
	if _, err := NewServerCert(certFile, keyFile, keyFile, nil); !errors.Is(err, errNoAuthority) {
		t.Errorf("authorities without a certificate: %v", err)
	}
}

func TestFailuresAreGrouped(t *testing.T) {
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
		if len(got) != 2 || got[Failure{"192.0.2.1", "wrong secret", "k1", 300}] != 1 ||
			got[Failure{"192.0.2.2", "wrong secret", "", 300}] != 1 {
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

// A removed authority authenticates no client, also on existing connections, and requests in flight end.
func TestRemovedAuthorityEndsItsSessions(t *testing.T) {
	t.Parallel()
	servers, old, kept := authtest.New(t, "servers"), authtest.New(t, "old"), authtest.New(t, "kept")
	dir := t.TempDir()
	certFile, keyFile := authtest.Write(t, dir, servers.Issue(nil))
	caFile := filepath.Join(dir, "ca.pem")
	write := func(pem []byte) {
		t.Helper()
		if err := os.WriteFile(caFile, pem, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(append(old.PEM(), kept.PEM()...))
	cert, err := NewServerCert(certFile, keyFile, caFile, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	certs := Certs{Tenant: "t", From: TenantFixed, Trusts: cert.Trusts}
	sessions := NewSessions(Chain{certs}, time.Hour)
	entered := make(chan *Session, 2)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := Chain{certs}.Authenticate(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		entered <- sessions.Enter(r, p)
	}))
	server.Listener = tls.NewListener(server.Listener, cert.Config())
	server.Start()
	t.Cleanup(server.Close)
	named := func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: "ann"} }
	get := func(tr *http.Transport) (status int) {
		t.Helper()
		resp, err := (&http.Client{Transport: tr}).Get("https://" + server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil { // so that the connection is reused
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	transports, streams := map[string]*http.Transport{}, map[string]*Session{}
	for name, ca := range map[string]*authtest.Authority{"old": old, "kept": kept} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: servers.Pool(),
			Certificates: []tls.Certificate{ca.Issue(named)}}}
		t.Cleanup(tr.CloseIdleConnections)
		if status := get(tr); status != http.StatusOK {
			t.Fatalf("%s: status %d", name, status)
		}
		transports[name], streams[name] = tr, <-entered
	}
	write(kept.PEM())
	if err := cert.Reload(); err != nil {
		t.Fatal(err)
	}
	sessions.check(t.Context(), MethodCert)
	if streams["old"].ctx.Err() == nil {
		t.Error("the request of the removed authority's client did not end")
	}
	if streams["kept"].ctx.Err() != nil {
		t.Errorf("the request of the other authority's client has ended: %v", context.Cause(streams["kept"].ctx))
	}
	if status := get(transports["old"]); status != http.StatusUnauthorized {
		t.Errorf("a request on a connection of the removed authority: status %d", status)
	}
	if status := get(transports["kept"]); status != http.StatusOK {
		t.Errorf("a request on a connection of the other authority: status %d", status)
	}
}
