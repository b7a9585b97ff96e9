package auth

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
)

// This file reads what a TLS-terminating proxy says about its client's certificate, in Envoy's
// format. The statement is as trustworthy as its sender, so only the address of the connection
// decides.

// forwardedHeader is the header, as http.Header names it.
const forwardedHeader = "X-Forwarded-Client-Cert"

var (
	errForwarded       = errors.New("malformed forwarded certificate")
	errForwardedByMany = errors.New("forwarded certificates of several proxies")
)

// fromProxy reports whether the peer of the connection is a trusted proxy.
func (c Certs) fromProxy(remoteAddr string) bool {
	peer, err := netip.ParseAddrPort(remoteAddr)
	if err != nil {
		return false
	}
	addr := peer.Addr().Unmap()
	return slices.ContainsFunc(c.Proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// forwarded returns the holder of the certificate that a trusted proxy reports.
//
// There must be one element, from one proxy. With a second element another proxy is involved: the
// last element then describes that proxy and not the client, and the elements before it are
// unverified claims. This also keeps a certificate whose URI contains a comma from posing as two
// elements.
func forwarded(lines []string) (holder, error) {
	if len(lines) != 1 {
		return holder{}, errForwardedByMany
	}
	e, err := parseForwarded(lines[0])
	if err != nil {
		return holder{}, err
	}
	var h holder
	if e.hasCert {
		if h, err = holderOfPEM(e.cert); err != nil {
			return holder{}, err
		}
	}
	if !e.hasURI {
		return h, nil
	}
	// The first URI is that of the certificate, even if its text looks like further pairs.
	said, err := parseURI(e.uri)
	if err != nil || e.hasCert && !sameURI(said, h.uri) {
		return holder{}, errForwarded
	}
	h.uri = said
	return h, nil
}

// parseURI parses the URI of a certificate. An empty one is nil.
func parseURI(s string) (*url.URL, error) {
	if s == "" {
		return nil, nil
	}
	u, err := url.Parse(s)
	if err != nil || !u.IsAbs() || strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || r == '\\' || r == '"'
	}) {
		return nil, errForwarded
	}
	return u, nil
}

func sameURI(a, b *url.URL) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.String() == b.String()
}

// holderOfPEM reads a URL-escaped certificate in PEM.
func holderOfPEM(escaped string) (holder, error) {
	text, err := url.PathUnescape(escaped)
	if err != nil {
		return holder{}, errForwarded
	}
	block, rest := pem.Decode([]byte(text))
	if block == nil || block.Type != "CERTIFICATE" || !strings.HasPrefix(text, "-----BEGIN ") ||
		strings.TrimSpace(string(rest)) != "" {
		return holder{}, errForwarded
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return holder{}, errForwarded
	}
	return holderOf(cert), nil
}

// element is what one proxy says about its client.
type element struct {
	cert, uri       string
	hasCert, hasURI bool
}

// parseForwarded reads a header with one element: pairs of a case-insensitive key and a value,
// separated by semicolons. A value with a comma, a semicolon or an equals sign is in double quotes,
// in which a backslash escapes the next character.
// Host names come last, because Envoy does not quote them: so none can start a pair that counts.
// The subject is ignored, because its format is ambiguous.
func parseForwarded(text string) (e element, err error) {
	for hosts := false; ; {
		key, rest, ok := strings.Cut(text, "=")
		if !ok || !isKey(key) {
			return element{}, errForwarded
		}
		value, rest, err := cutValue(rest)
		if err != nil {
			return element{}, err
		}
		key = strings.ToLower(key)
		if hosts && key != "dns" {
			return element{}, errForwarded
		}
		switch key {
		case "dns":
			hosts = true
		case "cert":
			if e.hasCert {
				return element{}, errForwarded
			}
			e.cert, e.hasCert = value, true
		case "uri":
			if !e.hasURI { // Envoy writes a pair for each URI, and the first names the owner
				e.uri, e.hasURI = value, true
			}
		}
		switch {
		case rest == "":
			return e, nil
		case rest[0] == ',':
			return element{}, errForwardedByMany
		}
		text = rest[1:]
	}
}

func isKey(s string) bool {
	for i := range len(s) {
		if c := s[i] | 0x20; c < 'a' || c > 'z' {
			return false
		}
	}
	return s != ""
}

// cutValue returns a value without its quotes, and the rest: nothing, or a separator and more.
func cutValue(s string) (value, rest string, err error) {
	if quoted, ok := strings.CutPrefix(s, `"`); ok {
		end := 0
		for end < len(quoted) && quoted[end] != '"' {
			if quoted[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(quoted) {
			return "", "", errForwarded
		}
		value, rest = quoted[:end], quoted[end+1:]
		if rest != "" && rest[0] != ';' && rest[0] != ',' {
			return "", "", errForwarded
		}
	} else {
		end := strings.IndexAny(s, ";,")
		if end < 0 {
			end = len(s)
		}
		value, rest = s[:end], s[end:]
		if strings.ContainsFunc(value, func(r rune) bool {
			return r <= ' ' || r >= 0x7f || strings.ContainsRune(`="\`, r)
		}) {
			return "", "", errForwarded
		}
	}
	if strings.ContainsFunc(value, unicode.IsControl) {
		return "", "", errForwarded
	}
	return value, rest, nil
}

// holder is the subject of a certificate.
type holder struct {
	uri           *url.URL // the first one; nil: none
	name          string   // the common name
	organizations []string
	from, until   time.Time // zero: not known
}

func holderOf(cert *x509.Certificate) holder {
	h := holder{name: cert.Subject.CommonName, organizations: cert.Subject.Organization, from: cert.NotBefore,
		until: cert.NotAfter}
	if len(cert.URIs) > 0 {
		h.uri = cert.URIs[0]
	}
	return h
}

func (h holder) owner() string {
	if h.uri != nil {
		return h.uri.String()
	}
	return h.name
}

// current reports whether now is within the known validity of the certificate.
func (h holder) current(now time.Time) bool {
	return h.until.IsZero() || !now.Before(h.from) && !now.After(h.until)
}
