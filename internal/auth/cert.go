package auth

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
)

// TenantFrom says what of a certificate names the tenant.
type TenantFrom string

// What may name it.
const (
	TenantFixed        TenantFrom = "fixed"        // nothing: all certificates are of one tenant
	TenantOrganization TenantFrom = "organization" // the O of the subject, of which there must be one
	TenantURIHost      TenantFrom = "uri-host"     // the host of the URI that names the owner: the trust domain of SPIFFE
)

// Certs authenticates client certificates: those that the listener has verified, and those that a
// trusted proxy says it has. The owner is the first URI of a certificate, else its common name.
type Certs struct {
	Tenant string // with TenantFixed
	From   TenantFrom
	Scopes []Scope // what every certificate permits

	// Trusts says whether an authority by which the listener verified a certificate is still one, by the chains of that
	// certificate. A connection may be older than the list of authorities. Nil: it is.
	Trusts func(chains [][]*x509.Certificate) bool

	// Proxies are who is believed in X-Forwarded-Client-Cert, by the address of the connection. A
	// certificate that one of them shows itself signs nobody in: its requests are those of others.
	Proxies []netip.Prefix
}

// Challenges returns none: a certificate is asked for before any request.
func (Certs) Challenges() []string { return nil }

// Schemes returns mutual TLS.
func (Certs) Schemes() []a2a.SecurityScheme {
	return []a2a.SecurityScheme{{Name: "mtls", Kind: a2a.SecurityMTLS, Description: "A client certificate."}}
}

// Authenticate returns the principal of the certificate that the client of r has shown, to the listener or
// to a trusted proxy. See Authenticator for the errors.
func (c Certs) Authenticate(r *http.Request) (Principal, error) {
	h, err := c.shown(r)
	if err != nil {
		return Principal{}, err
	}
	if !h.current(time.Now()) { // it was good when the connection began
		return Principal{}, refuse("expired certificate", "")
	}
	p := Principal{Tenant: c.Tenant, Owner: h.owner(), Kind: KindService, Scopes: c.Scopes, Method: MethodCert, Until: h.until}
	switch c.From {
	case TenantOrganization:
		if p.Tenant = ""; len(h.organizations) == 1 { // several have no order
			p.Tenant = h.organizations[0]
		}
	case TenantURIHost:
		if p.Tenant = ""; h.uri != nil {
			p.Tenant = h.uri.Host
		}
	}
	if !validName(p.Owner) {
		return Principal{}, refuse("certificate without an owner", "")
	}
	if !validName(p.Tenant) {
		return Principal{}, refuse("certificate without a tenant", "")
	}
	p.Name = p.Owner
	return p, nil
}

// shown returns the holder of the certificate that the client of r has shown.
func (c Certs) shown(r *http.Request) (holder, error) {
	lines := r.Header[forwardedHeader]
	switch proxy := c.fromProxy(r.RemoteAddr); {
	case proxy && len(lines) == 0:
		return holder{}, ErrNoCredential
	case proxy:
		h, err := forwarded(lines)
		if err != nil {
			return holder{}, refuse(err.Error(), "")
		}
		return h, nil
	case len(lines) > 0: // not passed over: a proxy that is not known as one would sign all its clients in as itself
		return holder{}, refuse("forwarded certificate from an address that is not trusted", "")
	case r.TLS == nil || len(r.TLS.VerifiedChains) == 0:
		return holder{}, ErrNoCredential
	case c.Trusts != nil && !c.Trusts(r.TLS.VerifiedChains):
		return holder{}, refuse("certificate of an authority that was removed", "")
	}
	return holderOf(r.TLS.VerifiedChains[0][0]), nil
}

// certCheck is how often, at most, a listener looks whether its files have changed.
const certCheck = time.Second

// ServerCert is the certificate of a server, read from files and read again when they change.
// It is safe for concurrent use.
type ServerCert struct {
	cert, key, clientCA string
	failed              func(error)

	mu      sync.Mutex
	config  *tls.Config         // guarded by mu; replaced, never changed
	trusted map[string]struct{} // guarded by mu; replaced, never changed; the authorities of config, as in their certificates
	state   string              // guarded by mu; of the files that config is of
	checked time.Time           // guarded by mu
}

// NewServerCert reads a certificate with its chain and its key. With a file of authorities
// clients may show certificates of theirs; those who show others are not let in. failed is told when
// files that have changed cannot be used, and what was there before goes on.
func NewServerCert(cert, key, clientCA string, failed func(error)) (*ServerCert, error) {
	s := &ServerCert{cert: cert, key: key, clientCA: clientCA, failed: failed}
	return s, s.Reload()
}

// Reload reads the files, whether they have changed or not. If they cannot be used, what was there before goes on.
func (s *ServerCert) Reload() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reload(s.look())
}

// Config returns what a listener needs. Every handshake uses the files as they are then, or a
// second before.
func (s *ServerCert) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current(), nil },
	}
}

var protocols = []string{"h2", "http/1.1"}

// Trusts reports whether one of the chains of a certificate, which was verified before, ends in an authority of the file as it is now,
// or a second before.
func (s *ServerCert) Trusts(chains [][]*x509.Certificate) bool {
	s.current()
	s.mu.Lock()
	trusted := s.trusted
	s.mu.Unlock()
	for _, chain := range chains {
		if len(chain) == 0 {
			continue
		}
		if _, ok := trusted[string(chain[len(chain)-1].Raw)]; ok {
			return true
		}
	}
	return false
}

func (s *ServerCert) current() *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.checked) >= certCheck {
		s.checked = now
		if state := s.look(); state != s.state {
			if err := s.reload(state); err != nil {
				s.state = state // tell once
				s.failed(err)
			}
		}
	}
	return s.config
}

// look returns a text that changes with the files.
func (s *ServerCert) look() string {
	state := ""
	for _, path := range []string{s.cert, s.key, s.clientCA} {
		if info, err := os.Stat(path); err == nil {
			state += fmt.Sprintln(path, info.Size(), info.ModTime().UnixNano())
		}
	}
	return state
}

var errNoAuthority = errors.New("there is no certificate in it")

// reload reads the files, whose state is known. s.mu is held.
func (s *ServerCert) reload(state string) error {
	pair, err := tls.LoadX509KeyPair(s.cert, s.key)
	if err != nil {
		return fmt.Errorf("read certificate: %w", err)
	}
	next := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, Certificates: []tls.Certificate{pair}}
	trusted := make(map[string]struct{})
	if s.clientCA != "" {
		text, err := os.ReadFile(s.clientCA)
		if err != nil {
			return fmt.Errorf("read authorities of clients: %w", err)
		}
		next.ClientAuth, next.ClientCAs = tls.VerifyClientCertIfGiven, x509.NewCertPool()
		if !next.ClientCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("read authorities of clients: %s: %w", s.clientCA, errNoAuthority)
		}
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			trusted[string(block.Bytes)] = struct{}{}
		}
	}
	// A session is resumed without looking at the authorities again: who is no longer let in would stay.
	next.SessionTicketsDisabled = s.clientCA != ""
	s.config, s.trusted, s.state = next, trusted, state
	return nil
}
