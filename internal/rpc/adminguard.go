package rpc

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Longest profiles, in seconds. A profile slows the server down, and its memory grows with time.
const (
	maxProfileSeconds = 60
	maxTraceSeconds   = 10
)

// shielded keeps web pages away from the admin listener, which asks for no credentials. It refuses
// pages of other origins, and pages whose host name was pointed at this machine (DNS rebinding). A
// program that is no browser may use any name.
func shielded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
		switch {
		case browser(r.Header) && !byAddress(r.Host):
			writePlain(w, http.StatusForbidden, "browsers must use the IP address of this listener, or localhost")
		case site == "cross-site" || site == "same-site", origin != "" && !ownOrigin(origin, r.Host):
			writePlain(w, http.StatusForbidden, "pages of other origins may not use this listener")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// byAddress reports whether host is an IP address or localhost, which no attacker can redirect.
func byAddress(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost")
}

func ownOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}

// profiles bounds how many profiles are made at once. Only one timed profile is made at a time, and
// others are refused. Instant ones, such as the goroutines of a server that hangs, have slots of
// their own, so they never wait for a timed one.
type profiles struct {
	timed, instant chan struct{} // each holds one element for each profile being made
}

// patience is how long an instant profile waits for a slot.
const patience = 5 * time.Second

func newProfiles() *profiles {
	return &profiles{timed: make(chan struct{}, 1), instant: make(chan struct{}, 4)}
}

// bounded makes a profile if a slot is free, of at most most seconds. instant says that the profile
// is instant if the request names no seconds.
func (p *profiles) bounded(instant bool, most float64, profile http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// the body of another method could name other seconds
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			writePlain(w, http.StatusMethodNotAllowed, "use GET to read a profile")
			return
		}
		slots, wait := p.timed, time.Duration(0)
		if text := r.FormValue("seconds"); text != "" {
			if s, err := strconv.ParseFloat(text, 64); err != nil || !(s > 0 && s <= most) {
				writePlain(w, http.StatusBadRequest,
					"seconds must be greater than 0 and at most "+strconv.Itoa(int(most)))
				return
			}
		} else if instant {
			slots, wait = p.instant, patience
		}
		if !acquire(r.Context(), slots, wait) {
			w.Header().Set("Retry-After", "1")
			writePlain(w, http.StatusTooManyRequests,
				"other profiles are being made, of which there are at most "+strconv.Itoa(cap(slots))+" at once")
			return
		}
		defer func() { <-slots }()
		profile(w, r)
	}
}

// acquire acquires a slot within wait, and reports whether it did.
func acquire(ctx context.Context, slots chan struct{}, wait time.Duration) bool {
	select {
	case slots <- struct{}{}:
		return true
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}
