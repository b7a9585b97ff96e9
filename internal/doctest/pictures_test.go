package doctest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxPicture is how large a picture of the documents may be, in bytes: readers load all pictures of a page.
const maxPicture = 150_000

var (
	picture    = regexp.MustCompile(`!\[([^\]]*)\]\(([^)\s]+)\)`)
	htmlSource = regexp.MustCompile(`(?:src|srcset)="([^"]+)"`)
)

func TestPicturesExistAndAreSmall(t *testing.T) {
	t.Parallel()
	found := 0
	for _, file := range documents(t) {
		data, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, m := range picture.FindAllStringSubmatch(string(data), -1) {
			if paths = append(paths, m[2]); strings.TrimSpace(m[1]) == "" {
				t.Errorf("%s: the picture %s has no text for people who do not see it", file, m[2])
			}
		}
		for _, m := range htmlSource.FindAllStringSubmatch(string(data), -1) {
			paths = append(paths, m[1])
		}
		for _, path := range paths {
			if strings.Contains(path, "://") || !strings.HasSuffix(path, ".png") {
				continue
			}
			found++
			info, err := os.Stat(filepath.Join(root, filepath.Dir(file), path))
			if err != nil {
				t.Errorf("%s: %v (make docs-images makes the pictures of the console)", file, err)
			} else if info.Size() > maxPicture {
				t.Errorf("%s: %s has %d bytes, want at most %d", file, path, info.Size(), maxPicture)
			}
		}
	}
	if found < 4 {
		t.Errorf("the documents have %d pictures, want those of the console", found)
	}
}
