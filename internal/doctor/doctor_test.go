package doctor

import (
	"slices"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/pgcheck"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/operate"
)

func TestSecretsNeedTheirKeys(t *testing.T) {
	t.Parallel()
	const webhook = "019a9d40-0000-7000-8000-0000000000a1"
	ring := func(text string) seal.Ring {
		r, err := seal.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first, second, other := seal.Generate("k1"), seal.Generate("k2"), seal.Generate("k1")
	sample, err := ring(first).Seal([]byte("x"), seal.Cell{Table: "push_configs", Row: webhook, Column: "token"})
	if err != nil {
		t.Fatal(err)
	}
	sealed := []access.KeyUsage{{KeyID: "k1", Secrets: 3, Place: "token", Name: webhook, Sample: sample}}
	for name, tc := range map[string]struct {
		ring   seal.Ring
		sealed []access.KeyUsage
		want   string
	}{
		"fine":                       {ring(first), sealed, LevelOK},
		"older":                      {ring(second + "," + first), sealed, LevelNote},
		"gone":                       {ring(second), sealed, LevelFault},
		"another under its id":       {ring(other), sealed, LevelFault},
		"none":                       {seal.Ring{}, sealed, LevelFault},
		"none and nothing encrypted": {seal.Ring{}, nil, LevelNote},
	} {
		var f Findings
		checkSecrets(tc.ring, tc.sealed, &f)
		if len(f) != 1 || f[0].Level != tc.want {
			t.Errorf("%s: %+v", name, f)
		}
	}
	// The database of dev goes with the keys of dev.
	dir := t.TempDir()
	if _, err := config.DevKeys(dir); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		url  string
		dev  bool
		keys int
	}{{"", false, 1}, {"postgres://db/a2ad", false, 0}, {"postgres://db/a2ad", true, 1}} {
		d := Doctor{Dev: tc.dev}
		d.Config.DataDir, d.Config.DatabaseURL = dir, config.NewSecret(tc.url)
		if got, err := d.ring(); err != nil || len(got.IDs()) != tc.keys {
			t.Errorf("%+v: keys %v, %v", tc, got.IDs(), err)
		}
	}
}

func TestUnreachableAgentsAreReported(t *testing.T) {
	t.Parallel()
	var f Findings
	checkOutages([]operate.Outage{{Agent: "words", Since: time.Unix(0, 0).UTC(), Reason: "connection refused"}}, &f)
	checkOutages(nil, &f)
	const want = "the agent words has been unreachable since 1970-01-01T00:00:00Z: connection refused"
	if len(f) != 2 || f[0].Level != LevelWarning || f[0].Text != want || f[1].Level != LevelOK {
		t.Errorf("%+v, want a warning %q and an ok", f, want)
	}
}

// TestInspect covers what no test can plant: a pooler, clocks, old sessions.
func TestInspect(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*pgcheck.Inspection)
		want   string
	}{
		"old version": {func(in *pgcheck.Inspection) { in.Version = 140000 }, "fault version"},
		"no fsync": {func(in *pgcheck.Inspection) { in.Settings["fsync"] = pgcheck.Setting{Value: "off"} },
			"fault durability"},
		"no vacuum": {func(in *pgcheck.Inspection) { in.Settings["autovacuum"] = pgcheck.Setting{Value: "off"} },
			"fault autovacuum"},
		"standby":  {func(in *pgcheck.Inspection) { in.Standby = true }, "fault standby"},
		"encoding": {func(in *pgcheck.Inspection) { in.Encoding = "LATIN1" }, "fault encoding"},
		"collation": {func(in *pgcheck.Inspection) {
			in.Collation = pgcheck.Collation{Name: "C", Made: "1", Actual: "2"}
		}, "warning collation"},
		"clock":         {func(in *pgcheck.Inspection) { in.ClockAhead = -5 * time.Second }, "warning clock"},
		"clock far off": {func(in *pgcheck.Inspection) { in.ClockAhead = time.Hour }, "fault clock"},
		"slow network": {func(in *pgcheck.Inspection) { in.ClockAhead, in.RoundTrip = 2*time.Second, 3*time.Second },
			"ok clock"},
		"shared":     {func(in *pgcheck.Inspection) { in.Pooler.Lends = true }, "fault pooler"},
		"role lost":  {func(in *pgcheck.Inspection) { in.Pooler.LosesRole = true }, "fault pooler"},
		"wakes lost": {func(in *pgcheck.Inspection) { in.Pooler.LosesWakes = true }, "fault pooler"},
		"wraparound": {func(in *pgcheck.Inspection) { in.XIDAge = 1_500_000_000 }, "warning autovacuum"},
		"idle": {func(in *pgcheck.Inspection) {
			in.IdleInTx = []operate.OpenTransaction{{PID: 1, For: time.Minute}}
		}, "warning sessions"},
		"old": {func(in *pgcheck.Inspection) {
			in.Transactions = []operate.OpenTransaction{{PID: 1, For: time.Hour}}
		}, "warning sessions"},
		"slot": {func(in *pgcheck.Inspection) {
			in.Holders = []pgcheck.XminHolder{{Kind: "replication slot", Name: "s", Age: 1e6}}
		}, "warning dead rows"},
		"bloat":        {func(in *pgcheck.Inspection) { in.Tables[0].Dead = 100_000 }, "warning dead rows"},
		"broken index": {func(in *pgcheck.Inspection) { in.BrokenIndex = []string{"i"} }, "fault schema"},
		"many replicas": {func(in *pgcheck.Inspection) { in.Replicas = make([]operate.ReplicaSeen, 4) },
			"warning connections"},
		"too many": {func(in *pgcheck.Inspection) { in.Replicas = make([]operate.ReplicaSeen, 50) },
			"fault connections"},
		"role missing": {func(in *pgcheck.Inspection) { in.Roles = in.Roles[1:] }, "fault roles"},
		"archive": {func(in *pgcheck.Inspection) {
			in.Archiver = pgcheck.Archiver{Failing: true, WAL: "w", Failures: 3, Quiet: time.Hour}
		}, "warning archive"},
		"local standbys": {func(in *pgcheck.Inspection) {
			in.Settings["synchronous_commit"] = pgcheck.Setting{Value: "local"}
			in.Settings["synchronous_standby_names"] = pgcheck.Setting{Value: "s"}
		}, "warning durability"},
	} {
		d := &Doctor{Config: config.Config{Pool: config.Pool{DBPool: 16}}}
		in := goodInspection()
		d.inspect(in)
		for _, x := range d.Findings {
			if x.Level == LevelWarning || x.Level == LevelFault {
				t.Fatalf("a good database: %+v", x)
			}
		}
		tc.change(in)
		d.Findings = nil
		d.inspect(in)
		found := func(x Finding) bool { return x.Level+" "+x.Check == tc.want && x.Text != "" }
		if !slices.ContainsFunc(d.Findings, found) {
			t.Errorf("%s: no %s in %+v", name, tc.want, d.Findings)
		}
	}
}

func goodInspection() *pgcheck.Inspection {
	in := &pgcheck.Inspection{
		Version: 160004, VersionText: "16.4", Encoding: "UTF8", Collation: pgcheck.Collation{Name: "C"},
		Database: "a2ad", Login: "a2ad", SeesAll: true, CannotBe: map[string]error{},
		LoginLimit: -1, DatabaseLimit: -1, Connections: 19, RoundTrip: 1_200_000,
		Settings: map[string]pgcheck.Setting{}, Schema: operate.SchemaVersion(),
		Tables: []pgcheck.TableRights{{
			Schema: "a2a", Name: "task_ready", Owner: "a2a_owner", Secured: true,
			WorkerReads: true, WorkerAdds: true,
		}},
		Replicas: []operate.ReplicaSeen{{Name: "r1", Connections: 18, Listens: true}},
	}
	for name, v := range map[string]string{
		"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "autovacuum": "on", "track_counts": "on",
		"default_transaction_isolation": "read committed", "default_transaction_read_only": "off",
		"row_security": "on", "max_connections": "100", "superuser_reserved_connections": "3",
		"idle_in_transaction_session_timeout": "60000",
	} {
		in.Settings[name] = pgcheck.Setting{Value: v, Source: "default"}
	}
	for _, name := range pgcheck.OurRoles {
		in.Roles = append(in.Roles, pgcheck.Role{Name: name, Member: true, BypassRLS: name == "a2a_worker"})
	}
	return in
}
