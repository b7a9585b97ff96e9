package doctest_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// newestVersion returns the newest version in the changelog.
func newestVersion() string {
	data, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return ""
	}
	m := regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$`).FindSubmatch(data)
	if m == nil {
		return ""
	}
	return string(m[1])
}

// make stamps the newest version of the changelog into the binary.
func TestVersion(t *testing.T) {
	t.Parallel()
	want := newestVersion()
	if want == "" {
		t.Fatal("CHANGELOG.md has no line like ## [0.2.0] - 2026-11-26")
	}
	cmd := exec.Command("make", "--no-print-directory", "--dry-run", "build")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !bytes.Contains(out, []byte("-X main.version="+want+" ")) {
		t.Errorf("make build does not stamp %s: %s", want, out)
	}
}

// Readers copy versions from these files, so a release changes them with the changelog.
func TestFilesNameTheNewestVersion(t *testing.T) {
	t.Parallel()
	want := newestVersion()
	for file, pattern := range map[string]string{
		"README.md":                     `(?m)^Version (\S+)\. `,
		"deploy/helm/a2ad/Chart.yaml":   `(?m)^(?:version|appVersion): (\S+)$`,
		"docs/how-to/deploy.md":         `a2ad[_:](\d+\.\d+\.\d+)`,
		"sdk/python/pyproject.toml":     `(?m)^version = "(.+)"$`,
		"sdk/typescript/package.json":   `(?m)^  "version": "(.+)"`,
		"sdk/typescript/src/version.ts": `version = "(.+)"`,
		"CHANGELOG.md":                  `(?m)^\[Unreleased\]: .*/compare/v(\S+)\.\.\.HEAD$`,
		"deploy/kubernetes/overlays/example/kustomization.yaml": `(?m)newTag: (\S+)$`,
	} {
		data, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(string(data), -1)
		if len(found) == 0 {
			t.Errorf("%s names no version: %s finds none", file, pattern)
		}
		for _, m := range found {
			if m[1] != want {
				t.Errorf("%s names version %s, the changelog %s: %s", file, m[1], want, m[0])
			}
		}
	}
}
