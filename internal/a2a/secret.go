package a2a

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is a text that shows as [redacted] however it is printed, logged or marshaled. Code that needs the
// value converts it to a string; such conversions are easy to find.
type Secret string

const redacted = "[redacted]"

// String returns "[redacted]".
func (Secret) String() string { return redacted }

// Format writes "[redacted]" for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue returns "[redacted]".
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns "[redacted]", for encoding/json and similar packages.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
