package rpc

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// What pages of allowed origins may send and read.
const (
	corsMethods = "GET, POST, DELETE"
	corsHeaders = "Authorization, X-API-Key, Content-Type, A2A-Version, A2A-Extensions, X-A2A-Extensions, " +
		"Idempotency-Key, Last-Event-ID, If-None-Match, If-Modified-Since, Traceparent"
	corsExposed = "A2A-Version, A2A-Extensions, X-A2A-Extensions, ETag, Last-Modified, Retry-After, RateLimit, " +
		"RateLimit-Policy, WWW-Authenticate, X-Request-Id, A2AD-Total-Size"
	corsMaxAge = "600" // in seconds
)

// guarded protects the server from web pages that use a visitor's browser. A page of another origin
// can change nothing unless its origin is configured, and can read nothing (CORS).
// A server without credentials also requires browsers to address it as localhost or by its public
// name. An attacker may have pointed any other name at this machine (DNS rebinding). Programs that
// are no browsers are not affected.
func (s *Server) guarded(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.cfg.Open && browser(r.Header) && !s.ours(r.Host) {
			refuse(w, r, "a server without credentials is spoken to as localhost, or by the host of A2AD_PUBLIC_URL")
			return
		}
		h, origin := w.Header(), r.Header.Get("Origin")
		if len(s.cfg.Origins) > 0 {
			h.Add("Vary", "Origin")
		}
		if slices.Contains(s.cfg.Origins, origin) {
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Expose-Headers", corsExposed)
			if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
				h.Set("Access-Control-Allow-Methods", corsMethods)
				h.Set("Access-Control-Allow-Headers", corsHeaders)
				h.Set("Access-Control-Max-Age", corsMaxAge)
				w.WriteHeader(http.StatusNoContent)
				return
			}
		} else if err := cross.Check(r); err != nil {
			refuse(w, r, "pages of this origin may not use the server: see A2AD_CORS_ORIGINS")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// browser reports whether a web page may have sent a request: it has a header that pages cannot
// prevent browsers from sending.
func browser(h http.Header) bool {
	for _, name := range []string{"Origin", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Accept-Language"} {
		if len(h.Values(name)) > 0 {
			return true
		}
	}
	return strings.HasPrefix(h.Get("User-Agent"), "Mozilla/")
}

func refuse(w http.ResponseWriter, r *http.Request, why string) {
	recordOf(r.Context()).err = errors.New(why)
	writePlain(w, http.StatusForbidden, why)
}

// ours reports whether host names this machine as localhost, or by its public name.
func (s *Server) ours(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	public, err := url.Parse(s.cfg.PublicURL)
	return strings.EqualFold(host, "localhost") || err == nil && strings.EqualFold(host, public.Hostname())
}
