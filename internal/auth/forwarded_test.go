package auth

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/auth/authtest"
)

// proxyAddresses are the trusted addresses.
var proxyAddresses = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("2001:db8::/64")}

const fromTheProxy = "10.1.2.3:4567"

// forwards returns a request from an address, with the lines of the proxy's header.
func forwards(t testing.TB, from string, lines ...string) *http.Request {
	t.Helper()
	r := request(t)
	r.RemoteAddr = from
	for _, line := range lines {
		r.Header.Add("x-forwarded-client-cert", line)
	}
	return r
}

func TestForwardedCertificateAuthenticates(t *testing.T) {
	t.Parallel()
	const words = "spiffe://acme.example/words"
	ca := authtest.New(t, "clients")
	plain := ca.Issue(func(c *x509.Certificate) {
		c.Subject = pkix.Name{CommonName: "ann", Organization: []string{"acme"}}
	}).Leaf
	named := ca.Issue(func(c *x509.Certificate) {
		c.Subject = plain.Subject
		c.URIs = []*url.URL{authtest.URI(t, words), authtest.URI(t, "spiffe://acme.example/also")}
	}).Leaf
	old := ca.Issue(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) }).Leaf
	early := ca.Issue(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }).Leaf
	const malformed, many = "malformed forwarded certificate", "forwarded certificates of several proxies"
	// Envoy always quotes the subject, and never URIs and hosts.
	const begin = "By=spiffe://acme.example/proxy;Hash=0011;"
	for name, tc := range map[string]struct {
		from TenantFrom
		line string
		want string
	}{
		"URI":               {TenantFixed, begin + `Subject="";URI=` + words, "default/" + words},
		"URI, quoted":       {TenantFixed, `uri="` + words + `?a=b;c,d"`, "default/" + words + "?a=b;c,d"},
		"URI, trust domain": {TenantURIHost, "URI=" + words, "acme.example/" + words},
		"the first URI": {TenantURIHost,
			begin + "URI=" + words + ";URI=spiffe://other.example/x;DNS=a.example;DNS=b.example",
			"acme.example/" + words},
		"empty URI":             {TenantFixed, begin + `Subject="CN=ann";URI=`, "certificate without an owner"},
		"empty URI and another": {TenantFixed, `URI=;URI=` + words, "certificate without an owner"},
		"a URI after a host":    {TenantFixed, `DNS=x;URI=` + words, malformed},
		"a Cert after a host":   {TenantFixed, `DNS=x;DNS=y;Cert="` + authtest.Escaped(plain) + `"`, malformed},
		"no URI": {TenantFixed, begin + `Subject="CN=ann,O=acme"`,
			"certificate without an owner"},
		"URI without a host": {TenantURIHost, "URI=urn:x", "certificate without a tenant"},
		"organization is not in a URI": {TenantOrganization, `Subject="O=acme";URI=` + words,
			"certificate without a tenant"},
		"Cert": {TenantFixed, `Cert="` + authtest.Escaped(plain) + `"`, "default/ann"},
		"Cert, organization": {TenantOrganization, begin + `Cert="` + authtest.Escaped(plain) + `";URI=`,
			"acme/ann"},
		"Cert, trust domain": {TenantURIHost,
			begin + `CERT="` + authtest.Escaped(named) + `";Subject="CN=x\"\\";URI=` + words +
				";URI=spiffe://acme.example/also", "acme.example/" + words},
		"Cert, no URI": {TenantURIHost, `Cert="` + authtest.Escaped(plain) + `"`,
			"certificate without a tenant"},
		"Cert, another URI": {TenantFixed,
			`Cert="` + authtest.Escaped(named) + `";URI=spiffe://other.example/x`, malformed},
		"Cert, a URI it has not":   {TenantFixed, `Cert="` + authtest.Escaped(plain) + `";URI=` + words, malformed},
		"Cert, not the URI it has": {TenantFixed, `URI=;Cert="` + authtest.Escaped(named) + `"`, malformed},
		"Cert, expired":            {TenantFixed, `Cert="` + authtest.Escaped(old) + `"`, "expired certificate"},
		"Cert, not yet":            {TenantFixed, `Cert="` + authtest.Escaped(early) + `"`, "expired certificate"},
		"two Certs": {TenantFixed,
			`Cert="` + authtest.Escaped(plain) + `";Cert="` + authtest.Escaped(named) + `"`, malformed},
		"two certificates in one": {TenantFixed,
			`Cert="` + authtest.Escaped(plain) + authtest.Escaped(named) + `"`, malformed},
		"no certificate": {TenantFixed, `Cert=""`, malformed},
		"something else in PEM": {TenantFixed,
			`Cert="` + strings.ReplaceAll(authtest.Escaped(plain), "CERTIFICATE", "PUBLIC%20KEY") + `"`, malformed},
		"bad escape":              {TenantFixed, `Cert="%zz"`, malformed},
		"two elements":            {TenantFixed, "URI=spiffe://acme.example/edge,URI=" + words, many},
		"an empty second element": {TenantFixed, "URI=" + words + ",", many},
		"a comma in a URI":        {TenantFixed, "URI=" + words + ",By=x;URI=spiffe://acme.example/boss", many},
		"empty":                   {TenantFixed, "", malformed},
		"no value":                {TenantFixed, "URI", malformed},
		"no key":                  {TenantFixed, "=" + words, malformed},
		"a key with a space":      {TenantFixed, " URI=" + words, malformed},
		"beyond ASCII":            {TenantFixed, "By=\x8e;URI=" + words, malformed},
		"a space in a value":      {TenantFixed, "URI=" + words + " ;By=x", malformed},
		"a semicolon at the end":  {TenantFixed, "URI=" + words + ";", malformed},
		"an equals sign":          {TenantFixed, "URI=" + words + "?a=b", malformed},
		"a quote that has no end": {TenantFixed, `Subject="CN=x;URI=` + words, malformed},
		"a quote that is escaped": {TenantFixed, `Subject="CN=x\";URI=` + words, malformed},
		"a backslash at the end":  {TenantFixed, `URI=` + words + `;Subject="\`, malformed},
		"text after the quote":    {TenantFixed, `Subject="CN=x"y;URI=` + words, malformed},
		"a quote in the middle":   {TenantFixed, `URI=` + words + `"`, malformed},
		"a line in a quote":       {TenantFixed, "Subject=\"a\nb\";URI=" + words, malformed},
		"no URI at all":           {TenantFixed, "URI=ann", malformed},
		"a URI beyond ASCII":      {TenantFixed, "URI=spiffe://acme.example/ä", malformed},
		"a URI with a backslash":  {TenantFixed, `URI="spiffe://acme.example/a\\b"`, malformed},
		"a long URI": {TenantFixed, "URI=spiffe://" + strings.Repeat("a", 200),
			"certificate without an owner"},
	} {
		c := Certs{Tenant: "default", From: tc.from, Scopes: []Scope{ScopeTasksRead}, Proxies: proxyAddresses}
		p, err := Chain{c}.Authenticate(forwards(t, fromTheProxy, tc.line))
		var e *Error
		got := ""
		switch {
		case errors.As(err, &e):
			got = e.reason
		case err != nil:
			t.Errorf("%s: %v", name, err)
		default:
			got = p.Tenant + "/" + p.Owner
			if p.Actor() != "cert "+p.Owner || p.Kind != KindService || fmt.Sprint(p.Scopes) != "[tasks:read]" {
				t.Errorf("%s: %+v", name, p)
			}
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	_, err := Certs{Tenant: "default", Proxies: proxyAddresses}.Authenticate(forwards(t, fromTheProxy, "URI="+words,
		"URI="+words))
	refused(t, err, many)
}

// The address of the connection decides, not a header.
func TestOnlyTrustedProxiesForwardCertificates(t *testing.T) {
	t.Parallel()
	const line = "URI=spiffe://acme.example/words"
	const untrusted = "forwarded certificate from an address that is not trusted"
	own := authtest.New(t, "clients").Issue(nil).Leaf
	for name, tc := range map[string]struct {
		proxies []netip.Prefix
		from    string
		lines   []string
		own     bool // the connection has a certificate
		want    string
	}{
		"of a proxy": {proxyAddresses, fromTheProxy, []string{line}, false, "spiffe://acme.example/words"},
		"of a proxy, IPv6": {proxyAddresses, "[2001:db8::5]:1", []string{line}, false,
			"spiffe://acme.example/words"},
		"of a proxy, IPv4 in IPv6": {proxyAddresses, "[::ffff:10.1.2.3]:1", []string{line}, false,
			"spiffe://acme.example/words"},
		"of a proxy that has its own": {proxyAddresses, fromTheProxy, []string{line}, true,
			"spiffe://acme.example/words"},
		"a proxy's own":                     {proxyAddresses, fromTheProxy, nil, true, noCredential},
		"a proxy without any":               {proxyAddresses, fromTheProxy, nil, false, noCredential},
		"from elsewhere":                    {proxyAddresses, "10.2.0.1:1", []string{line}, false, untrusted},
		"from elsewhere, empty":             {proxyAddresses, "10.2.0.1:1", []string{""}, false, untrusted},
		"from elsewhere, of another":        {proxyAddresses, "10.2.0.1:1", []string{line}, true, untrusted},
		"from elsewhere, its own":           {proxyAddresses, "10.2.0.1:1", nil, true, "someone"},
		"from another network":              {proxyAddresses, "[2001:db8:0:1::5]:1", []string{line}, false, untrusted},
		"unknown address":                   {proxyAddresses, "@", []string{line}, false, untrusted},
		"no trusted proxy":                  {nil, fromTheProxy, []string{line}, false, untrusted},
		"no trusted proxy, own certificate": {nil, fromTheProxy, nil, true, "someone"},
	} {
		r := forwards(t, tc.from, tc.lines...)
		r.Header.Set("X-Forwarded-For", "10.1.2.3")
		if tc.own {
			r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{own}}}
		}
		p, err := Chain{Certs{Tenant: "t", Proxies: tc.proxies}}.Authenticate(r)
		var e *Error
		got := p.Owner
		if errors.As(err, &e) {
			got = e.reason
		}
		if got != tc.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tc.want)
		}
	}
}

// pairs finds the pairs of a well-formed header, in another way than parseForwarded.
var pairs = regexp.MustCompile(`(?:^|;)([A-Za-z]+)=("(?:[^"\\]|\\.)*"|[^;]*)`)

// firstPair returns the value of the first pair with a key.
func firstPair(line, key string) (string, bool) {
	for _, m := range pairs.FindAllStringSubmatch(line, -1) {
		if strings.EqualFold(m[1], key) {
			return strings.Trim(m[2], `"`), true
		}
	}
	return "", false
}

// FuzzForwarded checks that the owner is the first URI or the certificate in the header, or that there is no
// owner.
func FuzzForwarded(f *testing.F) {
	cert := authtest.Escaped(authtest.New(f, "clients").Issue(func(c *x509.Certificate) {
		c.URIs = []*url.URL{authtest.URI(f, "spiffe://acme.example/words")}
	}).Leaf)
	for _, seed := range []string{
		"URI=spiffe://a/b", `By=spiffe://p;Hash=00;Subject="CN=a\"b\\,O=c";URI=spiffe://a/b;DNS=c`,
		`Cert="` + cert + `"`, `Cert="` + cert + `";URI=spiffe://acme.example/words`,
		"URI=a,URI=b", `URI="`, `URI="\"`, ";;;", `uRi="a:b";Cert=`,
	} {
		f.Add(seed)
	}
	c := Certs{Tenant: "t", Proxies: proxyAddresses}
	f.Fuzz(func(t *testing.T, line string) {
		r := &http.Request{RemoteAddr: fromTheProxy, Header: http.Header{forwardedHeader: {line}}}
		p, err := Chain{c}.Authenticate(r)
		var e *Error
		if err != nil {
			if !errors.As(err, &e) || p.Owner != "" {
				t.Fatalf("%q: %+v, %v", line, p, err)
			}
			return
		}
		if escaped, ok := firstPair(line, "cert"); ok {
			text, _ := url.PathUnescape(escaped)
			block, _ := pem.Decode([]byte(text))
			if cert, err := x509.ParseCertificate(block.Bytes); err != nil || p.Owner != holderOf(cert).owner() {
				t.Fatalf("%q signed in as %q, %v", line, p.Owner, err)
			}
			return
		}
		name, _ := firstPair(line, "uri")
		if u, err := url.Parse(name); err != nil || u.String() != p.Owner {
			t.Fatalf("%q signed in as %q, want %q, %v", line, p.Owner, name, err)
		}
	})
}

// FuzzForwardedByEnvoy checks that no name in a certificate can pose as another owner. Envoy quotes only the
// subject, so a name may contain separators. The owner is then a prefix of the certificate's own URI, or the
// request is refused.
func FuzzForwardedByEnvoy(f *testing.F) {
	for _, seed := range [][3]string{
		{"ann", "spiffe://a/b", "c.example"}, {`a",URI=spiffe://x`, "spiffe://a/b,URI=spiffe://a/boss", ""},
		{`\`, "spiffe://a/b;URI=spiffe://a/boss", "x;URI=spiffe://a/boss"},
		{"", "", `x;URI=spiffe://a/boss`}, {"", `spiffe://a/b;Cert="x"`, ""}, {`"`, `"spiffe://a/b`, `"`},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, `,`, `\,`, `+`, `\+`, `<`, `\<`, `>`, `\>`, `;`, `\;`)
	c := Certs{Tenant: "t", Proxies: proxyAddresses}
	f.Fuzz(func(t *testing.T, subject, uri, host string) {
		if strings.HasPrefix(uri, `"`) {
			return // not a URI: a quote after it would make the name longer
		}
		sent := func(line string) (Principal, error) {
			return Chain{c}.Authenticate(&http.Request{RemoteAddr: fromTheProxy,
				Header: http.Header{forwardedHeader: {line}}})
		}
		line := `By=spiffe://p;Hash=00;Subject="CN=` + escape.Replace(subject) + `"`
		if p, err := sent(line + ";DNS=" + host); err == nil {
			t.Fatalf("%q without a URI signed in as %q", line, p.Owner)
		}
		line += ";URI=" + uri + ";DNS=" + host
		p, err := sent(line)
		if err != nil {
			return
		}
		first, _, _ := strings.Cut(uri, ";")
		if u, err := url.Parse(first); err != nil || u.String() != p.Owner {
			t.Fatalf("%q of %q signed in as %q", line, uri, p.Owner)
		}
	})
}
