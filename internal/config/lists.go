package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/push"
)

// Words is a list of names.
type Words []string

// UnmarshalText reads names separated by commas.
func (ws *Words) UnmarshalText(text []byte) error {
	var out Words
	for item := range strings.SplitSeq(string(text), ",") {
		if item = strings.TrimSpace(item); item == "" {
			return errors.New("an empty name: write names separated by commas")
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

// UnmarshalText reads scopes separated by commas.
func (ss *Scopes) UnmarshalText(text []byte) error {
	var out Scopes
	for item := range strings.SplitSeq(string(text), ",") {
		s := auth.Scope(strings.TrimSpace(item))
		if !s.Valid() {
			return fmt.Errorf("unknown scope %q; the scopes are %s", s, ScopeNames())
		}
		out = append(out, s)
	}
	*ss = out
	return nil
}

// ScopeNames lists all scopes, for messages.
func ScopeNames() string {
	text, _ := Scopes(auth.Scopes()).MarshalText()
	return strings.ReplaceAll(string(text), ",", ", ")
}

// MarshalText returns what UnmarshalText reads.
func (ss Scopes) MarshalText() ([]byte, error) {
	var out []string
	for _, s := range ss {
		out = append(out, string(s))
	}
	return []byte(strings.Join(out, ",")), nil
}

// SigningSecrets are keys for the v1 signatures of webhooks.
type SigningSecrets []Secret

// UnmarshalText reads whsec_ secrets separated by commas. Its errors do not show them.
func (ss *SigningSecrets) UnmarshalText(text []byte) error {
	var out SigningSecrets
	n := 0
	for item := range strings.SplitSeq(string(text), ",") {
		n++
		item = strings.TrimSpace(item)
		if _, err := push.ParseSecret(item); err != nil {
			return fmt.Errorf("secret %d is %w", n, err)
		}
		out = append(out, NewSecret(item))
	}
	*ss = out
	return nil
}

// MarshalText shows how many secrets there are, and none of them.
func (ss SigningSecrets) MarshalText() ([]byte, error) {
	return []byte(strings.TrimSuffix(strings.Repeat(redacted+",", len(ss)), ",")), nil
}
