package doctor

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/pgcheck"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tasks"
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

func TestForgottenStopsAreNoted(t *testing.T) {
	t.Parallel()
	var f Findings
	checkStops([]tasks.Stop{
		{Kind: tasks.StopAgent, Name: "words", Since: time.Unix(0, 0).UTC(), Actor: "key k1", Reason: "bad release"},
		{Kind: tasks.StopWorker, Name: "w1", Since: time.Unix(0, 0).UTC(), Actor: "key k1"},
	}, &f)
	want := Findings{
		{"stopped", LevelNote, "the agent words has been paused since 1970-01-01T00:00:00Z by key k1: bad release",
			"a2ad agent resume words"},
		{"stopped", LevelNote, "the worker w1 has been drained since 1970-01-01T00:00:00Z by key k1",
			"a2ad worker resume w1"},
	}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Error(diff)
	}
}

func TestFullSlotsForCommandsAreReported(t *testing.T) {
	t.Parallel()
	var f Findings
	checkCommands([]operate.Presence{
		{Name: "r1", Commands: 16, BusyCommands: 16, CommandsWait: time.Minute},
		{Name: "r2", Commands: 16, BusyCommands: 16, CommandsWait: time.Second}, // no time to worry about
		{Name: "r3", Commands: 16, BusyCommands: 16},
		{Name: "r4", Commands: 16, BusyCommands: 16, CommandsWait: time.Minute, Quiet: time.Minute}, // not in touch
	}, &f)
	want := Findings{{"slots", LevelWarning,
		"all 16 slots for commands of the server r1 are in use, and tasks have waited for one for 1m0s",
		"Raise A2AD_COMMANDS if its machine has CPU and memory left, or start more servers."}}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Error(diff)
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
		"standby":  {func(in *pgcheck.Inspection) { in.Standing.Standby = true }, "warning standby"},
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
		"bloat":            {func(in *pgcheck.Inspection) { in.Tables[0].Dead = 100_000 }, "warning dead rows"},
		"broken index":     {func(in *pgcheck.Inspection) { in.BrokenIndex = []string{"i"} }, "fault schema"},
		"one name for two": {func(in *pgcheck.Inspection) { in.Replicas[0].Servers = 2 }, "warning connections"},
		"many replicas": {func(in *pgcheck.Inspection) { in.Replicas = make([]operate.ReplicaSeen, 4) },
			"warning connections"},
		"too many": {func(in *pgcheck.Inspection) { in.Replicas = make([]operate.ReplicaSeen, 50) },
			"fault connections"},
		"role missing": {func(in *pgcheck.Inspection) { in.Roles = in.Roles[1:] }, "fault roles"},
		"archive": {func(in *pgcheck.Inspection) {
			in.Archiver = pgcheck.Archiver{Failing: true, WAL: "w", Failures: 3, Quiet: time.Hour}
		}, "warning archive"},
		"standby missing": {func(in *pgcheck.Inspection) {
			in.Replication = operate.Replication{SyncWanted: 2, Standbys: []operate.Standby{
				{Name: "s2", State: "streaming", Sync: true}, {Name: "s3", State: "catchup", Sync: true}}}
		}, "fault standbys"},
		"standby lags": {func(in *pgcheck.Inspection) {
			in.Replication.Standbys = []operate.Standby{{Name: "s2", State: "streaming", Bytes: 2e9}}
		}, "warning standbys"},
		"standbys": {func(in *pgcheck.Inspection) {
			in.Replication.Standbys = []operate.Standby{{Name: "s2", State: "streaming", Bytes: 2e8}}
		}, "ok standbys"},
		"standbys hidden": {func(in *pgcheck.Inspection) {
			in.Replication = operate.Replication{SyncWanted: 1, Hidden: 1}
		}, "note standbys"},
		"slot keeps WAL": {func(in *pgcheck.Inspection) {
			in.Replication.Slots = []operate.Slot{{Name: "gone", Bytes: 2e10}}
		}, "warning slots"},
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
		Replicas: []operate.ReplicaSeen{{Name: "r1", Connections: 18, Listens: true, Servers: 1}},
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

func TestServersAreChecked(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0).UTC()
	for name, tc := range map[string]struct {
		change func(s []operate.Presence)
		want   string
	}{
		"fine":            {func([]operate.Presence) {}, ""},
		"an old upgrade":  {func(s []operate.Presence) { s[1].Version = "0.3.0" }, LevelNote + " servers"},
		"a young upgrade": {func(s []operate.Presence) { s[1].Version, s[1].StartedAt = "0.3.0", now }, ""},
		"a fast clock":    {func(s []operate.Presence) { s[0].ClockAhead = 3 * time.Second }, LevelWarning + " clock"},
		"a slow clock":    {func(s []operate.Presence) { s[1].ClockAhead = -time.Hour }, LevelWarning + " clock"},
		"a slow network":  {func(s []operate.Presence) { s[1].ClockAhead = -time.Second / 2 }, ""},
	} {
		servers := []operate.Presence{
			{Name: "r1", Version: "0.2.0", StartedAt: now.Add(-48 * time.Hour), SeenAt: now},
			{Name: "r2", Version: "0.2.0", StartedAt: now.Add(-2 * time.Hour), SeenAt: now},
		}
		tc.change(servers)
		var f Findings
		checkVersions(servers, &f)
		checkClocks(servers, &f)
		got := ""
		for _, x := range f {
			got += x.Level + " " + x.Check
		}
		if got != tc.want {
			t.Errorf("%s: %+v, want %q", name, f, tc.want)
		}
	}
}

func TestFullSlotsAreReported(t *testing.T) {
	t.Parallel()
	var f Findings
	checkSlots(nil, &f)
	checkSlots(&operate.Saturation{Slots: 16, Due: 12, Oldest: 3 * time.Minute}, &f)
	want := Findings{{"slots", LevelWarning,
		"all 16 slots of the servers are in use, and tasks wait for one: 12 are due, the oldest for 3m0s",
		"Raise A2AD_WORKERS, or start more servers."}}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Error(diff)
	}
}
