package sse_test

import (
	"math"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/sse"
)

func TestIDRoundTrip(t *testing.T) {
	t.Parallel()
	for _, seq := range []int64{0, 1, 42, math.MaxInt64} {
		s := sse.FormatID(seq, "00c0ffee")
		got, short, ok := sse.ParseID(s)
		if !ok || got != seq || short != "00c0ffee" {
			t.Errorf("ParseID(%q) = %d, %q, %t", s, got, short, ok)
		}
	}
}

func TestParseIDIsStrict(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", "-", "1", "1-", "-00c0ffee", "1-00c0ffe", "1-00c0ffee0", "1-00C0FFEE", "1-00c0ffeg",
		"01-00c0ffee", "00-00c0ffee", "+1-00c0ffee", "-1-00c0ffee", " 1-00c0ffee", "1-00c0ffee ",
		"1.0-00c0ffee", "1e3-00c0ffee", "0x1-00c0ffee", "1_0-00c0ffee", "٣-00c0ffee",
		"9223372036854775808-00c0ffee", "99999999999999999999-00c0ffee",
		"1; drop table tasks-00c0ffee", "1-00c0ffee\n", "1--00c0ffee", "1-00c0-fee",
		strings.Repeat("1", 1<<20), strings.Repeat("1", 300) + "-00c0ffee",
	} {
		if seq, short, ok := sse.ParseID(s); ok || seq != 0 || short != "" {
			t.Errorf("ParseID(%.40q) = %d, %q, %t, want nothing", s, seq, short, ok)
		}
	}
}

func FuzzLastEventID(f *testing.F) {
	for _, s := range []string{"1-00c0ffee", "0-00000000", "9223372036854775807-ffffffff", "-1-00c0ffee", "7", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		seq, short, ok := sse.ParseID(s)
		switch {
		case !ok && (seq != 0 || short != ""):
			t.Fatalf("ParseID(%q) refused, but returned %d, %q", s, seq, short)
		case ok && (seq < 0 || len(s) > 256 || sse.FormatID(seq, short) != s):
			t.Fatalf("ParseID(%q) = %d, %q does not format back", s, seq, short)
		}
	})
}
