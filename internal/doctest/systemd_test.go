package doctest_test

import (
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSystemd: the unit starts what a2ad is, and waits for its drain.
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
		if isFile && !strings.Contains(strings.Join(keys["LoadCredential"], "\n"), credential+":/etc/a2ad/"+credential) {
			t.Errorf("%s: no credential %s is loaded", name, credential)
		}
	}
	command, ok := strings.CutPrefix(strings.Join(keys["ExecStart"], ""), "/usr/local/bin/a2ad ")
	if !ok {
		t.Errorf("ExecStart is %q", keys["ExecStart"])
	}
	checkCommand(t, strings.Fields(command))
	waits := maps.Clone(env)
	waits["A2AD_DRAIN_DELAY"] = "3s" // what a2ad.env may set
	longerThanDrain(t, path, keys["TimeoutStopSec"][0]+"s", waits)
	// Agents that run commands are in the same control group.
	if keys["KillMode"][0] != "mixed" || keys["DynamicUser"][0] != "yes" {
		t.Errorf("KillMode %q, DynamicUser %q", keys["KillMode"], keys["DynamicUser"])
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

// TestEveryAlertHasASection: the runbook is complete, also for alerts that come later.
func TestEveryAlertHasASection(t *testing.T) {
	t.Parallel()
	text := readRepo(t, "docs", "operations.md")
	alerts := []string{
		"A2adDown", "A2adNotReady", "A2adQueueStuck", "A2adLeasesLost", "A2adErrors", "A2adLatency", "A2adWebhooksBehind", "A2adBreakersOpen",
		"A2adListenerLost", "A2adPoolExhausted", "A2adOldTransaction",
	}
	files, err := filepath.Glob(filepath.Join(root, "deploy", "prometheus", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		alerts = append(alerts, submatches(`(?m)^ *- alert: (\w+)`, readRepo(t, "deploy", "prometheus", filepath.Base(file)))...)
	}
	for _, name := range alerts {
		_, section, ok := strings.Cut(text, "\n### "+name+"\n")
		section, _, _ = strings.Cut(section, "\n### ")
		if !ok || !strings.Contains(section, "\nDo: ") {
			t.Errorf("docs/operations.md has no section for %s that says what to do", name)
		}
	}
}
