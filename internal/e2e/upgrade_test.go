package e2e_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// A database is migrated while replicas of the previous version use it. Replicas of this version join, and the old
// ones stop. Nothing acknowledged is lost, and clients see nothing that the invariants forbid.
func TestUpgradeUnderLoad(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("builds and runs two versions: without the race detector")
	}
	old := versionBefore(t)
	db := storetest.NewEmpty(t)
	migrate(t, old, db.URL)
	c := clusterOn(t, db)
	before := one[int64](c, `SELECT max(version_id) FROM public.a2a_goose_version WHERE is_applied`)
	if before >= operate.SchemaVersion() {
		t.Fatalf("the version before has schema %d, and this one %d", before, operate.SchemaVersion())
	}
	keys := seal.Generate("k1")
	sink := newHookSink(t, func(n int, _ *http.Request) bool { return n%4 == 0 })
	hook := func(r *replica) {
		for i := range 4 {
			c.sendHooked(r, fmt.Sprintf(`{"url":"%s/%d","token":"tok"}`, sink.URL, i),
				`{"op":"chunk","id":"a","n":4,"every_ms":50}`)
		}
	}
	olds := []*replica{c.startBinary(old, "old-1", hooking(keys)...), c.startBinary(old, "old-2", hooking(keys)...)}
	set := &replicas{list: append([]*replica(nil), olds...)}
	l := c.startLoadOn(8, set)
	l.progress(40)
	hook(olds[0])
	const chunks = `{"op":"chunk","id":"a","n":100,"every_ms":100}` // long enough for the migration and the new version
	long := submit(t, c.client(olds[0], "script"), play(chunks))
	c.runner(long)

	binary, err := build()
	if err != nil {
		t.Fatalf("build a2ad: %v", err)
	}
	migrate(t, binary, db.URL)
	l.progress(40)
	for _, r := range olds {
		if !r.running() {
			t.Fatalf("%s did not survive the migration", r.name)
		}
	}
	hook(olds[1])

	news := []*replica{c.startBinary(binary, "new-1", hooking(keys)...),
		c.startBinary(binary, "new-2", hooking(keys)...)}
	set.add(news...)
	l.progress(60)
	hook(news[0])
	for _, name := range []string{"old", "new"} {
		if one[int](c,
			`SELECT count(*) FROM audit.attempt a WHERE a.worker LIKE $1 AND a.claimed_at > (SELECT max(tstamp)
				FROM public.a2a_goose_version)`, name+"-%") == 0 {
			t.Errorf("no replica of the %s version has worked on the new schema", name)
		}
	}
	// The new version reads what the old one writes, and vice versa.
	for i, r := range append(append([]*replica(nil), olds...), news...) {
		task := submit(t, c.client(r, "script"), play(`{"op":"chunk","id":"a","n":2}`))
		c.awaitState(task, "COMPLETED")
		c.checkScript(append(append([]*replica(nil), news...), olds...)[i], "script", task, 3,
			`[{"op":"chunk","id":"a","n":2}]`)
	}

	set.replace(0, news[0])
	set.replace(1, news[1])
	l.progress(20)
	for _, r := range olds { // hands over what is still running there
		r.stop()
	}
	l.progress(40)
	l.finish()
	c.awaitState(long, "COMPLETED")
	c.checkScript(news[1], "script", long, 5, "["+chunks+"]")
	c.awaitDelivered()
	sink.judge()
}

func migrate(t *testing.T, binary, url string) {
	t.Helper()
	cmd := exec.Command(binary, "migrate", "up")
	cmd.Env = []string{"A2AD_DATABASE_URL=" + url, "HOME=" + os.Getenv("HOME")}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s migrate up: %v\n%s", binary, err, out)
	}
}

// versionBefore builds the version before the newest migration: the state of the main line when the migration was
// merged. It builds from an archive of the commit, so that a killed test leaves no worktree in the repository.
func versionBefore(t *testing.T) (binary string) {
	t.Helper()
	files, err := filepath.Glob("../../migrations/0*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no migrations: %v", err)
	}
	newest := filepath.Base(files[len(files)-1])
	if shallow, err := git("rev-parse", "--is-shallow-repository"); err != nil ||
		strings.TrimSpace(string(shallow)) != "false" {
		t.Skipf("NOT TESTED: THE UPGRADE FROM THE VERSION BEFORE %s. It is built from the history of the "+
			"repository, which is not here (shallow: %q, %v): git fetch --unshallow gets it",
			newest, bytes.TrimSpace(shallow), err)
	}
	commit, err := commitBefore(files)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the version before %s is %s", newest, commit)
	archive, err := git("archive", "--format=tar", commit)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := unpack(dir, archive); err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(dir, "a2ad-before")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "./cmd/a2ad")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", commit, err, out)
	}
	return binary
}

// commitBefore returns the newest commit of the main line that lacks the newest migration and from which the others
// follow in the order of their numbers. A later migration may have been merged first.
func commitBefore(files []string) (string, error) {
	commit := "HEAD" // where the newest one is not committed yet
	for i := len(files) - 1; i >= 0; i-- {
		added, err := git("log", "-1", "--first-parent", "-m", "--diff-filter=A", "--format=%H", commit, "--",
			"migrations/"+filepath.Base(files[i]))
		if err != nil {
			return "", err
		}
		if hash := strings.TrimSpace(string(added)); hash != "" {
			commit = hash + "^"
		}
		there, err := git("ls-tree", "--name-only", commit, "migrations/")
		if err != nil {
			return "", err
		}
		inOrder := true
		for k, file := range files[:i] {
			has := strings.Contains(string(there), filepath.Base(file))
			inOrder = inOrder && (has || !containsAny(string(there), files[k:i]))
		}
		if inOrder {
			return commit, nil
		}
	}
	return "", errors.New("no commit has the first migrations and lacks the last")
}

func containsAny(list string, files []string) bool {
	return slices.ContainsFunc(files, func(f string) bool { return strings.Contains(list, filepath.Base(f)) })
}

// git runs in the root of the repository, whoever owns the files.
func git(args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "safe.directory=*", "-C", "../.."}, args...)...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("git %s: %w: %s", args[0], err, exit.Stderr)
	}
	return out, err
}

func unpack(dir string, archive []byte) error {
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, 0o755)
		case tar.TypeReg:
			var body []byte
			if body, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, body, 0o644)
			}
		}
		if err != nil {
			return err
		}
	}
}
