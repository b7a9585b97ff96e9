package doctest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// deploy/compose/ha.yml is as careful as docker-compose.yml, and its nodes have the same settings as the one PostgreSQL
// there. internal/dockertest runs it.
func TestHighAvailabilityFile(t *testing.T) {
	t.Parallel()
	text := readRepo(t, "deploy", "compose", "ha.yml")
	var c compose
	text = strings.NewReplacer("!reset ", "", "!override", "").Replace(text) // tags that only Compose knows
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	nodes := 0
	for name, s := range c.Services {
		if !strings.HasPrefix(name, "etcd-") && !strings.HasPrefix(name, "postgres-") {
			continue
		}
		nodes++
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || len(s.Ports) > 0 ||
			!slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) || len(s.Healthcheck.Test) == 0 ||
			s.Restart != "unless-stopped" {
			t.Errorf("%s: read_only %t, cap_drop %q, security_opt %q, ports %q, health %q, restart %q", name,
				s.ReadOnly, s.CapDrop, s.SecurityOpt, s.Ports, s.Healthcheck.Test, s.Restart)
		}
		for _, v := range s.Volumes {
			source, _, _ := strings.Cut(v, ":")
			_, here := c.Volumes[source]
			if _, there := readCompose(t).Volumes[source]; !here && !there {
				t.Errorf("%s mounts the undeclared volume %s", name, source)
			}
		}
	}
	if nodes != 6 {
		t.Errorf("the file has %d nodes, want 6", nodes)
	}
	hosts := c.Services["secrets"].Environment["A2AD_DATABASE_HOSTS"]
	for i := range 3 {
		if !strings.Contains(hosts, fmt.Sprintf("postgres-%d:5432", i+1)) {
			t.Errorf("the database URL is for %s, want all three nodes", hosts)
		}
	}

	var patroni struct {
		Bootstrap struct {
			DCS struct {
				TTL      int                                 `yaml:"ttl"`
				LoopWait int                                 `yaml:"loop_wait"`
				Retry    int                                 `yaml:"retry_timeout"`
				Mode     string                              `yaml:"synchronous_mode"`
				Strict   bool                                `yaml:"synchronous_mode_strict"`
				Postgres struct{ Parameters map[string]any } `yaml:"postgresql"`
			} `yaml:"dcs"`
		}
	}
	config := strings.ReplaceAll(readRepo(t, "deploy", "compose", "patroni", "patroni.yml"), "$", "x")
	if err := yaml.Unmarshal([]byte(config), &patroni); err != nil {
		t.Fatal(err)
	}
	dcs := patroni.Bootstrap.DCS
	if dcs.Mode != "quorum" || !dcs.Strict || dcs.TTL < dcs.LoopWait+2*dcs.Retry || dcs.TTL == 0 {
		t.Errorf("the settings of Patroni are not those of decision 84: %+v", dcs)
	}
	want := map[string]string{}
	for _, arg := range readCompose(t).Services["postgres"].Command {
		if name, value, ok := strings.Cut(arg, "="); ok {
			want[name] = value
		}
	}
	for name, value := range want {
		if got := fmt.Sprint(dcs.Postgres.Parameters[name]); got != value {
			t.Errorf("%s is %s on the nodes, and %s in docker-compose.yml", name, got, value)
		}
	}
	if len(dcs.Postgres.Parameters) != len(want) {
		t.Errorf("the nodes have the settings %v, want %v", dcs.Postgres.Parameters, want)
	}
}
