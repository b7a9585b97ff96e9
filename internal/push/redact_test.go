package push

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestRedaction(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		secrets    []string
		data, want string
		keep       int
	}{
		"nothing to hide":         {nil, "abc", "abc", 10},
		"empty secret":            {[]string{""}, "abc", "abc", 10},
		"once":                    {[]string{"secret"}, "a secret b", "a [redacted] b", 100},
		"twice in a row":          {[]string{"secret"}, "secretsecret", "[redacted]", 100},
		"overlapping itself":      {[]string{"abab"}, "xabababx", "x[redacted]x", 100},
		"two secrets":             {[]string{"secret", "crete"}, "a secrete b", "a [redacted] b", 100},
		"across the cut":          {[]string{"secret"}, "a secret b", "a [redac", 8},
		"after the cut":           {[]string{"secret"}, "abcdefgh secret", "abcdefgh", 8},
		"begun at the end":        {[]string{"secret"}, "a secr", "a [redacted]", 100},
		"barely begun at the end": {[]string{"secret"}, "a sec", "a sec", 100},
		"short":                   {[]string{"k"}, "ok", "o[redacted]", 100},
		"keep nothing":            {[]string{"k"}, "ok", "", 0},
		"keep less than nothing":  {[]string{"k"}, "ok", "", -1},
		"as JSON": {[]string{`a"b<c`}, `{"x":"a\"b<c","y":"a\"b\u003cc"}`,
			`{"x":"[redacted]","y":"[redacted]"}`, 100},
		"as HTML":    {[]string{`a"b<c`}, `<p>a&#34;b&lt;c</p>`, `<p>[redacted]</p>`, 100},
		"as a query": {[]string{`a b/c`}, `?x=a+b%2Fc&y=a%20b%2Fc`, `?x=[redacted]&y=[redacted]`, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := newRedactor(tt.secrets...).clean([]byte(tt.data), tt.keep); string(got) != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRedactionLeavesNoSecret(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune(`xyz"`)), 4, 9, -1)
		secrets := rapid.SliceOfN(text, 1, 3).Draw(t, "secrets")
		parts := rapid.SliceOf(rapid.OneOf(rapid.SampledFrom(secrets),
			rapid.StringOf(rapid.RuneFrom([]rune("xyz\" -"))))).Draw(t, "parts")
		data := []byte(strings.Join(parts, ""))
		before := bytes.Clone(data)
		keep := rapid.IntRange(0, len(data)+20).Draw(t, "keep")
		got := newRedactor(secrets...).clean(data, keep)
		if len(got) > keep || !bytes.Equal(data, before) {
			t.Fatalf("%d bytes, want %d at most", len(got), keep)
		}
		for _, s := range secrets {
			if bytes.Contains(got, []byte(s)) {
				t.Fatalf("%q is left in %q of %q", s, got, data)
			}
		}
	})
}

// BenchmarkRedactionWorstCase: a receiver chooses the answer and may have chosen the secret. The
// worst combination must not take long.
func BenchmarkRedactionWorstCase(b *testing.B) {
	r := newRedactor(strings.Repeat("a", 4<<10), strings.Repeat("a", 4<<10-1), strings.Repeat("a", 2<<10)+"b")
	data := bytes.Repeat([]byte("a"), 16<<10)
	for b.Loop() {
		r.clean(data, 4<<10)
	}
}
