package dockertest_test

import (
	"debug/elf"
	"encoding/json"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// A release builds its image for two architectures on one machine. This builds the image for the one that the machine
// does not have, so a build that runs a program of that architecture fails.
func TestImageForTheOtherArchitecture(t *testing.T) {
	arch, machine := "arm64", elf.EM_AARCH64
	if runtime.GOARCH == "arm64" {
		arch, machine = "amd64", elf.EM_X86_64
	}
	s := &stack{t: t}
	s.run("docker", "build", "--quiet", "--platform", "linux/"+arch, "--build-arg", "VERSION=1.2.3",
		"--build-arg", "COMMIT=0123456789ab", "--tag", "a2ad:other", ".")
	var images []struct {
		Os, Architecture string
		Size             int64
		Config           struct {
			User            string
			Entrypoint, Cmd []string
			Labels          map[string]string
		}
	}
	if err := json.Unmarshal([]byte(s.run("docker", "image", "inspect", "a2ad:other")), &images); err != nil {
		t.Fatal(err)
	}
	got := images[0]
	if got.Os != "linux" || got.Architecture != arch {
		t.Errorf("the image is for %s/%s, want linux/%s", got.Os, got.Architecture, arch)
	}
	if got.Config.User != "65532:65532" || !slices.Equal(got.Config.Entrypoint, []string{"/a2ad"}) ||
		!slices.Equal(got.Config.Cmd, []string{"serve"}) {
		t.Errorf("the image runs %q %q as %q", got.Config.Entrypoint, got.Config.Cmd, got.Config.User)
	}
	for label, want := range map[string]string{"version": "1.2.3", "revision": "0123456789ab", "title": "a2ad",
		"licenses": "Apache-2.0", "source": "https://github.com/a2ad/a2ad"} {
		if found := got.Config.Labels["org.opencontainers.image."+label]; found != want {
			t.Errorf("the label %s is %q, want %q", label, found, want)
		}
	}
	if limit := int64(60 << 20); got.Size == 0 || got.Size > limit {
		t.Errorf("the image has %d bytes, want at most %d", got.Size, limit)
	}

	id := strings.TrimSpace(s.run("docker", "create", "--platform", "linux/"+arch, "a2ad:other"))
	defer s.run("docker", "rm", id)
	path := filepath.Join(t.TempDir(), "a2ad")
	s.run("docker", "cp", id+":/a2ad", path)
	binary, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	if binary.Machine != machine {
		t.Errorf("the binary is for %v, want %v", binary.Machine, machine)
	}
	if libraries, err := binary.ImportedLibraries(); err != nil || len(libraries) != 0 {
		t.Errorf("the binary needs %q of an image that has nothing: %v", libraries, err)
	}
}
