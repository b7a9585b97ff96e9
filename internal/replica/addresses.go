package replica

import (
	"cmp"
	"net"
	"net/url"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/config"
)

// Forms of config.Listeners.GRPCCard.
const (
	grpcCardURL = "url"
	grpcCardOff = "off"
)

// Addresses says where a replica answers.
type Addresses struct {
	API   string // base URL
	GRPC  string // host:port, or "" when it is off
	Admin string // host:port, or "" when it is off
}

// Addresses returns where the replica answers on this machine.
func (r *Replica) Addresses() Addresses {
	a := Addresses{API: localURL(r.listeners)}
	switch {
	case r.listeners.grpc != nil:
		a.GRPC = r.listeners.grpc.Addr().String()
	case r.cfg.GRPCListen != "":
		a.GRPC = r.listeners.api.Addr().String()
	}
	if r.listeners.admin != nil {
		a.Admin = r.listeners.admin.Addr().String()
	}
	return a
}

// Agents returns the agents as they are before Run.
func (r *Replica) Agents() []*a2a.Agent { return r.agents.set.domain() }

// localURL is the URL of the API at its listener.
func localURL(l *listeners) string {
	if l.cert == nil {
		return "http://" + l.api.Addr().String()
	}
	return "https://" + l.api.Addr().String()
}

// public says how clients reach the server.
type public struct {
	cfg       *config.Listeners
	listeners *listeners
}

// url is the base of the URLs in agent cards.
func (p public) url() string {
	if p.cfg.PublicURL != "" {
		return string(p.cfg.PublicURL)
	}
	return localURL(p.listeners)
}

// parsed is url in its parts. A URL that cannot be parsed is that of the listener.
func (p public) parsed() *url.URL {
	if base, err := url.Parse(p.url()); err == nil && base.Hostname() != "" {
		return base
	}
	return &url.URL{Scheme: "http", Host: p.listeners.api.Addr().String()}
}

// grpcOnCards returns the address of gRPC in the form that was chosen, or "" if cards do not name it.
func (p public) grpcOnCards() string {
	at := p.grpc()
	switch {
	case at == "" || p.cfg.GRPCCard == grpcCardOff:
		return ""
	case p.cfg.GRPCCard != grpcCardURL:
		return at
	}
	base := p.parsed()
	if p.listeners.grpc == nil && p.cfg.GRPCPublicAddress == "" {
		at = base.Host // the origin of the card, spelled as in its URL
	}
	return base.Scheme + "://" + at
}

// grpc returns the host and port where clients reach gRPC, or "" if it is off.
func (p public) grpc() string {
	base := p.parsed()
	switch {
	case p.listeners.grpc == nil && p.cfg.GRPCListen != config.SamePort:
		return ""
	case p.cfg.GRPCPublicAddress != "":
		return string(p.cfg.GRPCPublicAddress)
	case p.listeners.grpc == nil:
		port := "80"
		if base.Scheme == "https" {
			port = "443"
		}
		return net.JoinHostPort(base.Hostname(), cmp.Or(base.Port(), port))
	}
	listens := p.listeners.grpc.Addr().String()
	if _, port, err := net.SplitHostPort(listens); err == nil && p.cfg.PublicURL != "" {
		return net.JoinHostPort(base.Hostname(), port)
	}
	return listens
}
