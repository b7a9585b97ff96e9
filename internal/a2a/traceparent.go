package a2a

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
)

// Traceparent is where a request stands in a distributed trace, as the W3C's Trace Context
// writes it in the header traceparent. The empty one is none.
type Traceparent string

const (
	traceLen = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	traceID  = 3  // where its 32 digits begin
	parentID = 36 // where its 16 digits begin
	flags    = 53 // where its 2 digits begin
)

// knownFlags are sampled and random: others are not to be passed on by who does not know them.
const knownFlags = 0x03

// ParseTraceparent reads the header. What is not one gives the empty Traceparent, as if there
// had been none; what a later version says is cut to what is known of it.
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

// isID reports whether text consists of digits, and not of zeros alone where that means none.
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

// Next is a step of the same trace with an id of its own, for a request that t brought about.
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
