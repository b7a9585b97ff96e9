package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/seal"
)

// key32 is 32 bytes in base64.
const key32 = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// settingSamples has, for every setting, a value that differs from the default and one
// that is refused; "" where nothing is refused.
var settingSamples = map[string][2]string{
	"A2AD_STRICT": {"on", "maybe"}, "A2AD_GRPC_CARD": {"url", "both"},
	"A2AD_DATABASE_URL": {"postgres://u@h/d", ""}, "A2AD_DATA_DIR": {"/data", ""}, "A2AD_PG_BINDIR": {"/pg/bin", ""},
	"A2AD_DB_POOL": {"32", "3"}, "A2AD_POOL_TIMEOUT": {"2s", "0"}, "A2AD_STATEMENT_TIMEOUT": {"9s", "9"},
	"A2AD_CONNECT_TIMEOUT": {"3s", "0"}, "A2AD_TCP_TIMEOUT": {"9s", "1ms"},
	"A2AD_LOCK_TIMEOUT": {"2s", "-1s"}, "A2AD_IDLE_TX_TIMEOUT": {"2s", "x"}, "A2AD_LISTENER_PING": {"2s", "0s"},
	"A2AD_LISTEN": {"localhost:1234", "1234"}, "A2AD_ADMIN_LISTEN": {"off", "127.0.0.1:99999"}, "A2AD_GRPC_LISTEN": {"[::1]:1", "x"},
	"A2AD_GRPC_PUBLIC_ADDRESS": {"grpc.example:443", "grpc.example"},
	"A2AD_PUBLIC_URL":          {"https://a.example/b", "a.example"}, "A2AD_READ_HEADER_TIMEOUT": {"1s", "0"}, "A2AD_READ_TIMEOUT": {"1s", "0"},
	"A2AD_WRITE_TIMEOUT": {"1s", "0"}, "A2AD_HTTP_IDLE_TIMEOUT": {"1s", "0"}, "A2AD_READY_TIMEOUT": {"2s", "0"}, "A2AD_DRAIN_TIMEOUT": {"1s", "-1s"}, "A2AD_DRAIN_DELAY": {"3s", "-1s"},
	"A2AD_AUTH": {"none", "maybe"}, "A2AD_AUTH_RECHECK": {"10s", "0.5s"}, "A2AD_SHARING": {"tenant", "all"}, "A2AD_KEYS": {"k2:" + key32 + ",k1:" + key32, "k1:short"},
	"A2AD_OIDC_ISSUER": {"https://login.example.org/", "http://login.example.org"}, "A2AD_OIDC_AUDIENCE": {"a2ad", ""}, "A2AD_OIDC_JWKS_URL": {"http://127.0.0.1:9/keys", "/keys"},
	"A2AD_OIDC_TENANT_CLAIM": {"org", ""}, "A2AD_OIDC_TENANT": {"acme", ""}, "A2AD_OIDC_OWNER_CLAIM": {"email,sub", "a,"}, "A2AD_OIDC_SCOPE_CLAIM": {"roles", ","},
	"A2AD_OIDC_SCOPES": {"tasks:read,tasks:write", "all"}, "A2AD_CARD_WORKSHOP_FIELDS": {"on", "x"},
	"A2AD_TLS_CERT": {"/tls/cert.pem", ""}, "A2AD_TLS_KEY": {"/tls/key.pem", ""}, "A2AD_TLS_CLIENT_CA": {"/tls/ca.pem", ""},
	"A2AD_MTLS_TENANT_FROM": {"uri-host", "cn"}, "A2AD_MTLS_TENANT": {"acme", ""}, "A2AD_MTLS_SCOPES": {"tasks:read", "x"}, "A2AD_MTLS_PROXIES": {"10.0.0.0/8,::1/128", "proxy"},
	"A2AD_CARD_SIGNING": {"on", "x"}, "A2AD_CORS_ORIGINS": {"https://app.example.org,http://localhost:3000", "https://app.example.org/"},
	"A2AD_OIDC_OAUTH2": {`{"flows":{"clientCredentials":{"tokenUrl":"https://h/token","scopes":{"tasks:read":"read"}}}}`, `{"flows":{"implicit":{"tokenUrl":"https://h/token","scopes":{}}}}`},
	"A2AD_AGENTS":      {"/agents", ""}, "A2AD_DEFAULT_AGENT": {"words", ""}, "A2AD_WORKERS": {"0", "-1"}, "A2AD_REPLICA": {"r1", ""},
	"A2AD_LEASE_TTL": {"3s", "100ms"}, "A2AD_POLL_INTERVAL": {"500ms", "0"}, "A2AD_WAKE_INTERVAL": {"10ms", "-5ms"},
	"A2AD_RUN_DEADLINE": {"2h", "0"}, "A2AD_IDLE_TIMEOUT": {"1m", "0"}, "A2AD_MAX_ATTEMPTS": {"3", "0"},
	"A2AD_RETRY_BACKOFF_BASE": {"100ms", "-1s"}, "A2AD_RETRY_BACKOFF_MAX": {"2m", "-1s"}, "A2AD_RESCUE_INTERVAL": {"500ms", "0"},
	"A2AD_SWEEP_INTERVAL": {"1m", "0"}, "A2AD_PUSH_RETENTION": {"never", "0s"},
	"A2AD_RETENTION": {"720h", "0s"}, "A2AD_LOG_RETENTION": {"24h", "-1h"}, "A2AD_ATTEMPT_RETENTION": {"100h", "0s"}, "A2AD_AUDIT_RETENTION": {"1000h", "0s"}, "A2AD_SIGNIN_RETENTION": {"100h", "-1h"}, "A2AD_RETIRE_INTERVAL": {"1s", "0"}, "A2AD_BLOCKING_MAX_WAIT": {"1s", "-1s"}, "A2AD_SSE_PING": {"1s", "0"}, "A2AD_SSE_WRITE_TIMEOUT": {"1s", "0"},
	"A2AD_SSE_RETRY": {"1s", "0"}, "A2AD_MAX_STREAMS": {"5", "0"}, "A2AD_MAX_STREAMS_PER_OWNER": {"5", "0"},
	"A2AD_PUSH_RETRY": {"0,1s,1m30s", "0,1"}, "A2AD_PUSH_THROTTLE_WAIT": {"1s", "-1s"}, "A2AD_PUSH_BREAKER": {"3,1s,1m", "3,1m,1s"},
	"A2AD_PUSH_DISABLE_AFTER": {"1h", "0"}, "A2AD_PUSH_TIMEOUT": {"1s", "0"}, "A2AD_PUSH_ALLOW_HTTP": {"on", "maybe"},
	"A2AD_PUSH_ALLOW_CIDRS": {"10.0.0.0/8,::1/128", "10.0.0.0/33"}, "A2AD_PUSH_PROXY": {"http://proxy:3128", "proxy:3128"},
	"A2AD_PUSH_CONCURRENCY": {"5", "0"}, "A2AD_PUSH_PER_DESTINATION": {"5", "0"}, "A2AD_PUSH_POLL": {"3s", "0"}, "A2AD_PUSH_MAX_BODY": {"1MiB", "1B"},
	"A2AD_PUSH_SIGNING_SECRETS": {"whsec_" + key32, "whsec_short"}, "A2AD_MAX_PUSH_CONFIGS": {"5", "-1"}, "A2AD_MAX_PUSH_URL": {"1KiB", "0"},
	"A2AD_MAX_PUSH_SECRET": {"1KiB", "0"}, "A2AD_MAX_PUSH_ANSWER": {"1KiB", "x"}, "A2AD_KEEP_PUSH_ANSWER": {"1KiB", "-1"},
	"A2AD_LENIENT_03": {"off", "2"}, "A2AD_LENIENT_VERSION": {"on", "x"}, "A2AD_CARD_LEGACY_FIELDS": {"off", "x"}, "A2AD_ERROR_PROFILE": {"1.0.0", "2.0"},
	"A2AD_MAX_BODY": {"1MiB", "4MB"}, "A2AD_MAX_HEADER": {"8KiB", "1B"}, "A2AD_MAX_JSON_DEPTH": {"32", "1"}, "A2AD_MAX_PARTS": {"5", "0"},
	"A2AD_MAX_PART": {"2KiB", "0"}, "A2AD_MAX_HISTORY": {"5", "0"}, "A2AD_MAX_ARTIFACTS": {"5", "0"}, "A2AD_MAX_CHUNKS": {"5", "0"},
	"A2AD_MAX_TASK": {"1GiB", "0"}, "A2AD_MAX_ID": {"128", "1"}, "A2AD_MAX_CURSOR": {"2KiB", "1"}, "A2AD_MAX_MESSAGE": {"1MiB", "0"}, "A2AD_MAX_CLAIMS": {"5", "0"},
	"A2AD_MAX_TASKS_IN_FLIGHT": {"0", "-1"}, "A2AD_MAX_PENDING": {"5", "0"}, "A2AD_MEMORY_BUDGET": {"64MiB", "1MiB"}, "A2AD_TRUSTED_PROXIES": {"10.0.0.0/8", "proxy"},
	"A2AD_RATE_READS": {"off", "0,1"}, "A2AD_RATE_SENDS": {"0.5,1", "5"}, "A2AD_RATE_STREAMS": {"1,1", "1,0"}, "A2AD_RATE_PUSH_WRITES": {"1,1", "NaN,1"},
	"A2AD_RATE_SIGN_INS": {"10,100", "1,1.5"},
	"A2AD_LOG_LEVEL":     {"debug", "loud"}, "A2AD_LOG_FORMAT": {"text", "xml"},
	"A2AD_URL": {"https://a.example", "a.example"}, "A2AD_API_KEY": {"a2ad_x", ""},
}

// TestEverySetting: flag, else environment or file, else default; and a bad value is one fault.
func TestEverySetting(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, s := range everySetting() {
		names[s.Name] = true
		sample, ok := settingSamples[s.Name]
		if !ok {
			t.Errorf("%s has no sample here", s.Name)
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			testSetting(t, s.Name, sample[0], sample[1])
		})
	}
	for name := range settingSamples {
		if !names[name] {
			t.Errorf("%s is not a setting", name)
		}
	}
}

func testSetting(t *testing.T, name, sample, bad string) {
	find := func() setting { // on a fresh struct each time
		all := everySetting()
		return all[slices.IndexFunc(all, func(s setting) bool { return s.Name == name })]
	}
	one := func(s setting, flags flagValues, env environment) (value, []fault) {
		vs, faults := load([]setting{s}, flags, env)
		return vs[0], faults
	}
	s := find()
	if s.Flag != "" && name != "A2AD_"+strings.ToUpper(strings.ReplaceAll(s.Flag, "-", "_")) {
		t.Errorf("flag --%s", s.Flag)
	}
	if s.Help == "" || s.Group == "" || !strings.HasSuffix(s.Help, ".") {
		t.Errorf("help %q, group %q", s.Help, s.Group)
	}

	v, faults := one(s, nil, nil)
	if want := map[bool]string{true: "default", false: ""}[s.Default != ""]; len(faults) > 0 || v.Source != want {
		t.Errorf("nothing given: source %q, %v", v.Source, faults)
	}
	byDefault := format(s.field)

	s = find()
	v, faults = one(s, nil, environment{name: sample})
	if len(faults) > 0 || v.Source != "env "+name || format(s.field) == byDefault {
		t.Errorf("from the environment: %q from %q, %v", format(s.field), v.Source, faults)
	}
	if !s.Secret && v.shown() != sample {
		t.Errorf("shown as %q, given as %q", v.shown(), sample)
	}
	inEnv := format(s.field)

	if s = find(); s.Flag != "" {
		v, faults = one(s, flagValues{s.Flag: sample}, environment{name: "wrong"})
		if len(faults) > 0 || v.Source != "flag --"+s.Flag || format(s.field) != inEnv {
			t.Errorf("flag beside environment: %q from %q, %v", format(s.field), v.Source, faults)
		}
	}

	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(sample+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = find()
	v, faults = one(s, nil, environment{name + "_FILE": file})
	switch {
	case s.Secret && (len(faults) > 0 || v.Source != "file "+file || format(s.field) != inEnv):
		t.Errorf("from a file: %q from %q, %v", format(s.field), v.Source, faults)
	case !s.Secret && format(s.field) != byDefault:
		t.Error("_FILE works for something that is no secret")
	}

	s = find()
	if v, faults = one(s, nil, environment{name: ""}); len(faults) > 0 || format(s.field) != byDefault {
		t.Errorf("empty variable: %q, %v; want what no variable gives", v.shown(), faults)
	}

	if bad == "" {
		return
	}
	s = find()
	if _, faults = one(s, nil, environment{name: bad}); len(faults) != 1 || faults[0].Name != name || format(s.field) != byDefault {
		t.Errorf("bad value: %v; the field is %q", faults, format(s.field))
	}
	if s.Secret && len(faults) == 1 && strings.Contains(faults[0].String(), bad) {
		t.Errorf("the fault shows the secret: %s", faults[0])
	}
}

// TestSettingDefaults are the published defaults.
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

// TestAllFaultsAtOnce, with the setting, the value and what to do.
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
	show([]string{"A2AD_DATABASE_URL=mysql://u:hunter2@h/d", "A2AD_AGENTS=a", "A2AD_KEYS=hunter2", "A2AD_PUSH_SIGNING_SECRETS=hunter2", "A2AD_LEASE_TTL=30", "A2AD_LESE_TTL=30s", "A2AD_WORKERS=many"},
		"serve", "--listen=8080", "--max-attempts=0", "--public-url=ftp://x", "--sse-ping=0")
	show([]string{"A2AD_DATABASE_URL=postgres://h/d", "A2AD_AGENTS=a", "A2AD_AUTH=none", "A2AD_LISTEN=0.0.0.0:8080", "A2AD_ADMIN_LISTEN=0.0.0.0:8080", "A2AD_GRPC_LISTEN=:50051",
		"A2AD_RETRY_BACKOFF_BASE=10m", "A2AD_REPLICA=a b"}, "serve")
	show([]string{"A2AD_DATABASE_URL=postgres://h/d", "A2AD_AGENTS=a", "A2AD_OIDC_ISSUER=http://login.example.org", "A2AD_OIDC_AUDIENCE=a", "A2AD_OIDC_SCOPES=tasks:read,all", "A2AD_OIDC_OWNER_CLAIM=sub,,x"}, "serve")
	show([]string{"A2AD_DATABASE_URL=postgres://h/d", "A2AD_AGENTS=a", "A2AD_OIDC_ISSUER=https://login.example.org/"}, "serve")
	show([]string{"A2AD_DATABASE_URL=postgres://h/d", "A2AD_AGENTS=a", "A2AD_OIDC_JWKS_URL=https://login.example.org/keys"}, "serve")
	show([]string{"A2AD_DATABASE_URL=postgres://h/d", "A2AD_AGENTS=a", "A2AD_TLS_CERT=cert.pem"}, "serve")
	show([]string{"A2AD_DATABASE_URL=postgres://h/d", "A2AD_AGENTS=a", "A2AD_TLS_CLIENT_CA=ca.pem"}, "serve")
	show([]string{"A2AD_DATABASE_URL=postgres://h/d", "A2AD_AGENTS=testdata/faulty", "A2AD_LEASE_TTL=30"}, "serve")
	show([]string{"A2AD_DEFAULT_AGENT=nobody", "A2AD_LEASE_TTL=30"}, "dev")
	show([]string{"A2AD_DATABASE_URL=postgres://h/d", "A2AD_AGENTS=a", "A2AD_TLS_KEY=key.pem", "A2AD_MTLS_PROXIES=10.0.0.0/8,0.0.0.0/0"}, "serve")
	show(nil, "dev", "--listen=:8080")
	show(nil, "dev", "--grpc-listen=127.0.0.1:9090")
	show([]string{"A2AD_DATABASE_URL=postgres://h/d", "A2AD_DATABASE_URL_FILE=/run/secrets/db", "A2AD_KEYS_FILE=testdata/none"}, "dev")
	show([]string{"A2AD_DATABASE_URL=localhost"}, "task", "ls")
	show([]string{"A2AD_URL=localhost:8080"}, "send", "x")
	golden(t, "faults", out.String())
	if strings.Contains(strings.ReplaceAll(out.String(), "=hunter2", ""), "hunter2\n") || regexp.MustCompile(`(?m)^ .*hunter2`).MatchString(out.String()) {
		t.Error("a fault shows a secret")
	}
}

func TestAuthNoneNeedsLoopback(t *testing.T) {
	t.Parallel()
	for listen, ok := range map[string]bool{
		"127.0.0.1:8080": true, "127.1.2.3:8080": true, "[::1]:8080": true, "localhost:8080": true, "[::ffff:127.0.0.1]:80": true,
		":8080": false, "0.0.0.0:8080": false, "[::]:8080": false, "192.168.0.1:80": false, "example.org:80": false,
	} {
		i := invocation{env: []string{"A2AD_DATABASE_URL=postgres://h/d", "A2AD_AGENTS=a", "A2AD_AUTH=none", "A2AD_LISTEN=" + listen}}
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
	i := invocation{env: []string{"A2AD_PUSH_RETRIES=1", "A2AD_ZZZ=1", "A2AD_TEST_DATABASE_URL=x", "A2AD_KEYS_FILE=", "OTHER=1"}}
	i.run(t, "version")
	want := "a2ad: warning: unknown setting A2AD_PUSH_RETRIES is ignored, did you mean A2AD_PUSH_RETRY?\na2ad: warning: unknown setting A2AD_ZZZ is ignored\n"
	if diff := cmp.Diff(want, i.stderr); diff != "" || i.code != exitOK {
		t.Errorf("exit code %d, stderr (-want +got):\n%s", i.code, diff)
	}
}

func TestUnknownSettingIsAFaultWithStrict(t *testing.T) {
	t.Parallel()
	env := []string{"A2AD_WORKES=1", "A2AD_ZZZ=1", "A2AD_LEASE_TTL=3", "A2AD_VERSION=1", "A2AD_PORT_8080_TCP=x", "A2AD_SERVICE_HOST=10.0.0.1"}
	want := "a2ad: the configuration has 3 faults\n  A2AD_LEASE_TTL=\"3\": not a duration: write a number and a unit, for example 500ms, 30s, 5m or 12h\n" +
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

// TestVariablesOfOtherPrograms: what Kubernetes tells every container about a service called a2ad, and what belongs to the
// build and the tests, is no mistake.
func TestVariablesOfOtherPrograms(t *testing.T) {
	t.Parallel()
	kubernetes := []string{
		"A2AD_SERVICE_HOST=10.0.0.1", "A2AD_SERVICE_PORT=80", "A2AD_SERVICE_PORT_HTTP=80", "A2AD_PORT=tcp://10.0.0.1:80", "A2AD_PORT_80_TCP=tcp://10.0.0.1:80",
		"A2AD_PORT_80_TCP_PROTO=tcp", "A2AD_PORT_80_TCP_PORT=80", "A2AD_PORT_80_TCP_ADDR=10.0.0.1", "A2AD_PORT_53_UDP_ADDR=10.0.0.1",
		"A2AD_GRPC_SERVICE_HOST=10.0.0.2", "A2AD_GRPC_SERVICE_PORT=9091", "A2AD_GRPC_PORT=tcp://10.0.0.2:9091", "A2AD_GRPC_PORT_9091_TCP_ADDR=10.0.0.2",
	}
	if got := readEnviron(kubernetes).unknown(); got != nil {
		t.Errorf("of Kubernetes: %v", got)
	}
	// Without such a service they are misspelt settings.
	lonely := []string{"A2AD_GRPC_PORT=9091", "A2AD_PORT=8080", "A2AD_PORT_80_TCP_ADDR=x", "A2AD_SERVICE_NAME=x", "A2AD_SERVICE_PORT=80"}
	want := []string{"A2AD_GRPC_PORT", "A2AD_PORT", "A2AD_PORT_80_TCP_ADDR", "A2AD_SERVICE_NAME", "A2AD_SERVICE_PORT"}
	if diff := cmp.Diff(want, readEnviron(lonely).unknown()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"A2AD_PORT"}, readEnviron([]string{"A2AD_SERVICE_HOST=10.0.0.1", "A2AD_PORT=8080"}).unknown()); diff != "" {
		t.Error(diff)
	}
	// Whatever this repository sets is known.
	name := regexp.MustCompile(`\bA2AD_[A-Z0-9_]*[A-Z0-9]\b`)
	env := environment{}
	for _, root := range []string{"Makefile", "docker-compose.yml", "Dockerfile", "deploy", "scripts", "examples", ".ci", "internal/interop"} {
		err := filepath.WalkDir(filepath.Join("../..", root), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || strings.Contains(path, "node_modules") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, v := range name.FindAllString(string(text), -1) {
				env[v] = ""
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if got := env.unknown(); got != nil || len(env) < 20 {
		t.Errorf("of %d names in the repository these are unknown: %v", len(env), got)
	}
}

func TestNearestSetting(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"A2AD_WORKES": "A2AD_WORKERS", "A2AD_WORKER": "A2AD_WORKERS", "A2AD_LEASE_TLL": "A2AD_LEASE_TTL", "A2AD_LEASETTL": "A2AD_LEASE_TTL",
		"A2AD_DATABASE": "A2AD_DATABASE_URL", "A2AD_MAX_WORKERS": "A2AD_WORKERS", "A2AD_LISTEN_ADDRESS": "A2AD_LISTEN", "A2AD_ADMIN": "A2AD_ADMIN_LISTEN",
		"A2AD_TTL_LEASE": "A2AD_LEASE_TTL", "A2AD_ZZZ": "", "A2AD_": "", "A2AD_MAX": "",
	} {
		if want != "" {
			want = ", did you mean " + want + "?"
		}
		if got := suggest(name); got != want {
			t.Errorf("%s%s, want %q", name, got, want)
		}
	}
}

// TestOtherCommandsIgnoreServerFaults: a typo in a server's setting must not keep the client from working.
func TestOtherCommandsIgnoreServerFaults(t *testing.T) {
	t.Parallel()
	i := invocation{env: []string{"A2AD_LEASE_TTL=x"}}
	if i.run(t, "version"); i.code != exitOK || i.stderr != "" {
		t.Errorf("exit code %d, %s", i.code, i.stderr)
	}
}

func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()
	s := newSecret("hunter2")
	ring, err := seal.Parse("k1:" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("hunter2", 5)[:32])))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "s", s, "in", struct{ S Secret }{s}, "ring", ring)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "s", s, "in", struct{ S Secret }{s}, "config", Config{Access: Access{Keys: ring}})
	js, err := json.Marshal(map[string]any{"s": s, "p": &s, "k": ring, "ss": SigningSecrets{s}, "m": map[Secret]int{s: 1}})
	if err != nil {
		t.Fatal(err)
	}
	out := log.String() + string(js)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%10s", "%T %[1]v"} {
		out += fmt.Sprintf(verb+"\n", s) + fmt.Sprintf(verb+"\n", struct{ S Secret }{s}) + fmt.Sprintf(verb+"\n", []Secret{s}) + fmt.Sprintf(verb+"\n", Client{APIKey: s}) + fmt.Sprintf(verb+"\n", struct{ s Secret }{s})
	}
	if strings.Contains(out, "hunter2") || strings.Contains(out, fmt.Sprintf("%x", "hunter2")) || strings.Contains(out, fmt.Sprintf("%X", "hunter2")) {
		t.Errorf("seen:\n%s", out)
	}
	if s.Reveal() != "hunter2" {
		t.Error("Reveal does not")
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
		if i.code != exitOK || strings.Contains(i.stdout, "hunter2") || strings.Contains(i.stdout, key32) || !strings.Contains(i.stdout, "sslmode=disable") {
			t.Errorf("%v: exit code %d\n%s%s", args, i.code, i.stdout, i.stderr)
		}
	}
}

func TestMaskDSN(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"postgres://u:p@h:5432/d":                       "postgres://u:xxxxx@h:5432/d",
		"postgres://u@h/d?password=p&x=1":               "postgres://u@h/d?password=xxxxx&x=1",
		"host=h password=p dbname=d":                    "host=h password=xxxxx dbname=d",
		`host=h PassWord = 'a b\'c' dbname=d`:           `host=h PassWord = xxxxx dbname=d`,
		"host=h sslpassword=p":                          "host=h sslpassword=xxxxx",
		"p":                                             redacted,
		"postgres://u:p%zz@h/d":                         redacted,
		"postgres:///d?host=/var/run/postgresql&port=1": "postgres:///d?host=%2Fvar%2Frun%2Fpostgresql&port=1",
	} {
		if got := maskDSN(in); got != want {
			t.Errorf("maskDSN(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestAgentsSeeNoSecrets: the commands of agents get our environment, less what is none of their business.
func TestAgentsSeeNoSecrets(t *testing.T) {
	t.Parallel()
	environ := []string{"PATH=/bin", "A2AD_KEYS=x", "A2AD_DATABASE_URL=x", "A2AD_API_KEY=x", "A2AD_WORKERS=1", "A2AD_PUSH_SIGNING_SECRETS=x"}
	if diff := cmp.Diff([]string{"PATH=/bin", "A2AD_WORKERS=1"}, readEnviron(environ).withoutSecrets(environ)); diff != "" {
		t.Error(diff)
	}
}

// TestUnusedMarks: `a2ad config` must not show a setting as if it did something when
// nothing reads it, nor the other way round. What the server reads it reads from cfg.
func TestUnusedMarks(t *testing.T) {
	t.Parallel()
	read := map[string]bool{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\b(?:cfg|cmd|[cdl])\.(\w+)\b`).FindAllStringSubmatch(string(src), -1) {
			read[m[1]] = true
		}
	}
	check := func(v reflect.Value) {
		for _, s := range appendSettings(nil, v, "", false) {
			for _, f := range reflect.VisibleFields(v.Type()) {
				if f.Tag.Get("name") != s.Flag || s.Flag == "" {
					continue
				}
				if read[f.Name] == (s.Unused != "") {
					t.Errorf("%s: Config.%s is read: %v, but marked as unused: %q", s.Name, f.Name, read[f.Name], s.Unused)
				}
			}
		}
	}
	check(reflect.ValueOf(&Config{}).Elem())
}

func TestReplicaName(t *testing.T) {
	t.Parallel()
	var a, b Config
	one, two := a.ReplicaName(), b.ReplicaName()
	if one == two || !replicaName.MatchString(one) {
		t.Errorf("%q, %q", one, two)
	}
	a.Replica = "mine"
	if got := a.ReplicaName(); got != "mine" {
		t.Errorf("got %q", got)
	}
}
