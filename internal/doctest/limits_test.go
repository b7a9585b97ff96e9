package doctest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// bounds matches the settings that are limits.
var bounds = regexp.MustCompile(`^A2AD_(MAX_.*|RATE_.*|KEEP_.*|.*_TIMEOUT|.*_MAX_BODY|` +
	`BLOCKING_MAX_WAIT|RUN_DEADLINE|PUSH_CONCURRENCY|PUSH_PER_DESTINATION)$`)

// noLimits match bounds, but limit only the server itself.
var noLimits = map[string]bool{"A2AD_MAX_ATTEMPTS": true, "A2AD_READY_TIMEOUT": true, "A2AD_DRAIN_TIMEOUT": true}

// The security page has every limit with its default, and says what happens beyond it.
func TestSecurityPageListsTheLimits(t *testing.T) {
	t.Parallel()
	names, all := settings(t)
	data, err := os.ReadFile(filepath.Join(root, "docs", "reference", "limits.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(data), "<!-- limits -->\n")
	table, _, ok := strings.Cut(table, "<!-- limits end -->\n")
	if !ok {
		t.Fatal("docs/reference/limits.md has no table of limits")
	}
	rows := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(A2AD_\\w+)` \\| `([^`]*)` \\| (.*) "+
		"\\|$").FindAllStringSubmatch(table, -1) {
		name, def, beyond := m[1], m[2], m[3]
		s, known := all[name]
		if !known || rows[name] {
			t.Errorf("%s is no setting, or is there twice", name)
		}
		if rows[name] = true; s.Default != def || strings.TrimSpace(beyond) == "" {
			t.Errorf("%s is %s in the table and %s in the program", name, def, s.Default)
		}
	}
	if lines := strings.Count(table, "\n") - 2; lines != len(rows) {
		t.Errorf("%d of %d rows can be read", len(rows), lines)
	}
	for _, name := range names {
		if bounds.MatchString(name) && !noLimits[name] && !rows[name] {
			t.Errorf("%s is not in the table", name)
		}
	}
}
