package rpc

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
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

// boundedProfile makes one profile at a time, and none that takes longer than most seconds.
func boundedProfile(busy chan struct{}, most float64, profile http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead { // the body of another could have other seconds
			w.Header().Set("Allow", "GET, HEAD")
			writePlain(w, http.StatusMethodNotAllowed, "profiles are read by GET")
			return
		}
		if text := r.FormValue("seconds"); text != "" {
			if s, err := strconv.ParseFloat(text, 64); err != nil || !(s > 0 && s <= most) {
				writePlain(w, http.StatusBadRequest, "seconds must be a number above 0 and at most "+strconv.Itoa(int(most)))
				return
			}
		}
		select {
		case busy <- struct{}{}:
			defer func() { <-busy }()
			profile(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			writePlain(w, http.StatusTooManyRequests, "a profile is being made; one is made at a time")
		}
	}
}
