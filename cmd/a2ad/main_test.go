package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/term"
)

var update = flag.Bool("update", false, "write the golden files anew")

// asProgram is the variable that makes the test binary run as the program.
const asProgram = "A2AD_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(run(context.Background(), os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
	}
	_ = os.Unsetenv("COLUMNS") // kong wraps the help by it
	storetest.Main(m)
}

// invocation is one run of the program.
type invocation struct {
	env   []string
	stdin string

	code           int
	stdout, stderr string
}

func (i *invocation) run(t *testing.T, args ...string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	i.code = run(t.Context(), args, i.env, strings.NewReader(i.stdin), &stdout, &stderr)
	i.stdout, i.stderr = stdout.String(), stderr.String()
}

// screenful returns what a person sees of a run at a terminal without colors, and the exit code.
func screenful(t *testing.T, ctx context.Context, set func(*App), env []string, args ...string) string {
	t.Helper()
	var both bytes.Buffer
	app := &App{Console: term.Console{
		Stdin: strings.NewReader(""), Stdout: &both, Stderr: &both, Terminal: true,
	}, now: func() time.Time { return someTime }} // before any task is made: all ages are 0
	if set != nil {
		set(app)
	}
	code := finish(ctx, app, runCommand(ctx, app, args, config.ReadEnviron(env)))
	return fmt.Sprintf("$ a2ad %s\n%s[exit code %d]\n", strings.Join(args, " "), both.String(), code)
}

// golden compares with testdata/<name>.golden.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got); go test -update writes it anew:\n%s", path, diff)
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--help"},
		{"dev", "--help"}, {"serve", "--help"}, {"config", "--help"}, {"healthcheck", "--help"},
		{"send", "--help"},
		{"new", "--help"}, {"new", "agent", "--help"},
		{"task", "--help"},
		{"task", "ls", "--help"},
		{"task", "show", "--help"},
		{"task", "watch", "--help"},
		{"task", "cancel", "--help"},
		{"task", "retry", "--help"},
		{"task", "purge", "--help"},
		{"stats", "--help"},
		{"doctor", "--help"},
		{"actions", "--help"},
		{"completion", "--help"},
		{"schedule", "--help"},
		{"schedule", "ls", "--help"},
		{"schedule", "ticks", "--help"},
		{"schedule", "run", "--help"},
		{"schedule", "pause", "--help"},
		{"schedule", "resume", "--help"},
		{"push", "--help"},
		{"push", "ls", "--help"},
		{"push", "attempts", "--help"},
		{"push", "destinations", "--help"},
		{"push", "replay", "--help"},
		{"push", "enable", "--help"},
		{"keys", "--help"},
		{"keys", "rewrap", "--help"},
		{"apikey", "--help"},
		{"apikey", "create", "--help"},
		{"apikey", "ls", "--help"},
		{"apikey", "revoke", "--help"},
		{"session", "--help"},
		{"session", "ls", "--help"},
		{"session", "revoke", "--help"},
		{"task", "assign", "--help"},
		{"migrate", "--help"},
		{"migrate", "up", "--help"},
		{"migrate", "down", "--help"},
		{"migrate", "status", "--help"},
		{"agent", "--help"}, {"agent", "check", "--help"}, {"agent", "schema", "--help"}, {"version", "--help"},
	} {
		name := "help" + strings.Join(append([]string{""}, args[:len(args)-1]...), "-")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var i invocation
			i.run(t, args...)
			if i.code != exitOK || i.stderr != "" {
				t.Errorf("exit code %d, stderr %q", i.code, i.stderr)
			}
			golden(t, name, i.stdout)
			for line := range strings.Lines(i.stdout) {
				if n := len([]rune(strings.TrimRight(line, "\n"))); n > 81 {
					t.Errorf("%d columns: %s", n, line)
				}
			}
			other := invocation{}
			if other.run(t, append([]string{"help"}, args[:len(args)-1]...)...); other.stdout != i.stdout {
				t.Errorf("a2ad help %s shows something else", strings.Join(args[:len(args)-1], " "))
			}
		})
	}
}

// TestUsage checks that a wrong command line gets its reason on stderr, and exit code 2.
func TestUsage(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	for _, args := range [][]string{
		{"frobnicate"},
		{"task", "frobnicate"},
		{"task", "--frobnicate"},
		{"serve", "--frobnicate"},
		{"serve", "extra"},
		{"task", "show"},
		{"task", "ls", "--state", "lost"},
		{"task", "ls", "--limit", "0"},
		{"task", "ls", "--since", "soon"},
		{"task", "ls", "--watch", "--every", "1ms"},
		{"push", "ls", "--limit", "0"},
		{"actions", "--limit", "-1"},
		{"task", "purge"},
		{"task", "purge", "x", "--tenant", "t"},
		{"task", "purge", "--tenant", "t"},
		{"task", "purge", "x"},
		{"task", "retry"},
		{"task", "assign", "x"},
		{"session", "revoke"},
		{"session", "revoke", "x", "--owner", "o"},
		{"completion", "tcsh"},
		{"apikey", "create"},
		{"apikey", "create", "--tenant", "t", "--owner", "o", "--scopes", "all"},
		{"migrate", "down"},
		{"send"},
		{"send", "x", "--resume", "t"},
		{"send", "x", "--agent", "a/b"},
		{"send", "x", "--last-event-id", "1-a"},
		{"send", "--data", "{"}, {"version", "-o", "yaml"},
	} {
		var i invocation
		i.run(t, args...)
		if i.code != exitUsage || i.stdout != "" {
			t.Errorf("%v: exit code %d, stdout %q", args, i.code, i.stdout)
		}
		fmt.Fprintf(&out, "$ a2ad %s\n%s", strings.Join(args, " "), i.stderr)
	}
	golden(t, "usage", out.String())
}

// TestNoCommand checks that the program shows the help and fails, because a script that forgets the command is wrong.
func TestNoCommand(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"task"}} {
		var i, help invocation
		i.run(t, args...)
		help.run(t, append(args, "--help")...)
		if i.code != exitUsage || i.stdout != "" || i.stderr != help.stdout {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q", args, i.code, i.stdout, i.stderr)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	var i invocation
	i.run(t, "version")
	if !regexp.MustCompile(`^a2ad \S+( \(\S+\))? go1\.\S+ \w+/\w+\n$`).MatchString(i.stdout) || i.code != exitOK {
		t.Errorf("%q, exit code %d", i.stdout, i.code)
	}
	line := i.stdout
	if i.run(t, "--version"); i.code != exitOK || i.stdout != line {
		t.Errorf("--version: exit code %d, %q, want %q", i.code, i.stdout, line)
	}
	i.run(t, "version", "-o", "json")
	form := regexp.MustCompile(
		`^\{"version":"[^"]+",("commit":"[^"]+",)?"go":"go1\.[^"]+","os":"\w+","arch":"\w+"\}\n$`)
	if !form.MatchString(i.stdout) {
		t.Errorf("%q", i.stdout)
	}
}

// TestEveryCommandRuns finds commands whose Run kong could not call.
func TestEveryCommandRuns(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "words.yaml")
	if err := os.WriteFile(file, []byte("name: words\ndescription: d\nexecutor: {echo: {}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"A2AD_DATABASE_URL=postgres://127.0.0.1:1/x", "A2AD_AGENTS=" + file, "A2AD_LISTEN=127.0.0.1:0",
		"A2AD_ADMIN_LISTEN=off", "A2AD_DATA_DIR=" + t.TempDir()}
	for _, args := range [][]string{
		{"serve"},
		{"dev"},
		{"task", "ls"},
		{"task", "show", "x"},
		{"task", "watch", "x"},
		{"task", "cancel", "x"},
		{"task", "retry", "x"},
		{"task", "purge", "--yes", "x"},
		{"stats"},
		{"actions"},
		{"schedule", "ls"},
		{"schedule", "ticks", "a/n"},
		{"schedule", "run", "a/n"},
		{"schedule", "pause", "a/n"},
		{"schedule", "resume", "a/n"},
		{"push", "ls"},
		{"push", "attempts", "x"},
		{"push", "replay", "x"},
		{"push", "enable", "--tenant", "t", "x"},
		{"apikey", "create", "--tenant", "t", "--owner", "o"},
		{"apikey", "ls"},
		{"apikey", "revoke", "x"},
		{"session", "ls"},
		{"session", "revoke", "x"},
		{"task", "assign", "x", "Carl"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // before they start, so that no command does its work
		var stdout, stderr bytes.Buffer
		if code := run(ctx, args, env, strings.NewReader(""), &stdout, &stderr); code != exitInterrupted {
			t.Errorf("%v: %s", args, stderr.String())
		}
	}
}

// TestInterrupted checks that a command that waits for a database or a server ends on Ctrl-C, with exit code 130.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	addr := silent.Addr().String()
	for _, args := range [][]string{
		{"task", "ls"},
		{"task", "watch", taskID},
		{"task", "cancel", taskID, oldTask},
		{"task", "purge", "--yes", taskID, oldTask},
		{"stats"},
		{"actions"},
		{"doctor", "--offline"},
		{"migrate", "status"}, {"migrate", "up"}, {"apikey", "ls"}, {"push", "replay", pushID}, {"healthcheck"},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			conn, err := silent.Accept()
			interrupt()
			<-ended
			if err != nil {
				t.Error(err)
				return
			}
			conn.Close()
		})
		var out bytes.Buffer
		env := []string{"A2AD_DATABASE_URL=postgres://x@" + addr + "/x?sslmode=disable", "A2AD_ADMIN_LISTEN=" + addr}
		if code := run(ctx, args, env, strings.NewReader(""), &out, &out); code != exitInterrupted ||
			strings.Count(out.String(), "\n") > 1 {
			t.Errorf("a2ad %v: exit code %d, %s", args, code, &out)
		}
		close(ended)
		wg.Wait()
	}
}

// TestErrorsDoNotControlTheTerminal checks that control characters in an error are not printed. An error may quote a
// server.
func TestErrorsDoNotControlTheTerminal(t *testing.T) {
	t.Parallel()
	var notes bytes.Buffer
	finish(t.Context(), &App{Console: term.Console{Stderr: &notes}},
		&exitError{exitFailure, errorOf("no\x1b[2J\u009b")})
	if got := notes.String(); got != "a2ad: no\ufffd[2J\ufffd\n" {
		t.Errorf("%q", got)
	}
}

type errorOf string

func (e errorOf) Error() string { return string(e) }
