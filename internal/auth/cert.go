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

// TenantFrom is the part of a certificate that names the tenant.
type TenantFrom string

// Parts that can name the tenant.
const (
	TenantFixed        TenantFrom = "fixed"        // none: all certificates belong to one tenant
	TenantOrganization TenantFrom = "organization" // the O of the subject, which must occur once
	TenantURIHost      TenantFrom = "uri-host"     // the host of the URI that names the owner: the SPIFFE trust domain
)

// Certs authenticates client certificates, verified by the listener or reported by a trusted proxy.
// The owner is the first URI of a certificate, else its common name.
type Certs struct {
	Tenant string // for TenantFixed
	From   TenantFrom
	Scopes []Scope // what every certificate permits

	// Trusts reports whether the authority of a verified certificate is still trusted. A connection
	// may be older than the current list of authorities. nil: it is.
	Trusts func(chains [][]*x509.Certificate) bool

	// Proxies are the addresses whose X-Forwarded-Client-Cert is believed. A proxy's own
	// certificate authenticates no caller, because its requests come from its clients.
	Proxies []netip.Prefix
}

// Challenges returns none: TLS asks for certificates before any request.
func (Certs) Challenges() []string { return nil }

// Schemes returns mutual TLS.
func (Certs) Schemes() []a2a.SecurityScheme {
	return []a2a.SecurityScheme{{Name: "mtls", Kind: a2a.SecurityMTLS, Description: "A client certificate."}}
}

// Authenticate returns the principal of the certificate of r's client. See Authenticator for the
// errors.
func (c Certs) Authenticate(r *http.Request) (Principal, error) {
	h, err := c.shown(r)
	if err != nil {
		return Principal{}, err
	}
	if !h.current(time.Now()) { // it was valid when the connection began
		return Principal{}, refuse("expired certificate", "")
	}
	p := Principal{Tenant: c.Tenant, Owner: h.owner(), Kind: KindService, Scopes: c.Scopes, Method: MethodCert,
		Until: h.until}
	switch c.From {
	case TenantOrganization:
		if p.Tenant = ""; len(h.organizations) == 1 { // several organizations have no order
			p.Tenant = h.organizations[0]
		}
	case TenantURIHost:
		if p.Tenant = ""; h.uri != nil {
			p.Tenant = h.uri.Host
		}
	}
	if !ValidName(p.Owner) {
		return Principal{}, refuse("certificate without an owner", "")
	}
	if !ValidName(p.Tenant) {
		return Principal{}, refuse("certificate without a tenant", "")
	}
	p.Name = p.Owner
	return p, nil
}

// shown returns the holder of the certificate that the client of r presented.
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
	case len(lines) > 0: // not ignored: an unconfigured proxy would sign in all of its clients as itself
		return holder{}, refuse("forwarded certificate from an address that is not trusted", "")
	case r.TLS == nil || len(r.TLS.VerifiedChains) == 0:
		return holder{}, ErrNoCredential
	case c.Trusts != nil && !c.Trusts(r.TLS.VerifiedChains):
		return holder{}, refuse("certificate of an authority that was removed", "")
	}
	return holderOf(r.TLS.VerifiedChains[0][0]), nil
}

// certCheck is how often, at most, a listener checks whether its files have changed.
const certCheck = time.Second

// ServerCert is the certificate of a server. It is read from files, and read again when they
// change. It is safe for concurrent use.
type ServerCert struct {
	cert, key, clientCA string
	failed              func(error)

	mu     sync.Mutex
	config *tls.Config // guarded by mu; replaced, never changed
	// trusted are the authorities of config, by their raw certificates. guarded by mu; replaced, never changed
	trusted map[string]struct{}
	state   string    // guarded by mu; of the files that config was made from
	checked time.Time // guarded by mu
}

// NewServerCert reads a certificate with its chain and its key. With a file of authorities, clients may present
// certificates of these authorities. Clients with other certificates are rejected. failed is called when changed files
// cannot be used; the old ones stay in use then.
func NewServerCert(cert, key, clientCA string, failed func(error)) (*ServerCert, error) {
	s := &ServerCert{cert: cert, key: key, clientCA: clientCA, failed: failed}
	return s, s.Reload()
}

// Reload reads the files even if they have not changed. If they cannot be used the old ones stay in
// use.
func (s *ServerCert) Reload() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reload(s.fileState())
}

// Config returns the configuration of a listener. Every handshake uses files that are at most a
// second old.
func (s *ServerCert) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current(), nil },
	}
}

var protocols = []string{"h2", "http/1.1"}

// Trusts reports whether one of the verified chains of a certificate ends in an authority of the
// current file, as of at most a second ago.
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
		if state := s.fileState(); state != s.state {
			if err := s.reload(state); err != nil {
				s.state = state // report the failure once
				s.failed(err)
			}
		}
	}
	return s.config
}

// fileState returns a text that changes with the files.
func (s *ServerCert) fileState() string {
	state := ""
	for _, path := range []string{s.cert, s.key, s.clientCA} {
		if info, err := os.Stat(path); err == nil {
			state += fmt.Sprintln(path, info.Size(), info.ModTime().UnixNano())
		}
	}
	return state
}

var errNoAuthority = errors.New("it contains no certificate")

// reload reads the files in a known state. The caller holds s.mu.
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
	// Resumed sessions do not check the authorities again, so removed clients would keep access.
	next.SessionTicketsDisabled = s.clientCA != ""
	s.config, s.trusted, s.state = next, trusted, state
	return nil
}
