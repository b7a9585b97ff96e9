package a2atest_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a/a2atest"
	"github.com/a2ad/a2ad/internal/rawjson"
)

func TestGeneratedValuesFitTheStore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		for _, raw := range [][]byte{a2atest.Object().Draw(t, "object"), a2atest.Value().Draw(t, "value")} {
			if err := rawjson.Check(raw, 8); err != nil {
				t.Fatalf("%q: %v", raw, err)
			}
		}
		if s := a2atest.Name().Draw(t, "name"); s == "" || len(s) > 256 || !utf8.ValidString(s) ||
			strings.Contains(s, "\x00") {
			t.Fatalf("name %q", s)
		}
		if s := a2atest.Text().Draw(t, "text"); !utf8.ValidString(s) {
			t.Fatalf("text %q", s)
		}
	})
}
