package e2e_test

import (
	"crypto/x509"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/auth/authtest"
)

const forwardedHeader = "X-Forwarded-Client-Cert"

// A certificate forwarded by a named proxy authenticates its owner over every binding, like the certificate itself.
// The same header from another address is refused.
func TestForwardedCertificatesAuthenticate(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.mixed = true
	clients := authtest.New(t, "clients")
	says := func(line string) badge { return badge{from: "127.0.0.1"}.with(forwardedHeader, line) }
	cert := func(change func(*x509.Certificate)) badge {
		return says(`Hash=00;Cert="` + authtest.Escaped(clients.Issue(change).Leaf) + `";Subject="O=boss";URI=`)
	}
	ann, bob, eve := cert(of("ann", "acme")), cert(of("bob", "acme")), cert(of("ann", "other"))
	a := c.start("a", "A2AD_AUTH=required", "A2AD_DB_POOL=4", "A2AD_GRPC_LISTEN=127.0.0.1:0",
		"A2AD_MTLS_PROXIES=127.0.0.1", "A2AD_MTLS_TENANT_FROM=organization", "A2AD_TRUSTED_PROXIES=127.0.0.0/8")
	made, err := ann.ask(t, a, http.MethodPost, "/", message(""))
	if err != nil {
		t.Fatal(err)
	}
	var task struct{ ID string }
	if err := json.Unmarshal(made.result, &task); err != nil {
		t.Fatalf("%v: %d %s", err, made.status, made.body)
	}
	if got := one[string](c, `SELECT tenant || ' ' || owner FROM audit.task WHERE id::text = $1`,
		task.ID); got != "acme ann" {
		t.Errorf("the task is of %q", got)
	}
	elsewhere := ann
	elsewhere.from = "127.0.0.2"
	checkIsolation(t, a, task.ID, ann, map[string]badge{"an owner of the tenant": bob, "one of another tenant": eve},
		map[string]badge{
			"no certificate":           {from: "127.0.0.1"},
			"another address":          elsewhere,
			"a forged X-Forwarded-For": elsewhere.with("X-Forwarded-For", "127.0.0.1"),
			"two certificates":         says(ann.header.Get(forwardedHeader) + "," + ann.header.Get(forwardedHeader)),
			"a name only":              says(`Subject="CN=ann,O=acme"`),
			"an expired certificate": cert(func(x *x509.Certificate) {
				of("ann", "acme")(x)
				x.NotAfter = time.Now().Add(-time.Minute)
			}),
			"a certificate without a tenant": says("URI=spiffe://acme/ann"),
			"a header of the client's own":   says(ann.header.Get(forwardedHeader) + ";"),
		})
	key := c.apiKey("acme", "ann", "tasks:read")
	for who, b := range map[string]badge{"elsewhere": elsewhere, "as bob": bob, "an unreadable header": says("?")} {
		if found, _, words := bindings["1.0 gRPC"](t, a, b.with("X-API-Key", key), task.ID); !found {
			t.Errorf("ann's key %s: %s", who, words)
		}
	}
	for version, want := range map[string]string{"0.3": `"mtls":{"type":"mutualTLS"`,
		"1.0": `"mtls":{"mtlsSecurityScheme":{`} {
		if card, err := elsewhere.ask(t, a, http.MethodGet, "/.well-known/agent-card.json", "", "A2A-Version",
			version); err != nil || card.status != http.StatusOK || !strings.Contains(string(card.body), want) {
			t.Errorf("card of %s: %v, %d %s", version, err, card.status, card.body)
		}
	}
	a.stop()
	const rows = `SELECT coalesce(string_agg(DISTINCT actor || ' ' || (detail->>'reason'), '; '), '')
		FROM audit.action WHERE action = 'signin.failed'`
	want := "address 127.0.0.1 certificate without a tenant; address 127.0.0.1 certificate without an owner; " +
		"address 127.0.0.1 expired certificate; " +
		"address 127.0.0.1 forwarded certificate from an address that is not trusted; " +
		"address 127.0.0.1 forwarded certificates of several proxies; " +
		"address 127.0.0.1 malformed forwarded certificate; address 127.0.0.2 forwarded certificate from an " +
		"address that is not trusted"
	if got := one[string](c, rows); got != want {
		t.Errorf("recorded: %s\nwant %s", got, want)
	}
}
