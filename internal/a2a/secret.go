package a2a

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is a text that shows as [redacted] however it is printed, logged or marshalled. Who
// needs it converts it to a string, which is easy to look for.
type Secret string

const redacted = "[redacted]"

// String returns "[redacted]".
func (Secret) String() string { return redacted }

// Format writes "[redacted]" for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue returns "[redacted]".
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns "[redacted]", for encoding/json and its like.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
