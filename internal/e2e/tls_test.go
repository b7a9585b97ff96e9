package e2e_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth/authtest"
	"github.com/a2ad/a2ad/internal/client"
)

// trust holds the TLS files of listeners, and their authorities.
type trust struct {
	t                *testing.T
	servers, clients *authtest.Authority
	dir              string
	cert, key, ca    string
}

func newTrust(t *testing.T) *trust {
	t.Helper()
	tr := &trust{t: t, servers: authtest.New(t, "servers"), clients: authtest.New(t, "clients"), dir: t.TempDir()}
	tr.ca = filepath.Join(tr.dir, "ca.pem")
	tr.serve(tr.servers.Issue(nil))
	tr.letIn(tr.clients)
	return tr
}

// serve changes the certificate of the listeners.
func (tr *trust) serve(cert tls.Certificate) {
	tr.t.Helper()
	tr.cert, tr.key = authtest.Write(tr.t, tr.dir, cert)
}

// letIn changes the authorities whose certificates authenticate clients.
func (tr *trust) letIn(a *authtest.Authority) {
	tr.t.Helper()
	if err := os.WriteFile(tr.ca, a.PEM(), 0o600); err != nil {
		tr.t.Fatal(err)
	}
}

// disguise gives the files one size and one time, whatever they contain.
func (tr *trust) disguise() {
	tr.t.Helper()
	for _, path := range []string{tr.cert, tr.key, tr.ca} {
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, append(text, bytes.Repeat([]byte("\n"), 4096-len(text))...), 0o600)
		}
		if err == nil {
			err = os.Chtimes(path, time.Unix(1_000_000_000, 0), time.Unix(1_000_000_000, 0))
		}
		if err != nil {
			tr.t.Fatal(err)
		}
	}
}

// env returns the settings of a replica with these files, and more.
func (tr *trust) env(more ...string) []string {
	return append([]string{"A2AD_AUTH=required", "A2AD_DB_POOL=4", "A2AD_TLS_CERT=" + tr.cert, "A2AD_TLS_KEY=" + tr.key,
		"A2AD_TLS_CLIENT_CA=" + tr.ca}, more...)
}

// shows returns a client that presents a certificate whatever authorities the server asks for, or none if cert is
// nil.
func (tr *trust) shows(cert *tls.Certificate) badge { return shows(tr.servers, cert) }

func shows(servers *authtest.Authority, cert *tls.Certificate) badge {
	if cert == nil {
		cert = &tls.Certificate{}
	}
	return badge{secure: &tls.Config{RootCAs: servers.Pool(),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }}}
}

// of returns a function that makes a certificate one of an owner, with an optional organization and URIs.
func of(owner, organization string, uris ...*url.URL) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		if c.Subject = (pkix.Name{CommonName: owner}); organization != "" {
			c.Subject.Organization = []string{organization}
		}
		c.URIs = uris
	}
}

// A client certificate authenticates over every binding, with the tenant from the configured field. Other
// certificates get no connection.
func TestClientCertificatesAuthenticate(t *testing.T) {
	t.Parallel()
	c, tr := newCluster(t), newTrust(t)
	c.http.TLSClientConfig, c.mixed = tr.shows(nil).secure, true
	spiffe := authtest.URI(t, "spiffe://acme.example/words")
	ann, bob := tr.clients.Issue(of("ann", "acme")), tr.clients.Issue(of("bob", "acme"))
	eve, words := tr.clients.Issue(of("ann", "other")), tr.clients.Issue(of("ann", "acme", spiffe))
	fixed := c.start("fixed", tr.env("A2AD_MTLS_TENANT=house")...)
	organization := c.start("organization", tr.env("A2AD_MTLS_TENANT_FROM=organization",
		"A2AD_GRPC_LISTEN=127.0.0.1:0")...)
	domain := c.start("domain", tr.env("A2AD_MTLS_TENANT_FROM=uri-host")...)
	reader := c.start("reader", tr.env("A2AD_MTLS_SCOPES=tasks:read")...)
	send := func(r *replica, b badge, header ...string) (string, httpAnswer) {
		t.Helper()
		a, err := b.ask(t, r, http.MethodPost, "/", message(""), header...)
		if err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
		var task struct{ ID string }
		_ = json.Unmarshal(a.result, &task) // a refusal has none
		return task.ID, a
	}
	for _, tc := range []struct {
		at   *replica
		cert tls.Certificate
		want string
	}{
		{fixed, ann, "house ann"}, {fixed, words, "house " + spiffe.String()}, {organization, eve, "other ann"},
		{organization, words, "acme " + spiffe.String()},
		{domain, words, "acme.example " + spiffe.String()},
	} {
		task, answer := send(tc.at, tr.shows(&tc.cert))
		if got := one[string](c, `SELECT coalesce(max(tenant || ' ' || owner), '') FROM audit.task WHERE id::text = $1`,
			task); got != tc.want {
			t.Errorf("at %s the task is of %q, want %q: %s", tc.at.name, got, tc.want, answer.body)
		}
	}
	if _, a := send(reader, tr.shows(&ann)); a.status != http.StatusForbidden ||
		!strings.Contains(a.header.Get("WWW-Authenticate"), `scope="tasks:write"`) {
		t.Errorf("without the scope: %d %v", a.status, a.header)
	}
	if a, err := tr.shows(&ann).list(t, reader); err != nil || a.status != http.StatusOK || a.code != 0 {
		t.Errorf("with the scope: %v, %d %s", err, a.status, a.body)
	}

	task, _ := send(organization, tr.shows(&ann))
	expired := tr.clients.Issue(func(c *x509.Certificate) {
		of("ann",
			"acme")(c)
		c.NotAfter = time.Now().Add(-time.Minute)
	})
	server := tr.clients.Issue(func(c *x509.Certificate) {
		of("ann", "acme")(c)
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
	other := authtest.New(t, "clients").Issue(of("ann", "acme"))
	own := tr.servers.Issue(of("ann", "acme")) // from an authority that is trusted for another purpose
	bad := map[string]badge{"an expired one": tr.shows(&expired), "one for servers": tr.shows(&server),
		"one of another authority": tr.shows(&other), "one of the server's authority": tr.shows(&own)}
	for who, b := range bad {
		for _, r := range []*replica{fixed, organization} {
			if a, err := b.list(t, r); err == nil {
				t.Errorf("%s with %s: %d %s", r.name, who, a.status, a.body)
			}
		}
	}
	bad["nobody"] = tr.shows(nil)
	checkIsolation(t, organization, task, tr.shows(&ann),
		map[string]badge{"an owner of the tenant": tr.shows(&bob), "one of another tenant": tr.shows(&eve),
			"one with a URI": tr.shows(&words)}, bad)
	if a, err := tr.shows(nil).list(t, organization); err != nil || a.status != http.StatusUnauthorized ||
		!slices.Equal(a.header.Values("WWW-Authenticate"),
			[]string{`Bearer realm="a2ad"`, `ApiKey realm="a2ad", header="X-API-Key"`}) {
		t.Errorf("without any: %v, %d %v", err, a.status, a.header)
	}
	if a, err := tr.shows(&words).list(t, domain); err != nil || a.status != http.StatusOK {
		t.Errorf("with a trust domain: %v, %d", err, a.status)
	}
	if a, err := tr.shows(&ann).list(t, domain); err != nil || a.status != http.StatusUnauthorized {
		t.Errorf("without a trust domain: %v, %d", err, a.status)
	}

	// Over TLS an API key needs no certificate, and wins over one.
	key, bobs := c.apiKey("acme", "ann", "tasks:read,tasks:write"), c.apiKey("acme", "bob", "tasks:read,tasks:write")
	for name, tc := range map[string]struct {
		b    badge
		key  string
		want bool
	}{
		"a key":                                         {tr.shows(nil), key, true},
		"bob's key only":                                {tr.shows(nil), bobs, false},
		"bob's key with ann's certificate":              {tr.shows(&ann), bobs, false},
		"a bad key with ann's certificate":              {tr.shows(&ann), "a2ad_live_x", false},
		"ann's key with bob's certificate":              {tr.shows(&bob), key, true},
		"a key with a bad certificate":                  {bad["an expired one"], key, false},
		"a key with a certificate of another authority": {bad["one of another authority"], key, false},
	} {
		if found, _, words := bindings["1.0 JSON-RPC"](t, organization, tc.b.with("X-API-Key", tc.key),
			task); found != tc.want {
			t.Errorf("%s: %s", name, words)
		}
	}
	plain := strings.TrimPrefix(organization.base, "https://")
	if resp, err := http.DefaultTransport.RoundTrip(&http.Request{Method: http.MethodGet,
		URL: &url.URL{Scheme: "http", Host: plain, Path: "/.well-known/agent-card.json"}}); err == nil {
		if resp.Body.Close(); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("without TLS: %s", resp.Status)
		}
	}
	domain.stop()
	const rows = `SELECT coalesce(string_agg(actor || ' ' || detail, '; '), '') FROM audit.action
		WHERE action = 'signin.failed' AND detail->>'reason' = 'certificate without a tenant'`
	if got := one[string](c, rows); got != `address 127.0.0.1 {"count":1,"reason":"certificate without a tenant"}` {
		t.Errorf("recorded: %s", got)
	}
}

// TLS files are read again when they change, and on SIGHUP even if the change is invisible. An unusable file changes
// nothing, and connections stay open.
func TestTLSFilesAreReloaded(t *testing.T) {
	t.Parallel()
	c, tr := newCluster(t), newTrust(t)
	ann := tr.clients.Issue(of("ann", ""))
	firsts := tr.servers
	c.http.TLSClientConfig = shows(firsts, nil).secure
	a := c.start("a", tr.env()...)

	// A stream on a connection that ann's certificate has authenticated, and one more connection that stays open.
	transport := shows(firsts, &ann).transport()
	defer transport.CloseIdleConnections()
	live := &client.Client{URL: "https://replica/agents/script", Tries: -1,
		HTTP: &http.Client{Transport: &recorder{log: c.log, next: transport, pick: func(int) *replica { return a },
			name: "live"}}}
	begun := make(chan string, 1)
	type outcome struct {
		events []client.Event
		err    error
	}
	ended := make(chan outcome, 1)
	ctx := bounded(t)
	go func() {
		events, err := collect(live.Stream(ctx,
			client.SendParams{Message: play(`{"op":"chunk","id":"a","n":1},{"op":"hang"}`)}, client.StreamOptions{}),
			func(ev client.Event) bool {
				if atLast(ev, "a", 0) {
					begun <- ev.TaskID
				}
				return false
			})
		ended <- outcome{events, err}
	}()
	var task string
	select {
	case task = <-begun:
	case got := <-ended:
		t.Fatalf("the stream: %v", got.err)
	}

	served := func(by *authtest.Authority) bool {
		answer, err := shows(by, nil).list(t, a)
		return err == nil && answer.status == http.StatusUnauthorized
	}
	signsIn := func(by *authtest.Authority, cert *tls.Certificate) bool {
		answer, err := shows(by, cert).list(t, a)
		return err == nil && answer.status == http.StatusOK
	}
	const unusable = "the certificate of the listeners is used unchanged"
	reports := func() int { return a.log.count(func(l logLine) bool { return l.str("msg") == unusable }) }

	// Another certificate.
	seconds := authtest.New(t, "servers")
	tr.serve(seconds.Issue(nil))
	until(t, "the new certificate is served", func() bool { return served(seconds) })
	if served(firsts) {
		t.Error("the old certificate is served as well")
	}

	// A file without a key.
	before := reports()
	if err := os.WriteFile(tr.key, []byte("no key at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "the log reports the broken key", func() bool { return served(seconds) && reports() > before })
	line := a.awaitLog(unusable,
		func(l logLine) bool { return strings.Contains(l.str("err"), "failed to find any PEM data") })
	if line.str("level") != "ERROR" {
		t.Errorf("the log says %v", line)
	}
	before = reports()
	for range 5 {
		if !served(seconds) || !signsIn(seconds, &ann) {
			t.Error("a broken key changes the certificate that is served")
		}
	}
	if n := reports() - before; n != 0 {
		t.Errorf("the same fault is logged %d more times", n)
	}
	a.signal(syscall.SIGHUP)
	untilChange(t, "the log reports the broken key on SIGHUP", a.log.next, func() bool { return reports() == before+1 })
	if !served(seconds) {
		t.Error("a broken key changes what is served on SIGHUP")
	}

	// The stream was not affected.
	c.http.TLSClientConfig = shows(seconds, nil).secure
	c.http.CloseIdleConnections()
	c.key = c.apiKey("default", "ann", "tasks:read,tasks:write")
	cl := c.client(a, "script")
	cl.APIKey = c.key
	if _, err := cl.Cancel(ctx, task); err != nil {
		t.Fatal(err)
	}
	got := <-ended
	if got.err != nil {
		t.Fatalf("the stream: %v", got.err)
	}
	endsWith(t, got.events, a2a.StateCanceled)
	a.awaitLog("request", func(l logLine) bool {
		return l.str("task_id") == task && l.str("method") == "message/stream" && l.num("status") == http.StatusOK
	})

	// A file without authorities, then other authorities.
	tr.serve(seconds.Issue(nil))
	if err := os.WriteFile(tr.ca, []byte("nobody"), 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "the log reports the authorities", func() bool {
		return served(seconds) && a.log.count(func(l logLine) bool {
			return l.str("msg") == unusable && strings.Contains(l.str("err"), "it contains no certificate")
		}) > 0
	})
	if !signsIn(seconds, &ann) {
		t.Error("an unreadable file of authorities lets no client in")
	}
	others := authtest.New(t, "clients")
	bob := others.Issue(of("bob", ""))
	if _, err := shows(seconds, &bob).list(t, a); err == nil {
		t.Error("a certificate of an authority that is not yet configured is accepted")
	}
	tr.letIn(others)
	until(t, "the new authority's certificates are accepted", func() bool { return signsIn(seconds, &bob) })
	if _, err := shows(seconds, &ann).list(t, a); err == nil {
		t.Error("the old authority's certificates are still accepted")
	}

	// An invisible change: same size and time.
	thirds, fourths := authtest.New(t, "servers"), authtest.New(t, "servers")
	tr.serve(thirds.Issue(nil))
	tr.disguise()
	until(t, "the certificate in disguise is served", func() bool { return served(thirds) })
	tr.serve(fourths.Issue(nil))
	tr.disguise()
	reloads := a.log.count(func(l logLine) bool { return l.str("msg") == "agent files reloaded" })
	a.signal(syscall.SIGHUP)
	untilChange(t, "SIGHUP is handled", a.log.next, func() bool {
		return a.log.count(func(l logLine) bool { return l.str("msg") == "agent files reloaded" }) > reloads
	})
	if !served(fourths) || !signsIn(fourths, &bob) {
		t.Error("on SIGHUP the files are not read again")
	}
	c.http.TLSClientConfig = shows(fourths, nil).secure // for the checks at the end
	c.http.CloseIdleConnections()
}
