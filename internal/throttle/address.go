package throttle

import (
	"net/http"
	"net/netip"
	"strings"
)

// ClientAddress returns the address of the client as text: the peer of the connection, or the
// client that a trusted proxy names. If that cannot be parsed it returns r.RemoteAddr.
func (t *Throttle) ClientAddress(r *http.Request) string {
	if a := t.address(r); a.IsValid() {
		return a.String()
	}
	return r.RemoteAddr
}

// address returns the peer of the connection or, if that is a trusted proxy, the last address in
// X-Forwarded-For that is not one. The result is invalid if the peer cannot be parsed.
func (t *Throttle) address(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	addr := peer.Addr().Unmap()
	hops := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
	for i := len(hops) - 1; i >= 0 && t.trusts(addr); i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break // entries further left than an unreadable one may be made up
		}
		addr = hop.Unmap()
	}
	return addr
}

func (t *Throttle) trusts(a netip.Addr) bool {
	for _, p := range t.trusted {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// network returns what counts as one client: a single IPv4 address, or the /64 that one IPv6
// customer has at least.
func network(a netip.Addr) netip.Prefix {
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, err := a.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}
