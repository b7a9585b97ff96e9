package doctest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/slowtest"
)

// The targets of `make test-slow` are the same in the Makefile, in CONTRIBUTING.md, in affected.sh and in the workflow.
func TestSlowTargetsAgree(t *testing.T) {
	t.Parallel()
	find := func(file, pattern string) (list []string) {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			list = append(list, strings.Fields(m[1])...)
		}
		slices.Sort(list)
		return slices.Compact(list)
	}
	want := find("Makefile", `(?m)^SLOW := (.*)$`)
	for _, target := range []string{slowtest.Crash, slowtest.Docs} {
		if !slices.Contains(want, target) {
			t.Errorf("a test names %s; the targets of make test-slow are %v", target, want)
		}
	}
	for _, got := range []struct {
		file string
		list []string
	}{
		{"CONTRIBUTING.md", find("CONTRIBUTING.md", "(?m)^\\| `([a-z-]+)` \\|")},
		{"scripts/affected.sh", append(find("scripts/affected.sh", `(?m)^call ([a-z-]+) `), "test")},
		{
			".github/workflows/slow.yml",
			append(find(".github/workflows/slow.yml", `(?m)^ +- ([a-z]+[a-z-]*)(?: PLAN_VERSIONS=\d+)?$`),
				"test-pg-all", "test"),
		},
	} {
		slices.Sort(got.list)
		if all := slices.Sorted(slices.Values(append(slices.Clone(want), "test"))); !slices.Equal(got.list, all) {
			t.Errorf("%s has the targets %v, want %v", got.file, got.list, all)
		}
	}
}
