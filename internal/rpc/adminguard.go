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

// Longest profiles, in seconds. They slow the server down, and what they hold grows.
const (
	maxProfileSeconds = 60
	maxTraceSeconds   = 10
)

// shielded keeps pages in a browser from the listener for operators, which takes no credentials: those of another
// origin, and those whose name somebody has pointed at this machine (DNS rebinding). A program may use any name.
func shielded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
		switch {
		case browser(r.Header) && !byAddress(r.Host):
			writePlain(w, http.StatusForbidden, "in a browser this is spoken to by its address or as localhost")
		case site == "cross-site" || site == "same-site", origin != "" && !ownOrigin(origin, r.Host):
			writePlain(w, http.StatusForbidden, "pages of other origins may not use this")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// byAddress reports whether host is an address or localhost: no name that anybody could point somewhere else.
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

// profiles bounds how many profiles are made at once. One is made that takes its time, and others are refused meanwhile. Those
// that are made at once, as of the goroutines of a server that hangs, do not wait for that one, but for each other.
type profiles struct {
	timed, instant chan struct{} // what is made
}

// patience is how long a profile that is made at once waits for others.
const patience = 5 * time.Second

func newProfiles() *profiles {
	return &profiles{timed: make(chan struct{}, 1), instant: make(chan struct{}, 4)}
}

// bounded makes a profile when there is room, and none that takes longer than most seconds. instant says that it is made at once
// where the request names no seconds.
func (p *profiles) bounded(instant bool, most float64, profile http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead { // the body of another could have other seconds
			w.Header().Set("Allow", "GET, HEAD")
			writePlain(w, http.StatusMethodNotAllowed, "profiles are read by GET")
			return
		}
		slots, wait := p.timed, time.Duration(0)
		if text := r.FormValue("seconds"); text != "" {
			if s, err := strconv.ParseFloat(text, 64); err != nil || !(s > 0 && s <= most) {
				writePlain(w, http.StatusBadRequest, "seconds must be a number above 0 and at most "+strconv.Itoa(int(most)))
				return
			}
		} else if instant {
			slots, wait = p.instant, patience
		}
		if !taken(r.Context(), slots, wait) {
			w.Header().Set("Retry-After", "1")
			writePlain(w, http.StatusTooManyRequests, "other profiles are being made, of which there are at most "+strconv.Itoa(cap(slots))+" at once")
			return
		}
		defer func() { <-slots }()
		profile(w, r)
	}
}

// taken takes a slot, if there is one before wait is over. It reports whether there was.
func taken(ctx context.Context, slots chan struct{}, wait time.Duration) bool {
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
