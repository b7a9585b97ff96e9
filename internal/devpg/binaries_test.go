//go:build unix

package devpg

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestClusterOfAnotherMajorIsRefusedWithAdvice(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := binariesFor(testContext(t), "", data)
	if err == nil || !strings.Contains(err.Error(), "was made by PostgreSQL 9") {
		t.Errorf("binariesFor = %v, want an error that names both versions", err)
	}
}

func TestNewestMajorIsTheLargestNumber(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, major := range []string{"9.6", "17", "18-broken"} {
		bin := filepath.Join(root, "postgresql", major, "bin")
		if err := os.MkdirAll(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"initdb", "postgres"} {
			if major == "18-broken" && name == "postgres" {
				continue // client tools without a server do not count
			}
			if err := os.WriteFile(filepath.Join(bin, name), nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, ok := newestMajor(filepath.Join(root, "none-*"), filepath.Join(root, "postgresql", "*", "bin"))
	if want := filepath.Join(root, "postgresql", "17", "bin"); !ok || got != want {
		t.Errorf("newestMajor = %q, %v, want %q", got, ok, want)
	}
}

func TestFindBinariesNamesTheDirectoryItWasGiven(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := FindBinaries(dir); !errors.Is(err, ErrNoBinaries) || !strings.Contains(err.Error(), dir) {
		t.Errorf("FindBinaries = %v, want an ErrNoBinaries that names %s", err, dir)
	}
}

func TestFindBinariesSaysHowToInstall(t *testing.T) {
	saved := clusterDirs
	clusterDirs = nil
	t.Cleanup(func() { clusterDirs = saved })
	t.Setenv("PATH", t.TempDir())
	_, err := FindBinaries("")
	if !errors.Is(err, ErrNoBinaries) || !strings.Contains(err.Error(), "apt-get install postgresql") {
		t.Errorf("FindBinaries = %v, want ErrNoBinaries with instructions", err)
	}
}
