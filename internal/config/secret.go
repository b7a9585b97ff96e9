package config

import (
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
)

const redacted = "[redacted]"

// Secret is text that must not be shown. It prints as [redacted] with every verb of fmt, in JSON and
// in logs. The zero value is no text.
//
// The pointer hides the text in unexported fields, where fmt calls no methods.
type Secret struct{ text *string }

// NewSecret returns a secret; "" is the zero value.
func NewSecret(text string) Secret {
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

// String returns [redacted], or "" if there is no text.
func (s Secret) String() string {
	if s.text == nil {
		return ""
	}
	return redacted
}

// Format hides the text from %q, %x, %#v and the like.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// MarshalText hides the text from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue hides the text from logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

var dsnPassword = regexp.MustCompile(`(?i)((?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)`)

// MaskDSN hides the passwords of a database URL or of a keyword/value string. Text in neither form is
// hidden as a whole.
func MaskDSN(dsn string) string {
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
