package push

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// Reasons why nothing is sent to a webhook. Both are permanent: another attempt fails in the same way until the webhook
// or the settings of the server change.
var (
	ErrBlocked = errors.New("address is not permitted")
	ErrBadURL  = errors.New("not a webhook URL")
)

// Policy says which URLs and addresses webhooks may have. The zero value permits https to public addresses on the usual
// ports. A Policy is not changed after use, so it is safe for concurrent use.
type Policy struct {
	// Allow are ranges that the operator trusts: private addresses in them are permitted, and every port.
	Allow []netip.Prefix
	// AllowHTTP permits http URLs as well as https.
	AllowHTTP bool
	// Ports are permitted on addresses outside of Allow; nil means DefaultPorts.
	Ports []PortRange
	// Self are the listeners of this server, which must not call itself. They are refused even if Allow contains them;
	// see Listening.
	Self []netip.AddrPort
	// SelfOrigins are the origins under which callers reach this server.
	SelfOrigins []string
	// MaxURL is the longest URL in bytes; 0 means DefaultMaxURL.
	MaxURL int
}

// PortRange is a range of ports, both ends included.
type PortRange struct{ First, Last uint16 }

// DefaultMaxURL bounds URLs where a Policy does not.
const DefaultMaxURL = 2 << 10

// DefaultPorts are the usual ports of web servers. If every port were permitted, callers could make this server send
// HTTP to mail servers and databases, some of which half understand it.
func DefaultPorts() []PortRange { return []PortRange{{80, 80}, {443, 443}, {8000, 8999}} }

// denied4 are the addresses that the IANA registry of IPv4 special-purpose addresses does not call
// globally reachable. The AS112, AMT and 6to4 relay blocks, multicast and class E are denied too.
// So is one public address that serves the secrets of machines in a cloud (Azure).
var denied4 = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"168.63.129.16/32", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24",
	"192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
	"224.0.0.0/4", "240.0.0.0/4",
)

// global6 is the only part of IPv6 that is assigned. Everything else is refused: loopback, NAT64, ULA, link-local, and
// whatever IANA adds later. denied6 are the special-purpose addresses in global6.
var (
	global6 = netip.MustParsePrefix("2000::/3")
	denied6 = prefixes("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")
)

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

func contains(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

// bare returns the address in the form that prefixes are compared with: without a zone, and IPv4 if it is IPv4 in IPv6
// form.
func bare(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// public reports whether a bare address belongs to the public internet.
func public(a netip.Addr) bool {
	if a.Is4() {
		return !contains(denied4, a)
	}
	return global6.Contains(a) && !contains(denied6, a)
}

// permits checks one address that is about to be dialed, or that a URL names. It returns an error that wraps
// ErrBlocked.
func (p Policy) permits(to netip.AddrPort) error {
	a := bare(to.Addr())
	isSelf := func(self netip.AddrPort) bool { return self.Port() == to.Port() && reaches(a, bare(self.Addr())) }
	switch {
	case !a.IsValid():
		return fmt.Errorf("%w: no address", ErrBlocked)
	case slices.ContainsFunc(p.Self, isSelf):
		return fmt.Errorf("%w: %s is this server", ErrBlocked, netip.AddrPortFrom(a, to.Port()))
	case contains(p.Allow, a):
		return nil
	case !public(a):
		return fmt.Errorf("%w: %s", ErrBlocked, a)
	case !p.permitsPort(to.Port()):
		return fmt.Errorf("%w: port %d", ErrBlocked, to.Port())
	}
	return nil
}

// reaches reports whether a connection to a reaches a listener at self. A listener on all addresses also has every
// address of the loopback network, which are more than the interface lists.
func reaches(a, self netip.Addr) bool { return a == self || self.IsUnspecified() && a.IsLoopback() }

func (p Policy) permitsPort(port uint16) bool {
	ports := p.Ports
	if ports == nil {
		ports = DefaultPorts()
	}
	return slices.ContainsFunc(ports, func(r PortRange) bool { return r.First <= port && port <= r.Last })
}

// Control is a net.Dialer's ControlContext, and the guard that decides. It checks every address right before it is
// dialed, after names were resolved, so a name that resolves differently the next time changes nothing. It returns an
// error that wraps ErrBlocked.
func (p Policy) Control(_ context.Context, network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("%w: network %s", ErrBlocked, network)
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: not an address", ErrBlocked)
	}
	return p.permits(to)
}

// CheckURL parses the URL of a webhook, and refuses early what Control would refuse and a client may know. It
// resolves no names, so its errors reveal nothing about the server's network. Their texts are for clients; they wrap
// ErrBadURL or ErrBlocked.
func (p Policy) CheckURL(raw string) (*url.URL, error) {
	u, port, err := p.parseURL(raw)
	if err != nil {
		return nil, err
	}
	if slices.Contains(p.SelfOrigins, Origin(u)) {
		return nil, fmt.Errorf("%w: the URL is this server's", ErrBlocked)
	}
	host := u.Hostname()
	if a, err := netip.ParseAddr(host); err == nil {
		if err := p.permits(netip.AddrPortFrom(a, port)); err != nil {
			return nil, err
		}
		return u, nil
	}
	if err := checkHostname(host); err != nil {
		return nil, err
	}
	if isLocalhost(host) && !slices.ContainsFunc(p.Allow, overlapsLoopback) {
		return nil, fmt.Errorf("%w: %s", ErrBlocked, strings.ToLower(host))
	}
	// A name may resolve to an address in Allow, where every port is permitted. Only Control can check that.
	if len(p.Allow) == 0 && !p.permitsPort(port) {
		return nil, fmt.Errorf("%w: port %d", ErrBlocked, port)
	}
	return u, nil
}

// parseURL is strict where parsers of URLs differ, so that the checked URL is the one that is called.
func (p Policy) parseURL(raw string) (*url.URL, uint16, error) {
	bad := func(text string) (*url.URL, uint16, error) { return nil, 0, fmt.Errorf("%w: %s", ErrBadURL, text) }
	limit := p.MaxURL
	if limit == 0 {
		limit = DefaultMaxURL
	}
	if len(raw) > limit {
		return bad(fmt.Sprintf("longer than %d bytes", limit))
	}
	if strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' }) {
		return bad("only visible ASCII is allowed: percent-encode the rest")
	}
	scheme, rest, _ := strings.Cut(raw, "://")
	switch {
	case scheme != "https" && scheme != "http" || rest == "":
		return bad("it must start with https://")
	case scheme == "http" && !p.AllowHTTP:
		return bad("it must start with https://, not http://")
	case strings.Contains(raw, "#"):
		return bad("a fragment is not allowed")
	}
	u, err := url.Parse(raw)
	if err != nil { // its text may hold a password
		return bad("it cannot be parsed")
	}
	if u.User != nil {
		return bad("user info is not allowed")
	}
	host := u.Hostname()
	if host == "" || u.Opaque != "" {
		return bad("it has no host")
	}
	if strings.Contains(host, "%") {
		return bad("the host must not have a zone or percent signs")
	}
	if strings.HasPrefix(u.Host, "[") {
		if a, err := netip.ParseAddr(host); err != nil || !a.Is6() {
			return bad("the host in brackets is not an IPv6 address")
		}
	}
	port, ok := portOf(u)
	if !ok {
		return bad("the port is not a number from 1 to 65535")
	}
	return u, port, nil
}

// portOf reads the port of a URL, or of its scheme.
func portOf(u *url.URL) (uint16, bool) {
	text := u.Port()
	if text == "" {
		if strings.HasSuffix(u.Host, ":") {
			return 0, false
		}
		if u.Scheme == "http" {
			return 80, true
		}
		return 443, true
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil && n > 0 && text[0] != '0'
}

// checkHostname refuses everything that is not plainly a name. Some resolvers read a name that ends in a number as an
// address: 2130706433, 0x7f000001, 0177.0.0.1 and 127.1 are all loopback to the resolver of cgo.
func checkHostname(host string) error {
	bad := fmt.Errorf("%w: the host is neither a name nor an address in its usual form", ErrBadURL)
	if len(host) > 253 {
		return bad
	}
	last := ""
	notLabel := func(r rune) bool { return !isLabelRune(r) }
	for label := range strings.SplitSeq(host, ".") {
		if len(label) == 0 || len(label) > 63 || strings.ContainsFunc(label, notLabel) {
			return bad
		}
		last = label
	}
	if isNumber(last) {
		return bad
	}
	return nil
}

func isLabelRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_'
}

// isNumber reports whether inet_aton reads a label as a number.
func isNumber(label string) bool {
	digits := "0123456789"
	if len(label) >= 2 && (label[:2] == "0x" || label[:2] == "0X") {
		label, digits = label[2:], "0123456789abcdefABCDEF"
	}
	return strings.Trim(label, digits) == ""
}

func isLocalhost(host string) bool {
	host = strings.ToLower(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

func overlapsLoopback(p netip.Prefix) bool {
	return p.Contains(netip.AddrFrom4([4]byte{127, 0, 0, 1})) || p.Contains(netip.IPv6Loopback())
}

// Origin returns scheme://host:port of a URL in lower case, always with the port. Concurrency limits and circuit
// breakers apply to an origin.
func Origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "443"
		if strings.EqualFold(u.Scheme, "http") {
			port = "80"
		}
	}
	return strings.ToLower(u.Scheme + "://" + net.JoinHostPort(u.Hostname(), port))
}

// Listening returns the addresses of listeners, for Policy.Self. A listener on all addresses of the machine counts as
// one on each.
func Listening(addrs ...net.Addr) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	for _, a := range addrs {
		tcp, ok := a.(*net.TCPAddr)
		if !ok {
			continue
		}
		ap := tcp.AddrPort()
		out = append(out, netip.AddrPortFrom(bare(ap.Addr()), ap.Port()))
		if !ap.Addr().IsUnspecified() {
			continue
		}
		local, err := net.InterfaceAddrs()
		if err != nil {
			return nil, fmt.Errorf("list the addresses of this machine: %w", err)
		}
		for _, l := range local {
			if p, err := netip.ParsePrefix(l.String()); err == nil {
				out = append(out, netip.AddrPortFrom(bare(p.Addr()), ap.Port()))
			}
		}
	}
	return out, nil
}

// guardedDialer dials the addresses that its policy permits.
type guardedDialer struct {
	policy Policy
	dialer net.Dialer
}

// DialContext connects to one of the addresses of a name. Its error wraps ErrBlocked only if the policy refused every
// address. If a permitted address did not answer, another attempt may succeed.
func (g *guardedDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var tried, blocked atomic.Int32 // the dialer may try two addresses at once
	d := g.dialer
	d.ControlContext = func(ctx context.Context, network, address string, c syscall.RawConn) error {
		tried.Add(1)
		err := g.policy.Control(ctx, network, address, c)
		if err != nil {
			blocked.Add(1)
		}
		return err
	}
	conn, err := d.DialContext(ctx, network, address)
	if errors.Is(err, ErrBlocked) && blocked.Load() < tried.Load() {
		return nil, errors.New("no permitted address of the host answers, and others are not permitted")
	}
	return conn, err
}
