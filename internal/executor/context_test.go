package executor_test

import (
	"testing"

	"github.com/a2ad/a2ad/internal/executor"
)

// The key of a context and owner must be the same in every version.
func TestContextKey(t *testing.T) {
	t.Parallel()
	seen := map[string][3]string{}
	for _, c := range [][3]string{
		{"acme", "ann", "c"}, {"acme", "bob", "c"}, {"corp", "ann", "c"}, {"acme", "ann", "d"}, {"acm", "eann",
			"c"}, {"acme", "an", "nc"},
		{"acme", "ann1:c", ""}, {"acme", "", "ann1:c"}, {"", "acme", "annc"}, {"ACME", "ann", "c"}, {"acme", "ann",
			"c\x00"},
	} {
		key := executor.ContextKey(c[0], c[1], c[2])
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %q have the key %s", c, other, key)
		}
		seen[key] = c
	}
	if key := executor.ContextKey("acme", "ann", "c"); key != "bc89b12b-419e-8c21-a86b-0c904d62286c" {
		t.Errorf("the key of a context has changed to %s: agents would lose their memory", key)
	}
}
