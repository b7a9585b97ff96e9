package a2ad_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// The Go code of the README is in the examples, which are compiled and run.
func TestReadmeShowsTheExamples(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := goBlock.FindAllSubmatch(readme, -1)
	if len(blocks) != 3 {
		t.Errorf("the README has %d blocks of Go, want 3", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(string(examples), "\n"+string(b[1])) {
			t.Errorf("example_test.go does not have this code of the README:\n%s", b[1])
		}
	}
}
