package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/push"
	"github.com/a2ad/a2ad/internal/throttle"
)

// Listen is an address to listen on, "host:port", or "" for no listener.
type Listen string

// UnmarshalText reads "host:port" or "off".
func (l *Listen) UnmarshalText(text []byte) error {
	s := string(text)
	if s == "off" {
		*l = ""
		return nil
	}
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return errors.New("not an address: write host:port, for example 127.0.0.1:8080 or :8080")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n > 65535 {
		return errors.New("the port is not a number up to 65535")
	}
	*l = Listen(s)
	return nil
}

// MarshalText returns what UnmarshalText reads.
func (l Listen) MarshalText() ([]byte, error) {
	if l == "" {
		return []byte("off"), nil
	}
	return []byte(l), nil
}

// GRPCListen is where gRPC is served: an address of its own, the port of the API, or "" for nowhere.
type GRPCListen string

const samePort GRPCListen = "same"

// UnmarshalText reads "host:port", "same" or "off".
func (g *GRPCListen) UnmarshalText(text []byte) error {
	if string(text) == string(samePort) {
		*g = samePort
		return nil
	}
	var own Listen
	if err := own.UnmarshalText(text); err != nil {
		return fmt.Errorf("%w, same for the port of the API, or off", err)
	}
	*g = GRPCListen(own)
	return nil
}

// MarshalText returns what UnmarshalText reads.
func (g GRPCListen) MarshalText() ([]byte, error) { return Listen(g).MarshalText() }

// Own returns the address of the listener that gRPC alone has, or "".
func (g GRPCListen) Own() Listen {
	if g == samePort {
		return ""
	}
	return Listen(g)
}

// Loopback reports whether only this machine can connect.
func (l Listen) Loopback() bool {
	host, _, err := net.SplitHostPort(string(l))
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// BaseURL is an absolute http or https URL without a slash at its end, or "".
type BaseURL string

// UnmarshalText reads the URL.
func (b *BaseURL) UnmarshalText(text []byte) error {
	u, err := url.Parse(string(text))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("not an absolute URL: write for example https://agents.example.org")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("must have no user, query or fragment")
	}
	*b = BaseURL(strings.TrimRight(string(text), "/"))
	return nil
}

// MarshalText returns the URL.
func (b BaseURL) MarshalText() ([]byte, error) { return []byte(b), nil }

// Issuer is the URL of an identity provider, kept to the letter: tokens are compared with it.
type Issuer string

// UnmarshalText reads an https URL, or one of http on this machine.
func (i *Issuer) UnmarshalText(text []byte) error {
	u, err := url.Parse(string(text))
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("not an absolute URL: write for example https://login.example.org")
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !Listen(u.Host+":0").Loopback() && !Listen(u.Host).Loopback()) {
		return errors.New("must begin with https://: whoever can change what comes over http can sign in as anybody")
	}
	*i = Issuer(text)
	return nil
}

// MarshalText returns the URL.
func (i Issuer) MarshalText() ([]byte, error) { return []byte(i), nil }

// Words is a list of names.
type Words []string

// UnmarshalText reads names with commas between them.
func (ws *Words) UnmarshalText(text []byte) error {
	var out Words
	for item := range strings.SplitSeq(string(text), ",") {
		if item = strings.TrimSpace(item); item == "" {
			return errors.New("an empty name: write names with commas between them")
		}
		out = append(out, item)
	}
	*ws = out
	return nil
}

// MarshalText returns what UnmarshalText reads.
func (ws Words) MarshalText() ([]byte, error) { return []byte(strings.Join(ws, ",")), nil }

// Scopes is a list of scopes.
type Scopes []auth.Scope

// UnmarshalText reads scopes with commas between them.
func (ss *Scopes) UnmarshalText(text []byte) error {
	var out Scopes
	for item := range strings.SplitSeq(string(text), ",") {
		s := auth.Scope(strings.TrimSpace(item))
		if !s.Valid() {
			return fmt.Errorf("there is no scope %q, there are %s", s, strings.Join(scopes, ", "))
		}
		out = append(out, s)
	}
	*ss = out
	return nil
}

// MarshalText returns what UnmarshalText reads.
func (ss Scopes) MarshalText() ([]byte, error) {
	var out []string
	for _, s := range ss {
		out = append(out, string(s))
	}
	return []byte(strings.Join(out, ",")), nil
}

// Bytes is a size.
type Bytes int64

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}, {"", 1}}

// UnmarshalText reads a whole number of bytes, with or without a unit: 4MiB, 65536.
func (b *Bytes) UnmarshalText(text []byte) error {
	for _, u := range sizeUnits {
		num, ok := strings.CutSuffix(string(text), u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(num), 10, 64)
		if err != nil || n < 0 || n > (1<<62)/u.bytes {
			break
		}
		*b = Bytes(n * u.bytes)
		return nil
	}
	return errors.New("not a size: write a number of bytes, with KiB, MiB or GiB if you like")
}

// MarshalText writes the largest unit that divides the size.
func (b Bytes) MarshalText() ([]byte, error) {
	for _, u := range sizeUnits[:3] {
		if b != 0 && int64(b)%u.bytes == 0 {
			return fmt.Appendf(nil, "%d%s", int64(b)/u.bytes, u.suffix), nil
		}
	}
	return strconv.AppendInt(nil, int64(b), 10), nil
}

// Retention is how long finished tasks are kept; 0 is for ever.
type Retention time.Duration

// UnmarshalText reads a duration or "never".
func (r *Retention) UnmarshalText(text []byte) error {
	if string(text) == "never" {
		*r = 0
		return nil
	}
	d, err := parseDuration(string(text))
	if err == nil && d <= 0 {
		err = errors.New(`must be longer than 0, or "never"`)
	}
	*r = Retention(d)
	return err
}

// MarshalText returns what UnmarshalText reads.
func (r Retention) MarshalText() ([]byte, error) {
	if r == 0 {
		return []byte("never"), nil
	}
	return []byte(formatDuration(time.Duration(r))), nil
}

// Durations is a list of waits.
type Durations []time.Duration

// UnmarshalText reads durations with commas between them.
func (ds *Durations) UnmarshalText(text []byte) error {
	var out Durations
	for item := range strings.SplitSeq(string(text), ",") {
		d, err := parseDuration(strings.TrimSpace(item))
		if err != nil {
			return fmt.Errorf("%q: %w", item, err)
		}
		if d < 0 {
			return fmt.Errorf("%q: must not be negative", item)
		}
		out = append(out, d)
	}
	*ds = out
	return nil
}

// MarshalText returns what UnmarshalText reads.
func (ds Durations) MarshalText() ([]byte, error) {
	var out []string
	for _, d := range ds {
		out = append(out, formatDuration(d))
	}
	return []byte(strings.Join(out, ",")), nil
}

// Breaker says when a webhook's destination is left alone: after Failures in a row, for
// First, then longer and longer up to Longest.
type Breaker struct {
	Failures       int
	First, Longest time.Duration
}

// UnmarshalText reads "failures,first,longest".
func (b *Breaker) UnmarshalText(text []byte) error {
	bad := errors.New("write failures,first,longest, for example 5,30s,15m")
	parts := strings.Split(string(text), ",")
	if len(parts) != 3 {
		return bad
	}
	n, err1 := strconv.Atoi(strings.TrimSpace(parts[0]))
	first, err2 := parseDuration(strings.TrimSpace(parts[1]))
	longest, err3 := parseDuration(strings.TrimSpace(parts[2]))
	if err1 != nil || err2 != nil || err3 != nil {
		return bad
	}
	if n < 1 || first <= 0 || longest < first {
		return errors.New("failures must be at least 1, and the longest opening not shorter than the first")
	}
	*b = Breaker{n, first, longest}
	return nil
}

// MarshalText returns what UnmarshalText reads.
func (b Breaker) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d,%s,%s", b.Failures, formatDuration(b.First), formatDuration(b.Longest)), nil
}

// Rate is how often something may be done: so many times a second, and so many at once.
type Rate throttle.Rate

// UnmarshalText reads "a second,at once", or "off".
func (r *Rate) UnmarshalText(text []byte) error {
	*r = Rate{}
	if string(text) == "off" {
		return nil
	}
	each, burst, ok := strings.Cut(string(text), ",")
	second, err1 := strconv.ParseFloat(strings.TrimSpace(each), 64)
	once, err2 := strconv.Atoi(strings.TrimSpace(burst))
	if !ok || err1 != nil || err2 != nil || !(second >= 0.001 && second <= 1e9) || once < 1 || once > 1e9 {
		return errors.New("write how many a second and how many at once, for example 100,500, or off")
	}
	*r = Rate{second, once}
	return nil
}

// MarshalText returns what UnmarshalText reads.
func (r Rate) MarshalText() ([]byte, error) {
	if r.PerSecond == 0 {
		return []byte("off"), nil
	}
	return []byte(strconv.FormatFloat(r.PerSecond, 'f', -1, 64) + "," + strconv.Itoa(r.Burst)), nil
}

// Prefixes is a list of address ranges.
type Prefixes []netip.Prefix

// UnmarshalText reads ranges or single addresses with commas between them, or "none".
func (ps *Prefixes) UnmarshalText(text []byte) error {
	*ps = nil
	if string(text) == "none" {
		return nil
	}
	for item := range strings.SplitSeq(string(text), ",") {
		item = strings.TrimSpace(item)
		p, err := netip.ParsePrefix(item)
		if err != nil {
			a, addrErr := netip.ParseAddr(item)
			if addrErr != nil {
				return fmt.Errorf("%q is not an address range: write for example 10.0.0.0/8", item)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		*ps = append(*ps, p.Masked())
	}
	return nil
}

// MarshalText returns what UnmarshalText reads.
func (ps Prefixes) MarshalText() ([]byte, error) {
	if len(ps) == 0 {
		return []byte("none"), nil
	}
	var out []string
	for _, p := range ps {
		out = append(out, p.String())
	}
	return []byte(strings.Join(out, ",")), nil
}

// Origins is a list of origins of pages, as browsers write them.
type Origins []string

// UnmarshalText reads origins with commas between them, or "none".
func (o *Origins) UnmarshalText(text []byte) error {
	*o = nil
	if string(text) == "none" {
		return nil
	}
	for item := range strings.SplitSeq(string(text), ",") {
		item = strings.TrimSpace(item)
		u, err := url.Parse(item)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Scheme+"://"+u.Host != item || strings.ToLower(item) != item {
			return fmt.Errorf("%q is not an origin: write for example https://app.example.org, in lower case and without a path", item)
		}
		*o = append(*o, item)
	}
	return nil
}

// MarshalText returns what UnmarshalText reads.
func (o Origins) MarshalText() ([]byte, error) {
	if len(o) == 0 {
		return []byte("none"), nil
	}
	return []byte(strings.Join(o, ",")), nil
}

// SigningSecrets are keys for the v1 signatures of webhooks.
type SigningSecrets []Secret

// UnmarshalText reads whsec_ secrets with commas between them. Its errors show none.
func (ss *SigningSecrets) UnmarshalText(text []byte) error {
	var out SigningSecrets
	n := 0
	for item := range strings.SplitSeq(string(text), ",") {
		n++
		item = strings.TrimSpace(item)
		if _, err := push.ParseSecret(item); err != nil {
			return fmt.Errorf("secret %d is %w", n, err)
		}
		out = append(out, newSecret(item))
	}
	*ss = out
	return nil
}

// MarshalText says how many there are.
func (ss SigningSecrets) MarshalText() ([]byte, error) {
	return []byte(strings.TrimSuffix(strings.Repeat(redacted+",", len(ss)), ",")), nil
}

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New("not a duration: write a number and a unit, for example 500ms, 30s, 5m or 12h")
	}
	return d, nil
}

// formatDuration writes 5m instead of 5m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	if s == "0s" {
		return "0"
	}
	return s
}

func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "on", "true", "yes", "1":
		return true, nil
	case "off", "false", "no", "0":
		return false, nil
	}
	return false, errors.New("write on or off")
}

// Moment is a time on the command line: a date, a time, or how long ago it was.
type Moment struct{ time.Time }

// UnmarshalText reads 2026-11-20, 2026-11-20T14:00:00Z or 24h.
func (m *Moment) UnmarshalText(text []byte) error {
	if ago, err := parseDuration(string(text)); err == nil && ago >= 0 {
		m.Time = time.Now().Add(-ago)
		return nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05Z", "2006-01-02 15:04:05", "2006-01-02"} {
		if t, err := time.Parse(layout, string(text)); err == nil {
			m.Time = t
			return nil
		}
	}
	return errors.New("not a time: write 2026-11-20, 2026-11-20T14:00:00Z, or 24h for a day ago")
}
