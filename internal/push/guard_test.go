package push

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// badAddresses are special-purpose addresses that a webhook must never reach.
var badAddresses = strings.Fields(`
	127.0.0.1 127.1.2.3 0.0.0.0 10.0.0.1 169.254.169.254 172.31.0.1 192.168.1.1 224.0.0.1 ::1 :: ::ffff:127.0.0.1
	::ffff:169.254.169.254 fe80::1 fe80::1%lo fd00:ec2::254 fc00::1 ff02::1 0.1.2.3 100.64.0.1 192.0.0.192
	198.18.0.1 240.0.0.1 255.255.255.255 192.88.99.1 ::127.0.0.1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::1
	2002:7f00:1:: 2001:0:4136:e378:8000:63bf:3fff:fdd2 fec0::1 ::ffff:0:127.0.0.1 5f00::1 100::1 10.1.1.1 172.16.0.1
	172.31.255.255 100.100.100.200 192.0.2.1 198.51.100.7 203.0.113.9 192.31.196.1 192.52.193.1 192.175.48.1
	198.19.255.255 168.63.129.16 fe80::1%eth0 2002:a9fe:a9fe:: 2001::1 2001:db8::1 3fff::1 64:ff9b:1::7f00:1
	::ffff:7f00:1 2620:4f:8000::1 4000::1 fdff::1 ::ffff:10.0.0.1`)

var goodAddresses = strings.Fields(`
	1.1.1.1 8.8.8.8 172.32.0.1 100.128.0.1 168.63.129.17 192.0.1.1 198.20.0.1 223.255.255.255 2606:4700:4700::1111
	2a00:1450:4001::1 2001:4860:4860::8888 ::ffff:8.8.8.8`)

// TestSpecialAddressesAreRefused: as literals, at creation and at dial alike.
func TestSpecialAddressesAreRefused(t *testing.T) {
	t.Parallel()
	p := Policy{AllowHTTP: true}
	check := func(addr string, want error) {
		a := netip.MustParseAddr(addr)
		network := "tcp4"
		if a.Is6() {
			network = "tcp6"
		}
		if err := p.Control(t.Context(), network, netip.AddrPortFrom(a, 443).String(), nil); !errors.Is(err, want) {
			t.Errorf("dial of %s: got %v, want %v", addr, err, want)
		}
		if a.Zone() != "" {
			return // such a URL is refused for its form
		}
		host := addr
		if a.Is6() {
			host = "[" + addr + "]"
		}
		if _, err := p.CheckURL("https://" + host + "/"); !errors.Is(err, want) {
			t.Errorf("URL of %s: got %v, want %v", addr, err, want)
		}
	}
	for _, a := range badAddresses {
		check(a, ErrBlocked)
	}
	for _, a := range goodAddresses {
		check(a, nil)
	}
}

// TestGuardRefusesWhatTheOracleRefuses: a second list of prefixes is checked at the addresses near
// the edges of each block.
func TestGuardRefusesWhatTheOracleRefuses(t *testing.T) {
	t.Parallel()
	oracle := prefixes(strings.Fields(`
	0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24
	192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24
	203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 ::/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 2001::/23 2001:db8::/32
	2002::/16 3fff::/20 5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8 ::ffff:0:0:0/96`)...)
	for _, p := range oracle {
		last := p.Addr().AsSlice()
		for bit := p.Bits(); bit < len(last)*8; bit++ {
			last[bit/8] |= 0x80 >> (bit % 8)
		}
		end, _ := netip.AddrFromSlice(last)
		for _, a := range []netip.Addr{p.Addr(), p.Addr().Next(), end.Prev(), end} {
			if p.Contains(a) && public(bare(a)) {
				t.Errorf("%s of %s is let through", a, p)
			}
		}
		if p.Addr().Is4() { // the address across the edge
			for _, a := range []netip.Addr{p.Addr().Prev(), end.Next()} {
				if a.IsValid() && !contains(oracle, a) && !public(a) {
					t.Errorf("%s beside %s is refused", a, p)
				}
			}
		}
	}
}

func TestRefusedURLs(t *testing.T) {
	t.Parallel()
	p := Policy{AllowHTTP: true}
	for _, tt := range []struct {
		want error
		urls []string
	}{
		{ErrBadURL, []string{
			"", "x", "https", "https:", "https:/", "https://", "http:///x", "//h/x", "/x", "https:h", "https:///",
			"https://:443/", "https://?x",
			"http://h:99999/", "http://h:0/", "http://h:-1/", "http://h:+80/", "http://h:080/", "http://h:/",
			"http://h:http/", "http://h:80:80/",
			"http://u:p@example.com/", "http://u@example.com/", "http://@example.com/", "http://example.com@127.0.0.1/",
			"http://127.0.0.1#@example.com/", "https://example.com/#", "https://example.com/#x",
			"https://example.com/%23#",
			`http://127.0.0.1\@example.com/`, `http://example.com\x`, "http://exa mple/", "http://a\r\nb/",
			"http://h/\r\nX: y", "http://h/\x00", "http://h/\t",
			" http://h/", "http://h/ ", "http://h/é", "http://①②⑦.0.0.1/", "http://127。0。0。1/",
			"http://%31%32%37.0.0.1/", "http://h%00/", "http://h%2e/",
			"file:///etc/passwd", "gopher://x/", "ftp://x/", "unix:///run/x", "data:text/plain,x",
			"javascript:alert(1)", "FILE:///etc/passwd",
			"GoPher://x/", "HTTPS://example.com/", "Http://example.com/", "hTTps://example.com/", "ws://x/",
			"https+unix://x/",
			"http://[::1/", "http://::1/", "http://[::1]x/", "http://[fe80::1%25lo]/", "http://[fe80::1%25eth0]/",
			"http://[127.0.0.1]/", "http://[example.com]/", "http://[]/",
			"http://2130706433/", "http://0x7f000001/", "http://0177.0.0.1/", "http://127.1/", "http://0/",
			"http://127.0.0.1./", "http://0x7f.1/", "http://0X7F.1/",
			"http://1.2.3.4.5/", "http://1.2.3.256/", "http://example.com./", "http://LOCALHOST./",
			"http://localhost./", "http://a..b/", "http://.a/", "http://a.0x/",
			"http://" + strings.Repeat("a", 64) + ".com/", "http://" + strings.Repeat("a.", 130) +
				"com/", "https://example.com/" + strings.Repeat("a", 2048),
			"http://ex^ample.com/", "http://ex|ample/", "http://a,b/", "http://a;b/", "http://a'b/",
			"http://*.example.com/",
		}},
		{ErrBlocked, []string{
			"http://127.0.0.1/", "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/",
			"http://localhost/", "http://LOCALHOST/", "https://x.localhost/",
			"https://example.com:22/", "https://example.com:25/", "https://example.com:5432/",
			"https://example.com:6379/", "http://8.8.8.8:22/", "https://example.com:65535/",
		}},
	} {
		for _, raw := range tt.urls {
			if _, err := p.CheckURL(raw); !errors.Is(err, tt.want) {
				t.Errorf("%q: got %v, want %v", raw, err, tt.want)
			}
		}
	}
}

func TestPermittedURLs(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"https://example.com", "https://example.com/", "https://example.com/hook?a=b&c=%20d",
		"https://EXAMPLE.com:443/", "https://example.com:8443/x", "https://example.com:8000",
		"https://xn--bcher-kva.example/", "https://a_b.example/", "https://hooks/", "https://8.8.8.8/",
		"https://[2606:4700:4700::1111]:443/x", "https://1password.com/", "https://a.b.c1/",
		"https://example.com?x", "https://example.com/a@b:c", "https://localhost.example/",
	} {
		if u, err := (Policy{}).CheckURL(raw); err != nil || u == nil {
			t.Errorf("%q: %v", raw, err)
		}
		if _, err := (Policy{}).CheckURL("http" + strings.TrimPrefix(raw, "https")); !errors.Is(err, ErrBadURL) {
			t.Errorf("%q with http: got %v", raw, err)
		}
	}
}

// TestAllowPermitsOnlyItsRanges: Allow permits its ranges, with every port, and names that may
// resolve to them.
func TestAllowPermitsOnlyItsRanges(t *testing.T) {
	t.Parallel()
	p := Policy{AllowHTTP: true, Allow: loopback}
	for raw, want := range map[string]error{
		"http://127.0.0.1:39999/": nil, "http://[::1]:5/": nil, "http://[::ffff:127.0.0.1]:5/": nil,
		"http://localhost:9999/": nil, "http://x.localhost/": nil,
		"http://10.0.0.1/": ErrBlocked, "http://169.254.169.254/": ErrBlocked, "http://[fd00::1]/": ErrBlocked,
		"http://8.8.8.8:25/": ErrBlocked, "http://8.8.8.8/": nil,
		"http://2130706433/": ErrBadURL, "http://127.1/": ErrBadURL,
	} {
		if _, err := p.CheckURL(raw); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", raw, err, want)
		}
	}
	p.Allow = prefixes("10.0.0.0/8")
	if _, err := p.CheckURL("http://localhost/"); !errors.Is(err, ErrBlocked) {
		t.Errorf("localhost beside an allowed range: got %v", err)
	}
}

func TestServerDoesNotCallItself(t *testing.T) {
	t.Parallel()
	self, err := Listening(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080},
		&net.TCPAddr{IP: net.IPv6unspecified, Port: 9090})
	if err != nil {
		t.Fatal(err)
	}
	p := Policy{AllowHTTP: true, Allow: loopback, Self: self, SelfOrigins: []string{"https://agents.example:443"}}
	for raw, want := range map[string]error{
		"http://127.0.0.1:8080/": ErrBlocked, "http://[::ffff:127.0.0.1]:8080/": ErrBlocked,
		"http://127.0.0.1:8081/": nil, "http://127.0.0.2:8080/": nil,
		"http://127.0.0.1:9090/": ErrBlocked, "http://127.9.9.9:9090/": ErrBlocked, "http://[::1]:9090/": ErrBlocked,
		"http://[::1]:8080/":       nil,
		"https://agents.example/x": ErrBlocked, "https://AGENTS.example:443/": ErrBlocked,
		"https://agents.example:8443/": nil,
	} {
		if _, err := p.CheckURL(raw); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", raw, err, want)
		}
	}
}

func TestPortsCanBeSet(t *testing.T) {
	t.Parallel()
	p := Policy{Ports: []PortRange{{9443, 9445}}}
	for raw, want := range map[string]error{
		"https://example.com:9443/": nil, "https://example.com:9445/": nil, "https://example.com/": ErrBlocked,
		"https://8.8.8.8:9446/": ErrBlocked,
	} {
		if _, err := p.CheckURL(raw); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", raw, err, want)
		}
	}
}

func TestControlRefusesOddNetworks(t *testing.T) {
	t.Parallel()
	p := Policy{Allow: loopback}
	for _, tt := range [][2]string{{"udp4", "8.8.8.8:443"}, {"unix", "/run/x"}, {"tcp", "8.8.8.8:443"},
		{"tcp4", "example.com:443"}, {"tcp4", ""}, {"tcp4", "8.8.8.8"}} {
		if err := p.Control(t.Context(), tt[0], tt[1], nil); !errors.Is(err, ErrBlocked) {
			t.Errorf("%v: got %v", tt, err)
		}
	}
}

// TestURLErrorsRepeatNoSecrets: an error must not repeat a password in the URL, in any form.
func TestURLErrorsRepeatNoSecrets(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"https://u:hunter2@h/", "https://hunter2@[::1/", "https://h:hunter2/", "hunter2://h/",
		"https://h/?t=hunter2#x", "https://%hunter2/"} {
		if _, err := (Policy{}).CheckURL(raw); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

func TestOrigin(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"https://Example.COM/a?b": "https://example.com:443", "http://h": "http://h:80",
		"https://h:8443/": "https://h:8443", "https://[2606:4700::1111]/": "https://[2606:4700::1111]:443",
		"HTTPS://H": "https://h:443",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := Origin(u); got != want {
			t.Errorf("Origin(%q) = %q, want %q", raw, got, want)
		}
	}
}

// FuzzPushURL: whatever CheckURL accepts as an address the dial guard permits too, and every host it accepts is a
// plain name.
func FuzzPushURL(f *testing.F) {
	for _, a := range append(badAddresses, goodAddresses...) {
		f.Add("https://"+a+"/", false)
		f.Add("http://["+a+"]:8080/", true)
	}
	for _, raw := range []string{"https://example.com/", "http://2130706433/", "http://[fe80::1%25lo]/",
		"http://u@h:1/", "http://h:99999/", "https://0x7f.1:443"} {
		f.Add(raw, true)
	}
	f.Fuzz(func(t *testing.T, raw string, dev bool) {
		p := Policy{}
		if dev {
			p = Policy{AllowHTTP: true, Allow: loopback}
		}
		u, err := p.CheckURL(raw)
		if err != nil {
			if u != nil || !errors.Is(err, ErrBlocked) && !errors.Is(err, ErrBadURL) {
				t.Fatalf("%q: %v, %v", raw, u, err)
			}
			return
		}
		if u.Scheme != "https" && (u.Scheme != "http" || !dev) || u.User != nil || u.Fragment != "" || u.Host == "" ||
			len(raw) > DefaultMaxURL {
			t.Fatalf("%q is accepted as %#v", raw, u)
		}
		origin, err := url.Parse(Origin(u))
		if err != nil || origin.Port() == "" || !strings.EqualFold(origin.Hostname(), u.Hostname()) ||
			origin.Scheme != u.Scheme {
			t.Fatalf("origin of %q is %q (%v)", raw, Origin(u), err)
		}
		a, err := netip.ParseAddr(u.Hostname())
		if err != nil {
			if strings.ContainsAny(u.Host, "[]%@/\\ ") || net.ParseIP(u.Hostname()) != nil {
				t.Fatalf("%q has the host %q", raw, u.Host)
			}
			return
		}
		network := "tcp6"
		if a.Is4() {
			network = "tcp4"
		}
		if err := p.Control(t.Context(), network, net.JoinHostPort(u.Hostname(), origin.Port()), nil); err != nil {
			t.Fatalf("%q is accepted at create and refused at dial: %v", raw, err)
		}
	})
}
