package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// key32 is 32 bytes in base64.
const key32 = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// TestSettingDefaults checks the published defaults.
func TestSettingDefaults(t *testing.T) {
	t.Parallel()
	var i invocation
	i.env = []string{"A2AD_DATABASE_URL=postgres://a2ad@localhost/a2ad", "A2AD_AGENTS=/etc/a2ad/agents"}
	for _, tc := range []struct {
		name string
		args []string
	}{
		{"config", []string{"config"}},
		{"config-verbose", []string{"config", "-v"}},
		{"config-dev", []string{"config", "--dev"}},
		{"config-json", []string{"config", "-o", "json"}},
	} {
		i.run(t, tc.args...)
		if i.code != exitOK || i.stderr != "" {
			t.Errorf("%v: exit code %d, %s", tc.args, i.code, i.stderr)
		}
		golden(t, tc.name, i.stdout)
	}
	for line := range strings.Lines(i.stdout) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not one JSON object per line: %s", line)
		}
	}
}

// TestAllFaultsAtOnce checks that every fault is reported, with the setting, the value and what to do.
func TestAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	show := func(env []string, args ...string) {
		i := invocation{env: env}
		i.run(t, args...)
		if i.code != exitUsage || i.stdout != "" && args[0] != "config" {
			t.Errorf("%v: exit code %d, stdout %q", args, i.code, i.stdout)
		}
		fmt.Fprintf(&out, "$ %s a2ad %s\n%s\n", strings.Join(env, " "), strings.Join(args, " "), i.stderr)
	}
	show(nil, "serve")
	show(nil, "config")
	show([]string{"A2AD_DATABASE_URL=mysql://u:hunter2@h/d", "A2AD_AGENTS=a", "A2AD_KEYS=hunter2",
		"A2AD_PUSH_SIGNING_SECRETS=hunter2", "A2AD_LEASE_TTL=30", "A2AD_LESE_TTL=30s", "A2AD_WORKERS=many"},
		"serve", "--listen=8080", "--max-attempts=0", "--public-url=ftp://x", "--sse-ping=0")
	show([]string{"A2AD_DATABASE_URL=postgres://h/d", "A2AD_AGENTS=a", "A2AD_AUTH=none", "A2AD_LISTEN=0.0.0.0:8080",
		"A2AD_ADMIN_LISTEN=0.0.0.0:8080", "A2AD_GRPC_LISTEN=:50051",
		"A2AD_RETRY_BACKOFF_BASE=10m", "A2AD_REPLICA=a b"}, "serve")
	show([]string{"A2AD_DATABASE_URL=postgres://h/d", "A2AD_AGENTS=a", "A2AD_OIDC_ISSUER=http://login.example.org",
		"A2AD_OIDC_AUDIENCE=a", "A2AD_OIDC_SCOPES=tasks:read,all", "A2AD_OIDC_OWNER_CLAIM=sub,,x"}, "serve")
	show([]string{"A2AD_DATABASE_URL=postgres://h/d", "A2AD_AGENTS=a", "A2AD_OIDC_ISSUER=https://login.example.org/"},
		"serve")
	show([]string{"A2AD_DATABASE_URL=postgres://h/d", "A2AD_AGENTS=a",
		"A2AD_OIDC_JWKS_URL=https://login.example.org/keys"}, "serve")
	show([]string{"A2AD_DATABASE_URL=postgres://h/d", "A2AD_AGENTS=a", "A2AD_TLS_CERT=cert.pem"}, "serve")
	show([]string{"A2AD_DATABASE_URL=postgres://h/d", "A2AD_AGENTS=a", "A2AD_TLS_CLIENT_CA=ca.pem"}, "serve")
	show([]string{"A2AD_DATABASE_URL=postgres://h/d", "A2AD_AGENTS=testdata/faulty", "A2AD_LEASE_TTL=30"}, "serve")
	show([]string{"A2AD_DEFAULT_AGENT=nobody", "A2AD_LEASE_TTL=30"}, "dev")
	show([]string{"A2AD_DATABASE_URL=postgres://h/d", "A2AD_AGENTS=a", "A2AD_TLS_KEY=key.pem",
		"A2AD_MTLS_PROXIES=10.0.0.0/8,0.0.0.0/0"}, "serve")
	show(nil, "dev", "--listen=:8080")
	show(nil, "dev", "--grpc-listen=127.0.0.1:9090")
	show([]string{"A2AD_DATABASE_URL=postgres://h/d", "A2AD_DATABASE_URL_FILE=/run/secrets/db",
		"A2AD_KEYS_FILE=testdata/none"}, "dev")
	show([]string{"A2AD_DATABASE_URL=localhost"}, "task", "ls")
	show([]string{"A2AD_URL=localhost:8080"}, "send", "x")
	golden(t, "faults", out.String())
	if strings.Contains(strings.ReplaceAll(out.String(), "=hunter2", ""), "hunter2\n") ||
		regexp.MustCompile(`(?m)^ .*hunter2`).MatchString(out.String()) {
		t.Error("a fault shows a secret")
	}
}

func TestAuthNoneNeedsLoopback(t *testing.T) {
	t.Parallel()
	for listen, ok := range map[string]bool{
		"127.0.0.1:8080": true, "127.1.2.3:8080": true, "[::1]:8080": true, "localhost:8080": true,
		"[::ffff:127.0.0.1]:80": true,

		":8080": false, "0.0.0.0:8080": false, "[::]:8080": false, "192.168.0.1:80": false, "example.org:80": false,
	} {
		i := invocation{env: []string{"A2AD_DATABASE_URL=postgres://h/d", "A2AD_AGENTS=a", "A2AD_AUTH=none",
			"A2AD_LISTEN=" + listen}}
		if i.run(t, "config"); (i.code == exitOK) != ok {
			t.Errorf("%s: exit code %d, %s", listen, i.code, i.stderr)
		}
		i.env = append(i.env, "A2AD_AUTH=required")
		if i.run(t, "config"); i.code != exitOK {
			t.Errorf("%s with auth: %s", listen, i.stderr)
		}
	}
}

func TestUnknownSettingIsAWarning(t *testing.T) {
	t.Parallel()
	i := invocation{env: []string{"A2AD_PUSH_RETRIES=1", "A2AD_ZZZ=1", "A2AD_TEST_DATABASE_URL=x", "A2AD_KEYS_FILE=",
		"OTHER=1"}}
	i.run(t, "version")
	want := "a2ad: warning: unknown setting A2AD_PUSH_RETRIES is ignored, did you mean A2AD_PUSH_RETRY?\n" +
		"a2ad: warning: unknown setting A2AD_ZZZ is ignored\n"
	if diff := cmp.Diff(want, i.stderr); diff != "" || i.code != exitOK {
		t.Errorf("exit code %d, stderr (-want +got):\n%s", i.code, diff)
	}
}

func TestUnknownSettingIsAFaultWithStrict(t *testing.T) {
	t.Parallel()
	env := []string{"A2AD_WORKES=1", "A2AD_ZZZ=1", "A2AD_LEASE_TTL=3", "A2AD_VERSION=1", "A2AD_PORT_8080_TCP=x",
		"A2AD_SERVICE_HOST=10.0.0.1"}
	want := "a2ad: the configuration has 3 faults\n" +
		"  A2AD_LEASE_TTL=\"3\": not a duration: write a number and a unit, for example 500ms, 30s, 5m or 12h\n" +
		"  A2AD_WORKES: unknown setting, did you mean A2AD_WORKERS?\n  A2AD_ZZZ: unknown setting\n"
	for _, args := range [][]string{{"dev", "--strict"}, {"config", "--dev", "--strict"}} {
		i := invocation{env: env}
		i.run(t, args...)
		if !strings.HasPrefix(i.stderr, want) || i.code != exitUsage {
			t.Errorf("%v: exit code %d, %s", args, i.code, i.stderr)
		}
	}
	i := invocation{env: append(env, "A2AD_STRICT=on")}
	if i.run(t, "dev"); !strings.HasPrefix(i.stderr, want) || i.code != exitUsage {
		t.Errorf("A2AD_STRICT: exit code %d, %s", i.code, i.stderr)
	}
}

// TestOtherCommandsIgnoreServerFaults checks that a typo in a server's setting does not stop the client commands.
func TestOtherCommandsIgnoreServerFaults(t *testing.T) {
	t.Parallel()
	i := invocation{env: []string{"A2AD_LEASE_TTL=x"}}
	if i.run(t, "version"); i.code != exitOK || i.stderr != "" {
		t.Errorf("exit code %d, %s", i.code, i.stderr)
	}
}

func TestConfigMasksSecrets(t *testing.T) {
	t.Parallel()
	i := invocation{env: []string{
		"A2AD_AGENTS=a", "A2AD_DATABASE_URL=postgres://u:hunter2@h/d?sslpassword=hunter2&sslmode=disable",
		"A2AD_KEYS=k1:" + key32, "A2AD_PUSH_SIGNING_SECRETS=whsec_" + key32,
	}}
	for _, args := range [][]string{{"config"}, {"config", "-o", "json"}, {"config", "-v"}} {
		i.run(t, args...)
		if i.code != exitOK || strings.Contains(i.stdout, "hunter2") || strings.Contains(i.stdout, key32) ||
			!strings.Contains(i.stdout, "sslmode=disable") {
			t.Errorf("%v: exit code %d\n%s%s", args, i.code, i.stdout, i.stderr)
		}
	}
}
