package main

import (
	"cmp"
	"net"
	"net/url"

	"github.com/a2ad/a2ad/internal/config"
)

// Forms of Config.GRPCCard.
const (
	grpcCardURL = "url"
	grpcCardOff = "off"
)

// grpcAddress returns where cards say that gRPC is, in the form that was chosen, or "" if they do not. public is the base of
// the other URLs in cards.
func (r *replica) grpcAddress(public string) string {
	at := r.grpcReached(public)
	switch {
	case at == "" || r.cfg.GRPCCard == grpcCardOff:
		return ""
	case r.cfg.GRPCCard != grpcCardURL:
		return at
	}
	base := r.publicBase(public)
	if r.grpc == nil && r.cfg.GRPCPublicAddress == "" {
		at = base.Host // the origin of the card, as it is spelled there
	}
	return base.Scheme + "://" + at
}

// grpcReached returns the host and port where clients reach gRPC, or "" if it is off.
func (r *replica) grpcReached(public string) string {
	base := r.publicBase(public)
	switch {
	case r.grpc == nil && r.cfg.GRPCListen != config.SamePort:
		return ""
	case r.cfg.GRPCPublicAddress != "":
		return string(r.cfg.GRPCPublicAddress)
	case r.grpc == nil:
		return net.JoinHostPort(base.Hostname(), cmp.Or(base.Port(), map[string]string{"https": "443"}[base.Scheme], "80"))
	}
	listens := r.grpc.Addr().String()
	if _, port, err := net.SplitHostPort(listens); err == nil && r.cfg.PublicURL != "" {
		return net.JoinHostPort(base.Hostname(), port)
	}
	return listens
}

// publicBase returns the base of the URLs in cards.
func (r *replica) publicBase(public string) *url.URL {
	if base, err := url.Parse(public); err == nil && base.Hostname() != "" {
		return base
	}
	return &url.URL{Scheme: "http", Host: r.api.Addr().String()}
}
