package config

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

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"a", "a", 0}, {"ab", "ba", 2}} {
		if got := distance(tc.a, tc.b); got != tc.want || distance(tc.b, tc.a) != tc.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
	if !slices.IsSorted(Environ{"A2AD_B": "", "A2AD_A": ""}.Unknown()) {
		t.Error("unknown names are not sorted")
	}
}

func TestDial(t *testing.T) {
	t.Parallel()
	for in, want := range map[Listen]string{
		":9090":       "127.0.0.1:9090",
		"0.0.0.0:1":   "127.0.0.1:1",
		"[::]:1":      "[::1]:1",
		"localhost:1": "localhost:1",
	} {
		if got := in.Dial(); got != want {
			t.Errorf("%s.Dial() = %s, want %s", in, got, want)
		}
	}
}

// TestEverySetting checks that each setting comes from its flag, else from the environment or a file, else from its
// default. A bad value is one fault.
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
	find := func() Setting { // on a fresh struct each time
		all := everySetting()
		return all[slices.IndexFunc(all, func(s Setting) bool { return s.Name == name })]
	}
	one := func(s Setting, flags Flags, env Environ) (Value, []Fault) {
		vs, faults := Load([]Setting{s}, flags, env)
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
	v, faults = one(s, nil, Environ{name: sample})
	if len(faults) > 0 || v.Source != "env "+name || format(s.field) == byDefault {
		t.Errorf("from the environment: %q from %q, %v", format(s.field), v.Source, faults)
	}
	if !s.Secret && v.Shown() != sample {
		t.Errorf("shown as %q, given as %q", v.Shown(), sample)
	}
	inEnv := format(s.field)

	if s = find(); s.Flag != "" {
		v, faults = one(s, Flags{s.Flag: sample}, Environ{name: "wrong"})
		if len(faults) > 0 || v.Source != "flag --"+s.Flag || format(s.field) != inEnv {
			t.Errorf("a flag and the environment: %q from %q, %v", format(s.field), v.Source, faults)
		}
	}

	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(sample+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = find()
	v, faults = one(s, nil, Environ{name + "_FILE": file})
	switch {
	case s.Secret && (len(faults) > 0 || v.Source != "file "+file || format(s.field) != inEnv):
		t.Errorf("from a file: %q from %q, %v", format(s.field), v.Source, faults)
	case !s.Secret && format(s.field) != byDefault:
		t.Error("_FILE works for something that is no secret")
	}

	s = find()
	if v, faults = one(s, nil, Environ{name: ""}); len(faults) > 0 || format(s.field) != byDefault {
		t.Errorf("empty variable: %q, %v; want what no variable gives", v.Shown(), faults)
	}

	if bad == "" {
		return
	}
	s = find()
	if _, faults = one(s, nil, Environ{name: bad}); len(faults) != 1 || faults[0].Name != name ||
		format(s.field) != byDefault {
		t.Errorf("bad value: %v; the field is %q", faults, format(s.field))
	}
	if s.Secret && len(faults) == 1 && strings.Contains(faults[0].String(), bad) {
		t.Errorf("the fault shows the secret: %s", faults[0])
	}
}

// TestVariablesOfOtherPrograms checks that variables of other programs are not reported as misspelled. Kubernetes sets
// some in every container for a service called a2ad, and the build and the tests have theirs.
func TestVariablesOfOtherPrograms(t *testing.T) {
	t.Parallel()
	kubernetes := []string{
		"A2AD_SERVICE_HOST=10.0.0.1", "A2AD_SERVICE_PORT=80", "A2AD_SERVICE_PORT_HTTP=80",
		"A2AD_PORT=tcp://10.0.0.1:80", "A2AD_PORT_80_TCP=tcp://10.0.0.1:80",
		"A2AD_PORT_80_TCP_PROTO=tcp", "A2AD_PORT_80_TCP_PORT=80", "A2AD_PORT_80_TCP_ADDR=10.0.0.1",
		"A2AD_PORT_53_UDP_ADDR=10.0.0.1",
		"A2AD_GRPC_SERVICE_HOST=10.0.0.2", "A2AD_GRPC_SERVICE_PORT=9091", "A2AD_GRPC_PORT=tcp://10.0.0.2:9091",
		"A2AD_GRPC_PORT_9091_TCP_ADDR=10.0.0.2",
	}
	if got := ReadEnviron(kubernetes).Unknown(); got != nil {
		t.Errorf("of Kubernetes: %v", got)
	}
	// Without such a service they are misspelt settings.
	lonely := []string{
		"A2AD_GRPC_PORT=9091", "A2AD_PORT=8080", "A2AD_PORT_80_TCP_ADDR=x", "A2AD_SERVICE_NAME=x",
		"A2AD_SERVICE_PORT=80",
	}
	want := []string{"A2AD_GRPC_PORT", "A2AD_PORT", "A2AD_PORT_80_TCP_ADDR", "A2AD_SERVICE_NAME", "A2AD_SERVICE_PORT"}
	if diff := cmp.Diff(want, ReadEnviron(lonely).Unknown()); diff != "" {
		t.Error(diff)
	}
	unknown := ReadEnviron([]string{"A2AD_SERVICE_HOST=10.0.0.1", "A2AD_PORT=8080"}).Unknown()
	if diff := cmp.Diff([]string{"A2AD_PORT"}, unknown); diff != "" {
		t.Error(diff)
	}
	// Every variable that this repository sets is known.
	name := regexp.MustCompile(`\bA2AD_[A-Z0-9_]*[A-Z0-9]\b`)
	env := Environ{}
	for _, root := range []string{
		"Makefile", "docker-compose.yml", "Dockerfile", "deploy", "scripts", "examples", ".ci", "internal/interop",
	} {
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
	if got := env.Unknown(); got != nil || len(env) < 20 {
		t.Errorf("of %d names in the repository these are unknown: %v", len(env), got)
	}
}

func TestNearestSetting(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"A2AD_WORKES":         "A2AD_WORKERS",
		"A2AD_WORKER":         "A2AD_WORKERS",
		"A2AD_LEASE_TLL":      "A2AD_LEASE_TTL",
		"A2AD_LEASETTL":       "A2AD_LEASE_TTL",
		"A2AD_DATABASE":       "A2AD_DATABASE_URL",
		"A2AD_MAX_WORKERS":    "A2AD_WORKERS",
		"A2AD_LISTEN_ADDRESS": "A2AD_LISTEN",
		"A2AD_ADMIN":          "A2AD_ADMIN_LISTEN",
		"A2AD_TTL_LEASE":      "A2AD_LEASE_TTL", "A2AD_ZZZ": "", "A2AD_": "", "A2AD_MAX": "",
	} {
		if want != "" {
			want = ", did you mean " + want + "?"
		}
		if got := Suggest(name); got != want {
			t.Errorf("%s%s, want %q", name, got, want)
		}
	}
}

func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()
	s := NewSecret("hunter2")
	ring, err := seal.Parse("k1:" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("hunter2", 5)[:32])))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "s", s, "in", struct{ S Secret }{s}, "ring", ring)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x",
		"s", s, "in", struct{ S Secret }{s}, "config", Config{Access: Access{Keys: ring}})
	js, err := json.Marshal(map[string]any{
		"s": s, "p": &s, "k": ring, "ss": SigningSecrets{s}, "m": map[Secret]int{s: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	out := log.String() + string(js)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%10s", "%T %[1]v"} {
		out += fmt.Sprintf(verb+"\n", s) + fmt.Sprintf(verb+"\n", struct{ S Secret }{s}) +
			fmt.Sprintf(verb+"\n", []Secret{s}) + fmt.Sprintf(verb+"\n", Client{APIKey: s}) +
			fmt.Sprintf(verb+"\n", struct{ s Secret }{s})
	}
	if strings.Contains(out, "hunter2") || strings.Contains(out, fmt.Sprintf("%x", "hunter2")) ||
		strings.Contains(out, fmt.Sprintf("%X", "hunter2")) {
		t.Errorf("seen:\n%s", out)
	}
	if s.Reveal() != "hunter2" {
		t.Error("Reveal does not")
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
		if got := MaskDSN(in); got != want {
			t.Errorf("maskDSN(%q) = %q, want %q", in, got, want)
		}
	}
}

// The driver would take the end of such a password for a part of the host, and name it in errors.
func TestDatabaseURLHasOneAt(t *testing.T) {
	t.Parallel()
	for dsn, valid := range map[string]bool{
		"postgres://u:p@h/d":                true,
		"postgres://u:p%40q@h1,h2/d":        true,
		"postgres://u@h/d?application=a@@b": true,
		"host=h user=u password=p@q@r":      true,
		"postgres://u:p@q@h/d":              false,
		"postgres://u:p@q@h?sslmode=off":    false,
		"postgres://u:p@h1,q@h2":            false,
	} {
		faults := (&Database{DatabaseURL: NewSecret(dsn)}).Check()
		if (len(faults) == 0) != valid {
			t.Errorf("%s: %v", dsn, faults)
		}
	}
}

// TestAgentsSeeNoSecrets checks that the commands of agents get the server's environment without its secrets.
func TestAgentsSeeNoSecrets(t *testing.T) {
	t.Parallel()
	environ := []string{
		"PATH=/bin", "A2AD_KEYS=x", "A2AD_DATABASE_URL=x", "A2AD_API_KEY=x", "A2AD_WORKERS=1",
		"A2AD_PUSH_SIGNING_SECRETS=x",
	}
	got := ReadEnviron(environ).WithoutSecrets(environ)
	if diff := cmp.Diff([]string{"PATH=/bin", "A2AD_WORKERS=1"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestEverySettingIsRead finds settings that a2ad accepts and ignores. The server reads settings from cfg.
func TestEverySettingIsRead(t *testing.T) {
	t.Parallel()
	read := map[string]bool{}
	for _, dir := range []string{".", "../replica", "../doctor", "../../cmd/a2ad"} {
		files, err := filepath.Glob(dir + "/*.go")
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
			for _, m := range regexp.MustCompile(`\b(?:cfg|cmd|[cdl])\.(\w+)\b`).FindAllSubmatch(src, -1) {
				read[string(m[1])] = true
			}
		}
	}
	all := reflect.ValueOf(&Config{}).Elem()
	for _, s := range appendSettings(nil, all, "", false) {
		for _, f := range reflect.VisibleFields(all.Type()) {
			if f.Tag.Get("name") == s.Flag && s.Flag != "" && !read[f.Name] {
				t.Errorf("%s: nothing reads Config.%s", s.Name, f.Name)
			}
		}
	}
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
