package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Path is where Handler serves MCP.
const Path = "/mcp"

const (
	// sessionTimeout is when the session of a client that has gone is forgotten. Tasks do not depend on sessions.
	sessionTimeout = 30 * time.Minute

	// MaxSessions is how many sessions all clients may have at once.
	MaxSessions = 5000
	// MaxSessionsOfKey is how many of them may have begun with the same key.
	MaxSessionsOfKey = 100
)

// Handler serves MCP over streamable HTTP. hosts are the host names, without ports, by which clients may call it, in
// addition to those of loopback. It returns an error if the server has an API key: that of one caller would serve all.
//
// A request with a Host or an Origin of another name is refused. So a page in a browser of this machine cannot reach
// the server, even if its name resolves to the address of the server.
func (s *Server) Handler(hosts []string) (http.Handler, error) {
	if s.cfg.APIKey != "" {
		return nil, errors.New("over HTTP each caller signs in with a key of its own: " +
			"unset A2AD_API_KEY and A2AD_API_KEY_FILE")
	}
	get := func(*http.Request) *sdk.Server { return s.mcp }
	// The check of the SDK knows no names but those of loopback, and checks no Origin.
	sessions := sdk.NewStreamableHTTPHandler(get, &sdk.StreamableHTTPOptions{
		SessionTimeout: sessionTimeout, DisableLocalhostProtection: true, Logger: s.cfg.Logger,
	})
	sessionless := sdk.NewStreamableHTTPHandler(get, &sdk.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, DisableLocalhostProtection: true, Logger: s.cfg.Logger,
	})
	inSessions := s.bounded(sessions)
	byVersion := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= retryingVersion {
			sessionless.ServeHTTP(w, r) // these versions have no sessions
		} else {
			inSessions.ServeHTTP(w, r)
		}
	})
	mux := http.NewServeMux()
	mux.Handle(Path, s.identified(s.requests.tracked(byVersion)))
	return onlyFrom(hosts, mux), nil
}

// identified refuses requests without a key if the agents need one, and binds each session to the key that began it.
// The a2ad server checks the keys: when a session begins, and in each call.
func (s *Server) identified(next http.Handler) http.Handler {
	withKey := auth.RequireBearerToken(func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		sum := sha256.Sum256([]byte(token))
		return &auth.TokenInfo{UserID: hex.EncodeToString(sum[:])}, nil
	}, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case bearer(r.Header) != "":
			withKey.ServeHTTP(w, r)
		case s.needKeys():
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "send an API key of the a2ad server as a bearer token", http.StatusUnauthorized)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// onlyFrom refuses requests that name another host, or come from a page of another host.
func onlyFrom(hosts []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !knownHost(hosts, hostname(r.Host)) {
			http.Error(w, "unknown Host: start a2ad mcp with --host and this name to allow it", http.StatusForbidden)
			return
		}
		for _, origin := range r.Header.Values("Origin") {
			u, err := url.Parse(origin)
			if err != nil || !knownHost(hosts, u.Hostname()) {
				http.Error(w, "requests from pages of this Origin are not allowed", http.StatusForbidden)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// hostname returns the host of a Host header, without its port and brackets.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}

func knownHost(hosts []string, name string) bool {
	if ip, err := netip.ParseAddr(name); err == nil && ip.Unmap().IsLoopback() {
		return true
	}
	return strings.EqualFold(name, "localhost") ||
		slices.ContainsFunc(hosts, func(h string) bool { return strings.EqualFold(h, name) })
}
