package doctest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// compose is the part of docker-compose.yml that the tests check.
type compose struct {
	Services map[string]service `yaml:"services"`
	Volumes  map[string]any     `yaml:"volumes"`
}

type service struct {
	Image       string   `yaml:"image"`
	User        string   `yaml:"user"`
	Command     []string `yaml:"command"`
	Entrypoint  []string `yaml:"entrypoint"`
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	SecurityOpt []string `yaml:"security_opt"`
	Profiles    []string `yaml:"profiles"`
	Ports       []string `yaml:"ports"`
	Volumes     []string `yaml:"volumes"`
	Restart     string   `yaml:"restart"`
	Grace       string   `yaml:"stop_grace_period"`
	Environment map[string]string
	Healthcheck struct {
		Test    []string `yaml:"test"`
		Disable bool     `yaml:"disable"`
	} `yaml:"healthcheck"`
	DependsOn map[string]struct {
		Condition string `yaml:"condition"`
	} `yaml:"depends_on"`
}

func readRepo(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func readCompose(t *testing.T) compose {
	t.Helper()
	var c compose
	if err := yaml.Unmarshal([]byte(readRepo(t, "docker-compose.yml")), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// defaulted returns a value of compose with no variable set: ${X:-y} is y.
func defaulted(text string) string {
	return regexp.MustCompile(`\$\{\w+:-([^}]*)\}`).ReplaceAllString(text, "$1")
}

// checkSettings finds unknown settings of a2ad and invalid values.
func checkSettings(t *testing.T, where string, env map[string]string, serves bool) {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	names, _ := settings(t)
	cmd := exec.Command(binary, "config")
	cmd.Env = []string{}
	for name, value := range env {
		if !strings.HasPrefix(name, "A2AD_") {
			t.Errorf("%s: %s is no setting of a2ad", where, name)
			continue
		}
		base := strings.TrimSuffix(name, "_FILE")
		if !slices.Contains(names, base) {
			t.Errorf("%s: unknown setting %s", where, name)
		}
		switch {
		case base == "A2AD_DATABASE_URL":
			name, value = base, "postgres://a2ad@localhost/a2ad"
		case base != name: // a secret that another service creates
			continue
		case name == "A2AD_AGENTS":
			if !serves {
				t.Errorf("%s: %s is for serve", where, name)
			}
		}
		cmd.Env = append(cmd.Env, name+"="+defaulted(value))
	}
	if !serves {
		cmd.Env = append(cmd.Env, "A2AD_AGENTS=x")
	}
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "warning") {
		t.Errorf("%s: a2ad does not take these settings: %v\n%s", where, err, out)
	}
}

// docker-compose.yml starts a complete a2ad, as the documentation says.
func TestCompose(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	for name, s := range c.Services {
		for _, v := range s.Volumes {
			source, _, _ := strings.Cut(v, ":")
			if strings.HasPrefix(source, "./") {
				if _, err := os.Stat(filepath.Join(root, source)); err != nil {
					t.Errorf("%s mounts what is not there: %v", name, err)
				}
			} else if _, ok := c.Volumes[source]; !ok {
				t.Errorf("%s mounts the undeclared volume %s", name, source)
			}
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s publishes %s to everybody", name, p)
			}
		}
		for other, d := range s.DependsOn {
			on, ok := c.Services[other]
			if !ok || len(on.Profiles) > 0 && len(s.Profiles) == 0 {
				t.Errorf("%s waits for %s, which is not started", name, other)
			}
			if d.Condition == "service_healthy" && len(on.Healthcheck.Test) == 0 {
				t.Errorf("%s waits for the health of %s, which has no check", name, other)
			}
			if (d.Condition == "service_completed_successfully") != (on.Restart == "no") {
				t.Errorf("%s waits for %s to be %s, and that restarts: %q", name, other, d.Condition, on.Restart)
			}
		}
		if s.Restart == "" || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s: restart %q, security_opt %q", name, s.Restart, s.SecurityOpt)
		}
		if s.Restart != "no" && len(s.Healthcheck.Test) == 0 {
			t.Errorf("%s has no health check", name)
		}
		for key := range s.Environment {
			if strings.Contains(key, "PASSWORD") && !strings.HasSuffix(key, "_FILE") {
				t.Errorf("%s has a secret in its environment: %s", name, key)
			}
		}
	}
	for _, name := range []string{"a2ad-1", "a2ad-2", "migrate"} {
		s, ok := c.Services[name]
		if !ok {
			t.Errorf("unknown service %s", name)
			continue
		}
		if s.User != "65532:65532" || !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) {
			t.Errorf("%s: user %q, read_only %t, cap_drop %q", name, s.User, s.ReadOnly, s.CapDrop)
		}
		checkSettings(t, "docker-compose.yml, "+name, s.Environment, name != "migrate")
		checkCommand(t, s.Command)
		for key, path := range s.Environment {
			if strings.HasSuffix(key, "_FILE") && !slices.ContainsFunc(s.Volumes, func(v string) bool {
				return strings.HasSuffix(v, ":ro") && strings.HasPrefix(path, strings.Split(v, ":")[1]+"/")
			}) {
				t.Errorf("%s: %s is in no volume", name, path)
			}
		}
		if name == "migrate" {
			if s.DependsOn["postgres"].Condition != "service_healthy" || s.Restart != "no" {
				t.Errorf("migrate waits for %v and restarts: %s", s.DependsOn, s.Restart)
			}
			continue
		}
		if s.DependsOn["migrate"].Condition != "service_completed_successfully" {
			t.Errorf("%s waits for %v, and not for the end of migrate", name, s.DependsOn)
		}
		if got := s.Healthcheck.Test; len(got) != 3 || got[0] != "CMD" || got[1] != "/a2ad" {
			t.Errorf("%s is asked by %q", name, got)
		} else {
			checkCommand(t, got[2:])
		}
		longerThanDrain(t, name, s.Grace, s.Environment)
		if s.Environment["A2AD_REPLICA"] != name {
			t.Errorf("%s calls itself %s", name, s.Environment["A2AD_REPLICA"])
		}
	}
	const login = "A2AD_DATABASE_URL_FILE"
	if c.Services["a2ad-1"].Environment[login] == c.Services["migrate"].Environment[login] {
		t.Error("the replicas log in as the owner of the tables")
	}
	checkProxy(t, c)
	checkPrometheus(t, c)
	checkGrafana(t, c)
}

// checkGrafana checks that Grafana reads the dashboard's directory and queries the Prometheus of the file.
func checkGrafana(t *testing.T, c compose) {
	t.Helper()
	g := c.Services["grafana"]
	const in = "/etc/a2ad" // the mount point of ./deploy
	if !slices.Contains(g.Volumes, "./deploy:"+in+":ro") ||
		g.Environment["GF_PATHS_PROVISIONING"] != in+"/compose/grafana" {
		t.Errorf("Grafana reads %q of the volumes %q", g.Environment["GF_PATHS_PROVISIONING"], g.Volumes)
	}
	dashboards := readRepo(t, "deploy", "compose", "grafana", "dashboards", "a2ad.yml")
	if paths := submatches(`path: (\S+)`, dashboards); !slices.Equal(paths, []string{in + "/grafana"}) {
		t.Errorf("Grafana looks for its dashboard in %q", paths)
	}
	readRepo(t, "deploy", "grafana", "a2ad.json")
	source := readRepo(t, "deploy", "compose", "grafana", "datasources", "a2ad.yml")
	if urls := submatches(`url: (\S+)`, source); !slices.Equal(urls, []string{"http://prometheus:9090"}) {
		t.Errorf("Grafana asks %q", urls)
	}
}

// checkPrometheus checks that Prometheus scrapes every replica, under the job name of the alerts, and reads the
// alerts.
func checkPrometheus(t *testing.T, c compose) {
	t.Helper()
	var p struct {
		RuleFiles []string `yaml:"rule_files"`
		Scrape    []struct {
			Job    string `yaml:"job_name"`
			Static []struct {
				Targets []string `yaml:"targets"`
			} `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(readRepo(t, "deploy", "compose", "prometheus.yml")), &p); err != nil {
		t.Fatal(err)
	}
	var asked []string
	for _, s := range p.Scrape {
		for _, static := range s.Static {
			if s.Job == "a2ad" {
				asked = append(asked, static.Targets...)
			}
		}
	}
	var replicas []string
	for _, name := range []string{"a2ad-1", "a2ad-2"} {
		replicas = append(replicas, name+c.Services[name].Environment["A2AD_ADMIN_LISTEN"])
	}
	if !slices.Equal(asked, replicas) {
		t.Errorf("Prometheus asks %q as the job a2ad, which the alerts look at; the replicas are %q", asked, replicas)
	}
	mounted := slices.Contains(c.Services["prometheus"].Volumes, "./deploy:/etc/a2ad:ro")
	if !mounted || !slices.Equal(p.RuleFiles, []string{"/etc/a2ad/prometheus/alerts.yaml"}) {
		t.Errorf("Prometheus reads the rules of %q, with the volumes %q", p.RuleFiles, c.Services["prometheus"].Volumes)
	}
}

// longerThanDrain checks that the grace period of a stop covers the drain, and that the drain waits for the proxy.
func longerThanDrain(t *testing.T, where, grace string, env map[string]string) {
	t.Helper()
	var all [3]time.Duration
	for i, text := range []string{grace, env["A2AD_DRAIN_TIMEOUT"], env["A2AD_DRAIN_DELAY"]} {
		var err error
		if all[i], err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", where, err)
		}
	}
	if g, drain, delay := all[0], all[1], all[2]; g < delay+drain+10*time.Second || delay < 3*time.Second {
		t.Errorf("%s is killed after %s; its drain takes %s and %s", where, g, delay, drain)
	}
}

// checkCommand checks that a2ad has this command.
func checkCommand(t *testing.T, args []string) {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(binary, append(slices.Clone(args), "--help")...).CombinedOutput(); err != nil {
		t.Errorf("a2ad %q: %v\n%s", args, err, out)
	}
}

// checkProxy checks that the proxy listens on the published ports and calls the replicas' ports.
func checkProxy(t *testing.T, c compose) {
	t.Helper()
	cfg := readRepo(t, "deploy", "compose", "haproxy.cfg")
	binds := submatches(`(?m)^\s+bind :(\d+)`, cfg)
	for _, p := range c.Services["proxy"].Ports {
		if to := p[strings.LastIndexByte(p, ':')+1:]; !slices.Contains(binds, to) {
			t.Errorf("port %s of the proxy is published, and it listens on %q", to, binds)
		}
	}
	listens := func(s service, name string) string { return strings.TrimPrefix(s.Environment[name], ":") }
	for _, name := range []string{"a2ad-1", "a2ad-2"} {
		s := c.Services[name]
		got := submatches(`(?m)^\s+server `+name+` `+name+`:(\d+)`, cfg)
		if want := []string{listens(s, "A2AD_LISTEN"), listens(s, "A2AD_GRPC_LISTEN")}; !slices.Equal(got, want) {
			t.Errorf("the proxy calls %s on %q, which listens on %q", name, got, want)
		}
		for _, port := range submatches(`check port (\d+)`, cfg) {
			if port != listens(s, "A2AD_ADMIN_LISTEN") {
				t.Errorf("the proxy asks port %s how %s is", port, name)
			}
		}
	}
	_, all := settings(t)
	idle, err := time.ParseDuration(submatches(`(?m)^\s+timeout server (\S+)`, cfg)[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"A2AD_SSE_PING", "A2AD_BLOCKING_MAX_WAIT"} {
		if pause, err := time.ParseDuration(all[name].Default); err != nil || idle < pause+30*time.Second {
			t.Errorf("the proxy gives up after %s, and %s is %s: %v", idle, name, pause, err)
		}
	}
	if program, err := exec.LookPath("haproxy"); err == nil {
		if out, err := exec.Command(program, "-c", "-f",
			filepath.Join(root, "deploy", "compose", "haproxy.cfg")).CombinedOutput(); err != nil {
			t.Errorf("haproxy refuses its file: %v\n%s", err, out)
		}
	}
}

func submatches(pattern, text string) (list []string) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	return list
}

// Docker validates the file, if Docker with compose is installed.
func TestComposeConfig(t *testing.T) {
	t.Parallel()
	if err := exec.Command("docker", "compose", "version").Run(); err != nil {
		t.Skipf("docker compose does not answer: %v", err)
	}
	cmd := exec.Command("docker", "compose", "--profile", "observability", "config", "--quiet")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The image holds the binary of `make build`, and its labels are correct.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	text := readRepo(t, "Dockerfile")
	for _, part := range []string{"\nFROM scratch\n", "\nUSER 65532:65532\n", "\nENTRYPOINT [\"/a2ad\"]\n",
		"COPY --from=build /src/bin/a2ad /a2ad\n", "ca-certificates.crt"} {
		if !strings.Contains(text, part) {
			t.Errorf("the Dockerfile has no %q", part)
		}
	}
	if !regexp.MustCompile(`(?m)^ +GOFLAGS=-trimpath make build \$\{VERSION:\+VERSION="\$VERSION"\} `+
		`\$\{COMMIT:\+COMMIT="\$COMMIT"\}$`).MatchString(text) || strings.Contains(text, "go build") {
		t.Error("the Dockerfile does not build by make build with VERSION and COMMIT")
	}
	version := submatches(`(?m)^go (\d+\.\d+)`, readRepo(t, "go.mod"))[0]
	if !strings.Contains(text, "\nFROM golang:"+version+" AS build\n") {
		t.Errorf("go.mod is of Go %s, the Dockerfile is not", version)
	}
	dry := exec.Command("make", "--no-print-directory", "--dry-run", "build", "VERSION=7.8.9", "COMMIT=abc")
	dry.Dir = root
	out, err := dry.CombinedOutput()
	for _, want := range []string{"CGO_ENABLED=0 ", "-X main.version=7.8.9 ", "-X main.commit=abc", "-o bin/a2ad "} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("make build does not say %s: %v\n%s", want, err, out)
		}
	}
	for _, line := range submatches(`CMD \[([^\]]+)\]`, text) {
		var args []string
		for _, a := range strings.Split(line, ",") {
			args = append(args, strings.Trim(a, ` "`))
		}
		if args[0] == "/a2ad" {
			args = args[1:]
		}
		checkCommand(t, args)
	}
	env := map[string]string{}
	for _, pair := range submatches(`(A2AD_\w+=\S+)`, text) {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
		if port := value[strings.LastIndexByte(value, ':')+1:]; !regexp.MustCompile(`(?m)^EXPOSE .*\b` + port +
			`\b`).MatchString(text) {
			t.Errorf("port %s is not exposed", port)
		}
	}
	env["A2AD_DATABASE_URL"], env["A2AD_AGENTS"] = "", "/agents"
	checkSettings(t, "Dockerfile", env, true)
}
