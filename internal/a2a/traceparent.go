package a2a

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
)

// Traceparent is the position of a request in a distributed trace: the header traceparent of W3C Trace Context.
// Empty: the request has no trace.
type Traceparent string

const (
	traceLen = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	traceID  = 3  // where its 32 digits begin
	parentID = 36 // where its 16 digits begin
	flags    = 53 // where its 2 digits begin
)

// knownFlags are sampled and random. The specification forbids passing on flags that one does not know.
const knownFlags = 0x03

// ParseTraceparent reads the header. An invalid header counts as absent and gives the empty Traceparent. A
// header of a later version is reduced to the known fields.
func ParseTraceparent(header string) Traceparent {
	if len(header) < traceLen || strings.Trim(header[:traceLen], "0123456789abcdef-") != "" {
		return ""
	}
	version, rest := header[:2], header[traceLen:]
	if version == "ff" || version == "00" && rest != "" || rest != "" && rest[0] != '-' {
		return ""
	}
	if header[traceID-1] != '-' || header[parentID-1] != '-' || header[flags-1] != '-' {
		return ""
	}
	trace, parent := header[traceID:parentID-1], header[parentID:flags-1]
	set, err := hex.DecodeString(header[flags:traceLen])
	if err != nil || !isID(version, false) || !isID(trace, true) || !isID(parent, true) {
		return ""
	}
	return Traceparent("00-" + trace + "-" + parent + "-" + hex.EncodeToString([]byte{set[0] & knownFlags}))
}

// isID reports whether a field of the header has no dash and, with notZero, is not all zeros.
func isID(text string, notZero bool) bool {
	return !strings.Contains(text, "-") && (!notZero || strings.Trim(text, "0") != "")
}

// TraceID returns the id of the whole trace, or "".
func (t Traceparent) TraceID() string {
	if t == "" {
		return ""
	}
	return string(t[traceID : parentID-1])
}

// Next returns a new step of the same trace, for a request that is sent because of t.
func (t Traceparent) Next() Traceparent {
	if t == "" {
		return ""
	}
	var id [8]byte
	for id == [8]byte{} {
		_, _ = rand.Read(id[:]) // it never fails
	}
	return t[:parentID] + Traceparent(hex.EncodeToString(id[:])) + t[flags-1:]
}
