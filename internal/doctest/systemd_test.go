package doctest_test

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/store/storetest"
)

// The unit starts a complete a2ad, and its stop waits for the drain.
func TestSystemd(t *testing.T) {
	t.Parallel()
	path := filepath.Join("deploy", "systemd", "a2ad.service")
	env, keys := map[string]string{}, map[string][]string{}
	for line := range strings.Lines(readRepo(t, path)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || strings.HasPrefix(key, "#") {
			continue
		}
		keys[key] = append(keys[key], value)
		if key == "Environment" {
			name, text, _ := strings.Cut(value, "=")
			env[name] = text
		}
	}
	checkSettings(t, path, env, true)
	for name, value := range env {
		credential, isFile := strings.CutPrefix(value, "%d/")
		if strings.HasSuffix(name, "_FILE") != isFile {
			t.Errorf("%s is %s", name, value)
		}
		if isFile && !strings.Contains(strings.Join(keys["LoadCredential"], "\n"),
			credential+":/etc/a2ad/"+credential) {
			t.Errorf("%s: no credential %s is loaded", name, credential)
		}
		// A package installs the unit before there is a configuration.
		if isFile && !slices.Contains(keys["AssertPathExists"], "/etc/a2ad/"+credential) {
			t.Errorf("the unit starts without /etc/a2ad/%s", credential)
		}
	}
	command, ok := strings.CutPrefix(strings.Join(keys["ExecStart"], ""), "/usr/local/bin/a2ad ")
	if !ok {
		t.Errorf("ExecStart is %q", keys["ExecStart"])
	}
	checkCommand(t, strings.Fields(command))
	waits := maps.Clone(env)
	waits["A2AD_DRAIN_DELAY"] = "3s" // a2ad.env may set it
	longerThanDrain(t, path, keys["TimeoutStopSec"][0]+"s", waits)
	// Agents that run commands are in the same control group.
	if keys["KillMode"][0] != "mixed" || keys["DynamicUser"][0] != "yes" {
		t.Errorf("KillMode %q, DynamicUser %q", keys["KillMode"], keys["DynamicUser"])
	}
	// Repeated starts without a database must not make systemd give up; exit code 2 must.
	if !slices.Equal(keys["StartLimitIntervalSec"], []string{"0"}) ||
		!slices.Equal(keys["Restart"], []string{"always"}) ||
		!slices.Equal(keys["RestartPreventExitStatus"], []string{"2"}) {
		t.Errorf("StartLimitIntervalSec %q, Restart %q, RestartPreventExitStatus %q", keys["StartLimitIntervalSec"],
			keys["Restart"], keys["RestartPreventExitStatus"])
	}
	if program, err := exec.LookPath("systemd-analyze"); err == nil {
		out, err := exec.Command(program, "verify", "--man=no", filepath.Join(root, path)).CombinedOutput()
		// The binary is not installed where the tests run.
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "a2ad.service") && !strings.Contains(line, "is not executable") {
				t.Errorf("systemd says: %s(%v)", line, err)
			}
		}
	}
}

// A reader who pastes the sections on logins and on systemd, with passwords instead of "…", gets a server that
// answers. Later sections, for its operator and for an upgrade, work on it. The machine is a directory, and the test
// plays systemd: it runs the unit's command with its environment, as an unprivileged user.
func TestSystemdStepByStep(t *testing.T) {
	t.Parallel()
	var commands []string
	logins := ""
	pages := slices.Concat(blocks(t, "docs/how-to/deploy.md"), blocks(t, "docs/how-to/monitor.md"),
		blocks(t, "docs/how-to/upgrade.md"))
	for _, b := range pages {
		switch {
		case !strings.HasSuffix(b.arg, t.Name()):
		case b.sql() != "":
			logins += b.sql()
		default:
			commands = append(commands, b.text)
		}
	}
	before, ok := strings.CutSuffix(strings.Join(commands[:1], ""), "systemctl enable --now a2ad\n")
	if len(commands) != 4 || logins == "" || !ok {
		t.Fatalf("the document has %d blocks, which end with %q", len(commands), commands)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	host, port, _ := strings.Cut(freePort(t), ":")
	srv := storetest.NewServer(t, map[string]string{"listen_addresses": host, "port": port})
	for statement := range strings.SplitSeq(logins, ";") {
		if err := scan(ctx, srv.URL("postgres"), nil, statement); err != nil {
			t.Fatal(err)
		}
	}

	var sees bool
	if err := scan(ctx, srv.URL("postgres"), &sees,
		"SELECT pg_has_role('a2ad_server', 'pg_read_all_stats', 'USAGE')"); err != nil || !sees {
		t.Errorf("the server's login does not see old transactions of other users: %v", err)
	}
	machine, err := os.MkdirTemp("", "a2ad-machine-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(machine) }) // in the temporary directory: leftovers do no harm
	clone := filepath.Join(machine, "clone")
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.Chmod(machine, 0o755), os.MkdirAll(filepath.Join(machine, "usr", "local", "bin"), 0o755),
		os.MkdirAll(filepath.Join(machine, "etc", "systemd", "system"), 0o755),
		os.MkdirAll(filepath.Join(clone, "bin"), 0o755), os.Symlink(binary, filepath.Join(clone, "bin", "a2ad")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"deploy", "examples"} {
		from, err := filepath.Abs(filepath.Join(root, dir))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(from, filepath.Join(clone, dir)); err != nil {
			t.Fatal(err)
		}
	}
	here := strings.NewReplacer("/usr/local/bin/", machine+"/usr/local/bin/", "/etc/", machine+"/etc/", ":…@db:5432/",
		":secret@"+host+":"+port+"/")
	api, admin := freePort(t), freePort(t)
	paste := func(text string, env ...string) string {
		t.Helper()
		cmd := exec.CommandContext(ctx, "sh", "-euc", "umask 022\n"+here.Replace(text))
		cmd.Dir = clone
		cmd.Env = append([]string{"PATH=" + machine + "/usr/local/bin:" + os.Getenv("PATH"), "A2AD_URL=http://" + api,
			"A2AD_ADMIN_LISTEN=" + admin}, env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", text, err, out)
		}
		return string(out)
	}
	paste(before)
	startUnit(t, machine, "A2AD_LISTEN="+api, "A2AD_ADMIN_LISTEN="+admin)
	awaitAnswer(t, "http://"+admin+"/readyz")
	check, ask, found := strings.Cut(commands[1], "A2AD_API_KEY=… ")
	if !found {
		t.Fatalf("the document has %q", commands[1])
	}
	out := paste(check)
	key := submatches(`(?m)^key\s+(\S+)$`, out)
	if !strings.HasPrefix(out, "ready\n") || len(key) != 1 {
		t.Fatalf("%s", out)
	}
	if out := paste(ask, "A2AD_API_KEY="+key[0]); !strings.Contains(out, "hello\n") {
		t.Errorf("the agent answers %s", out)
	}

	settings, upgrade := commands[2], commands[3]
	if err := os.WriteFile(filepath.Join(machine, "etc", "a2ad", "a2ad.env"),
		[]byte("A2AD_LISTEN="+api+"\nA2AD_ADMIN_LISTEN="+admin+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	elsewhere := []string{"A2AD_ADMIN_LISTEN=127.0.0.1:1", "A2AD_URL=http://127.0.0.1:1", "A2AD_API_KEY=" + key[0]}
	if out := paste(settings+ask, elsewhere...); !strings.Contains(out, "hello\n") {
		t.Errorf("with the settings of the service the agent answers %s", out)
	}
	if out := paste(settings+"a2ad doctor", elsewhere...); !strings.Contains(out, "\n0 faults, 0 warnings\n") ||
		strings.Contains(out, "cannot be seen") {
		t.Errorf("the doctor has not what the service has: %s", out)
	}
	if err := os.WriteFile(filepath.Join(machine, "usr", "local", "bin", "systemctl"),
		[]byte("#!/bin/sh\necho \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out := paste(settings + upgrade); !strings.HasSuffix(out, "restart a2ad\nready\n") {
		t.Errorf("after the upgrade: %s", out)
	}
	if out := paste("a2ad.before version"); !strings.HasPrefix(out, "a2ad ") {
		t.Errorf("the previous version answers %s", out)
	}
}

// startUnit runs the installed unit as systemd would, with additional settings that override its own.
func startUnit(t *testing.T, machine string, settings ...string) {
	t.Helper()
	unit, err := os.ReadFile(filepath.Join(machine, "etc", "systemd", "system", "a2ad.service"))
	if err != nil {
		t.Fatal(err)
	}
	credentials := filepath.Join(machine, "credentials")
	if err := os.Mkdir(credentials, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, pair := range submatches(`(?m)^LoadCredential=(.*)$`, string(unit)) {
		name, path, _ := strings.Cut(pair, ":")
		info, err := os.Stat(filepath.Join(machine, path))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%s: %v, %v", path, info, err)
		}
		text, err := os.ReadFile(filepath.Join(machine, path))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(credentials, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(filepath.Join(machine, "usr", "local", "bin", "a2ad"), "serve")
	for _, pair := range submatches(`(?m)^Environment=(.*)$`, string(unit)) {
		cmd.Env = append(cmd.Env, strings.NewReplacer("%d", credentials, "/etc/", machine+"/etc/").Replace(pair))
	}
	cmd.Env = append(cmd.Env, settings...)
	cmd.Dir = "/"
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("the service: %v\n%s", err, log.String())
		}
	})
}

// awaitAnswer returns when a URL answers with 200.
func awaitAnswer(t *testing.T, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s does not answer: %v", url, err)
		}
	}
}
