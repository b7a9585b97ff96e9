package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
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

// GRPCListen says where gRPC is served: on an address of its own, on the port of the API, or nowhere ("").
type GRPCListen string

// SamePort serves gRPC on the port of the API.
const SamePort GRPCListen = "same"

// UnmarshalText reads "host:port", "same" or "off".
func (g *GRPCListen) UnmarshalText(text []byte) error {
	if string(text) == string(SamePort) {
		*g = SamePort
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

// Own returns the address of a listener that only gRPC has, or "".
func (g GRPCListen) Own() Listen {
	if g == SamePort {
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

// AnyPort reports whether the system chooses the port.
func (l Listen) AnyPort() bool { return strings.HasSuffix(string(l), ":0") }

// Dial returns the address at which this machine can connect to the listener.
func (l Listen) Dial() string {
	host, port, err := net.SplitHostPort(string(l))
	if err != nil {
		return string(l)
	}
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return net.JoinHostPort(host, port)
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

// TraceURL is the address of a trace, with {trace_id} in place of its id, or "".
type TraceURL string

// tracePlaceholder stands for the id of a trace.
const tracePlaceholder = "{trace_id}"

// UnmarshalText reads the template.
func (t *TraceURL) UnmarshalText(text []byte) error {
	const example = "write for example https://jaeger.example.org/trace/" + tracePlaceholder
	before, after, found := strings.Cut(string(text), tracePlaceholder)
	if !found || strings.ContainsAny(before+after, "{}") {
		return errors.New("must have " + tracePlaceholder + " once, and no other braces: " + example)
	}
	// The id must not choose the host.
	u, err := url.Parse(before)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		!strings.HasPrefix(u.Path, "/") {
		return errors.New("not an absolute URL of http or https: " + example)
	}
	if _, err := url.Parse(before + strings.Repeat("0", 32) + after); err != nil {
		return errors.New("not a URL: " + example)
	}
	*t = TraceURL(text)
	return nil
}

// MarshalText returns the template.
func (t TraceURL) MarshalText() ([]byte, error) { return []byte(t), nil }

// Issuer is the URL of an identity provider. It is kept as it is written, because tokens are compared with it.
type Issuer string

// UnmarshalText reads an https URL, or one of http on this machine.
func (i *Issuer) UnmarshalText(text []byte) error {
	u, err := url.Parse(string(text))
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("not an absolute URL: write for example https://login.example.org")
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !Listen(u.Host+":0").Loopback() && !Listen(u.Host).Loopback()) {
		return errors.New("must begin with https://: an attacker who can change plain http could sign in as any caller")
	}
	*i = Issuer(text)
	return nil
}

// MarshalText returns the URL.
func (i Issuer) MarshalText() ([]byte, error) { return []byte(i), nil }

// Prefixes is a list of address ranges.
type Prefixes []netip.Prefix

// UnmarshalText reads ranges or single addresses separated by commas, or "none".
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

// Origins is a list of origins of web pages, as browsers write them.
type Origins []string

// UnmarshalText reads origins separated by commas, or "none".
func (o *Origins) UnmarshalText(text []byte) error {
	*o = nil
	if string(text) == "none" {
		return nil
	}
	for item := range strings.SplitSeq(string(text), ",") {
		item = strings.TrimSpace(item)
		if !isOrigin(item) {
			return fmt.Errorf(
				"%q is not an origin: write for example https://app.example.org, in lower case and without a path",
				item)
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

func isOrigin(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return false
	}
	return text == u.Scheme+"://"+u.Host && text == strings.ToLower(text)
}
