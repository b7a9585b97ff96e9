package a2ad_test

import (
	"os"
	"strings"
	"testing"
)

// The first example of the README is that of the examples, which are run.
func TestReadmeShowsTheExample(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```go\n")
	code, _, ok := strings.Cut(rest, "```\n")
	if !ok || !strings.Contains(string(example), "\n"+code) {
		t.Errorf("example_test.go does not have the example of the README:\n%s", code)
	}
}
