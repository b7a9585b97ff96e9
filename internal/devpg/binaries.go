//go:build unix

package devpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// minMajor is the oldest PostgreSQL that the schema is written for.
const minMajor = 15

// ErrNoBinaries means that FindBinaries found no PostgreSQL server. The error that wraps it says how to install one.
var ErrNoBinaries = errors.New("no PostgreSQL server binaries")

const installHint = `looked in A2AD_PG_BINDIR, on PATH and under /usr/lib/postgresql. Do one of these:
  Debian, Ubuntu:  sudo apt-get install postgresql
  Fedora, RHEL:    sudo dnf install postgresql-server
  Alpine:          sudo apk add postgresql
  Arch:            sudo pacman -S postgresql
  macOS:           brew install postgresql@17
or set A2AD_PG_BINDIR to the directory that holds initdb and postgres (15 or newer)`

// clusterDirs are the directories where distributions install several major versions side by side, outside PATH.
var clusterDirs = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/usr/libexec/postgresql*",
	"/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin",
}

// FindBinaries returns the directory that holds initdb and postgres. If dir is not empty, no other directory is
// searched. Otherwise it is the directory of the initdb on PATH, or the newest major version that a distribution
// installed. Without any it returns an error that wraps ErrNoBinaries and says how to install PostgreSQL.
func FindBinaries(dir string) (string, error) {
	if dir != "" {
		if !hasServer(dir) {
			return "", fmt.Errorf("%w in %s: it must hold initdb and postgres", ErrNoBinaries, dir)
		}
		return filepath.Abs(dir)
	}
	if dir, ok := onPath(); ok {
		return dir, nil
	}
	if dir, ok := newestMajor(clusterDirs...); ok {
		return dir, nil
	}
	return "", fmt.Errorf("%w: %s", ErrNoBinaries, installHint)
}

// onPath resolves symlinks, because initdb finds postgres and its share directory from where it really is.
func onPath() (string, bool) {
	found, err := exec.LookPath("initdb")
	if err != nil {
		return "", false
	}
	found, err = filepath.EvalSymlinks(found)
	if err != nil {
		return "", false
	}
	dir, err := filepath.Abs(filepath.Dir(found))
	return dir, err == nil && hasServer(dir)
}

var majorInPath = regexp.MustCompile(`\d+(\.\d+)?`)

// newestMajor compares versions as numbers: compared as text, 9.6 would be newer than 17.
func newestMajor(patterns ...string) (string, bool) {
	best, bestMajor := "", -1.0
	for _, pattern := range patterns {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			if !hasServer(dir) {
				continue
			}
			if m := majorOfPath(pattern, dir); m > bestMajor {
				best, bestMajor = dir, m
			}
		}
	}
	return best, best != ""
}

// majorOfPath returns the number in the part of dir that matches the star of pattern.
func majorOfPath(pattern, dir string) float64 {
	star := strings.IndexByte(pattern, '*')
	if star < 0 || star > len(dir) {
		return 0
	}
	m, err := strconv.ParseFloat(majorInPath.FindString(dir[star:]), 64)
	if err != nil {
		return 0
	}
	return m
}

func hasServer(dir string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

var versionNumber = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// majorOf runs the server, because a directory on PATH does not name its version.
func majorOf(ctx context.Context, bin string) (int, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("ask %s for its version: %w", bin, err)
	}
	match := versionNumber.FindSubmatch(out)
	if match == nil {
		return 0, fmt.Errorf("read version of %s: %q", bin, out)
	}
	return strconv.Atoi(string(match[1]))
}

// binariesFor returns binaries of the major version that made the cluster in data. Another version would refuse to
// start, and a newer one is often installed beside the old one. Without a cluster it returns the binaries that
// FindBinaries finds.
func binariesFor(ctx context.Context, binDir, data string) (string, error) {
	bin, err := FindBinaries(binDir)
	if err != nil {
		return "", err
	}
	have, err := majorOf(ctx, bin)
	if err != nil {
		return "", err
	}
	made, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		if have < minMajor {
			return "", fmt.Errorf("PostgreSQL %d in %s is too old: %d or newer is needed", have, bin, minMajor)
		}
		return bin, nil
	}
	if err != nil {
		return "", fmt.Errorf("read cluster version: %w", err)
	}
	want := strings.TrimSpace(string(made))
	if strconv.Itoa(have) == want {
		return bin, nil
	}
	if same := filepath.Join("/usr/lib/postgresql", want, "bin"); binDir == "" && hasServer(same) {
		return same, nil
	}
	return "", fmt.Errorf("the cluster in %s was made by PostgreSQL %s, but %s is PostgreSQL %d: "+
		"install %s, or name it in A2AD_PG_BINDIR, or remove the directory to start empty", data, want, bin, have, want)
}
