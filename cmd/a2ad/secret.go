package main

import (
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
)

const redacted = "[redacted]"

// Secret is text that must not be seen: it prints as [redacted] with every verb of
// fmt, in JSON and in logs. The zero value is no text. The pointer keeps it from fmt
// also inside of unexported fields, where fmt calls no methods.
type Secret struct{ text *string }

func newSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{&text}
}

// Reveal returns the text itself.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsSet reports whether there is any text.
func (s Secret) IsSet() bool { return s.text != nil }

func (s Secret) String() string {
	if s.text == nil {
		return ""
	}
	return redacted
}

// Format keeps %q, %x, %#v and the like from the text as well.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// MarshalText keeps encoders from the text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue keeps logs from the text.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

var dsnPassword = regexp.MustCompile(`(?i)((?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)`)

// maskDSN hides the passwords of a database URL or a keyword/value string and leaves
// the rest readable; what it does not understand it hides as a whole.
func maskDSN(dsn string) string {
	if !strings.Contains(dsn, "://") {
		if !strings.Contains(dsn, "=") {
			return redacted
		}
		return dsnPassword.ReplaceAllString(dsn, "${1}xxxxx")
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return redacted
	}
	q := u.Query()
	for k := range q {
		if strings.Contains(strings.ToLower(k), "password") {
			q.Set(k, "xxxxx")
		}
	}
	u.RawQuery = q.Encode()
	return u.Redacted()
}
