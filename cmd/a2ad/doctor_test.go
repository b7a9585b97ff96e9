package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/term"
)

// levels are the findings of `a2ad doctor -o json`, as "level check", with their texts.
func (i *invocation) levels(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for line := range strings.Lines(i.stdout) {
		var x finding
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if x.Level == levelFault && x.Fix == "" && x.Check != "settings" && x.Check != "database" && x.Check != "admin" {
			t.Errorf("it does not say what to do: %s", line)
		}
		found[x.Level+" "+x.Check] += x.Text + "\n"
	}
	return found
}

func databaseSetting(t *testing.T, url, change string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), change); err != nil {
		t.Fatalf("%s: %v", change, err)
	}
}

// TestDoctorFindsPlantedFaults plants one fault after the other into a good database.
func TestDoctorFindsPlantedFaults(t *testing.T) {
	t.Parallel()
	good := storetest.NewOn(t, storetest.NewServer(t, map[string]string{"archive_mode": "on"})).URL // one that keeps what it is given
	i := invocation{env: []string{"A2AD_DATABASE_URL=" + good}}
	i.run(t, "doctor", "--offline", "-o", "json")
	found := i.levels(t)
	for what := range found {
		if strings.HasPrefix(what, levelFault) || strings.HasPrefix(what, levelWarning) && what != "warning login" {
			t.Errorf("a good database: %s: %s", what, found[what])
		}
	}
	if i.code != exitWarnings || found["warning login"] == "" { // the tests log in as a superuser
		t.Errorf("a good database: exit code %d\n%s%s", i.code, i.stdout, i.stderr)
	}
	const database = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I %s', current_database()); END $$"
	for _, tc := range []struct{ want, plant, mend string }{
		{"fault durability", fmt.Sprintf(database, "SET synchronous_commit = off"), fmt.Sprintf(database, "RESET synchronous_commit")},
		{"fault isolation", fmt.Sprintf(database, "SET default_transaction_isolation = ''serializable''"), fmt.Sprintf(database, "RESET default_transaction_isolation")},
		{"fault row security", fmt.Sprintf(database, "SET row_security = off"), fmt.Sprintf(database, "RESET row_security")},
		{"warning timeouts", fmt.Sprintf(database, "SET idle_session_timeout = ''1min''"), fmt.Sprintf(database, "RESET idle_session_timeout")},
		{"fault connections", fmt.Sprintf(database, "CONNECTION LIMIT 5"), fmt.Sprintf(database, "CONNECTION LIMIT -1")},
		{"fault autovacuum", "ALTER TABLE a2a.task_ready SET (autovacuum_enabled = false)", "ALTER TABLE a2a.task_ready RESET (autovacuum_enabled)"},
		{"fault roles", "ALTER ROLE a2a_app BYPASSRLS", "ALTER ROLE a2a_app NOBYPASSRLS"},
		{"fault rights", "GRANT INSERT ON a2a.tasks TO a2a_app", "REVOKE INSERT ON a2a.tasks FROM a2a_app"},
		{"fault rights", "REVOKE SELECT ON a2a.messages FROM a2a_worker", "GRANT SELECT ON a2a.messages TO a2a_worker"},
		{"fault schema", "UPDATE public.a2a_goose_version SET is_applied = false WHERE version_id > 5", "UPDATE public.a2a_goose_version SET is_applied = true"},
		{"warning schema", "INSERT INTO public.a2a_goose_version (version_id, is_applied) VALUES (99999, true)", "DELETE FROM public.a2a_goose_version WHERE version_id = 99999"},
		{"fault schema", "UPDATE a2a.schema_floor SET version = 99999", "UPDATE a2a.schema_floor SET version = 0"},
		{"note timeouts", fmt.Sprintf(database, "SET idle_in_transaction_session_timeout = 0"), fmt.Sprintf(database, "RESET idle_in_transaction_session_timeout")},
		{"fault read-only", fmt.Sprintf(database, "SET default_transaction_read_only = on"), "BEGIN READ WRITE; " + fmt.Sprintf(database, "RESET default_transaction_read_only") + "; COMMIT"},
	} {
		databaseSetting(t, good, tc.plant)
		i.run(t, "doctor", "--offline", "-o", "json")
		if i.levels(t)[tc.want] == "" || strings.HasPrefix(tc.want, levelFault) != (i.code == exitFaults) {
			t.Errorf("%s: exit code %d, no %s:\n%s", tc.plant, i.code, tc.want, i.stdout)
		}
		if strings.HasSuffix(tc.want, "connections") && !strings.Contains(i.stdout, "CONNECTION LIMIT -1") {
			t.Errorf("%s: how it is mended is not said:\n%s", tc.plant, i.stdout)
		}
		databaseSetting(t, good, tc.mend)
	}
	// A login of its own, which is no superuser and no member of anything.
	databaseSetting(t, good, "CREATE ROLE plain LOGIN PASSWORD 'plain'")
	plain := strings.Replace(good, "://postgres", "://plain:plain", 1)
	if at := strings.Index(good, "@"); at > 0 {
		plain = "postgres://plain:plain" + good[at:]
	}
	i.env = []string{"A2AD_DATABASE_URL=" + plain}
	i.run(t, "doctor", "--offline", "-o", "json")
	if found := i.levels(t); i.code != exitFaults || !strings.Contains(found["fault roles"], "cannot take on a2a_app") {
		t.Errorf("a login without rights: exit code %d\n%s", i.code, i.stdout)
	}
	databaseSetting(t, good, "GRANT a2a_app, a2a_worker, pg_read_all_stats TO plain")
	if i.run(t, "doctor", "--offline"); i.code != exitOK || !strings.HasSuffix(i.stdout, "0 faults, 0 warnings\n") {
		t.Errorf("a good login: exit code %d\n%s", i.code, i.stdout)
	}
	if i.run(t, "doctor", "--offline", "--quiet"); i.stdout != "0 faults, 0 warnings\n" {
		t.Errorf("quiet: %s", i.stdout)
	}
	for _, change := range []string{"ALTER SYSTEM SET archive_command = 'false'", "SELECT pg_reload_conf()", "SELECT pg_switch_wal()"} {
		databaseSetting(t, good, change)
	}
	for began := time.Now(); ; { // the archiver takes its time
		i.run(t, "doctor", "--offline", "-o", "json")
		if i.levels(t)["warning archive"] != "" {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("WAL is not archived, and the doctor says\n%s", i.stdout)
		}
	}
}

func TestDoctorWithoutADatabase(t *testing.T) {
	t.Parallel()
	i := invocation{env: []string{"A2AD_DATABASE_URL=postgres://ann:secret@127.0.0.1:1/x"}}
	i.run(t, "doctor", "--offline", "-o", "json")
	if found := i.levels(t); i.code != exitFaults || found["fault database"] == "" || strings.Contains(i.stdout, "secret") {
		t.Errorf("no server: exit code %d\n%s", i.code, i.stdout)
	}
	i.env = []string{"A2AD_DATABASE_URL=" + storetest.NewEmpty(t).URL}
	i.run(t, "doctor", "--offline", "-o", "json")
	if found := i.levels(t); i.code != exitFaults || !strings.Contains(found["fault schema"], "there is no schema") {
		t.Errorf("no schema: exit code %d\n%s", i.code, i.stdout)
	}
	i.env = []string{"A2AD_LEASE_TTL=3", "A2AD_DATA_DIR=" + filepath.Join(t.TempDir(), "none")}
	i.run(t, "doctor", "--offline", "-o", "json")
	if found := i.levels(t); i.code != exitFaults || !strings.Contains(found["fault settings"], "A2AD_LEASE_TTL") || !strings.Contains(found["fault database"], "there is no database") {
		t.Errorf("faulty settings: exit code %d\n%s", i.code, i.stdout)
	}
}

// TestDoctorLooksForTheServer asks a server that is well, one that is not, and none.
func TestDoctorLooksForTheServer(t *testing.T) {
	t.Parallel()
	ready, name := true, "words"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == cardPath:
			fmt.Fprintf(w, `{"name": %q, "url": "http://%s/"}`, name, r.Host)
		case r.URL.Path == "/readyz" && ready:
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer srv.Close()
	at := strings.TrimPrefix(srv.URL, "http://")
	i := invocation{env: []string{"A2AD_DATABASE_URL=postgres://127.0.0.1:1/x", "A2AD_LISTEN=" + at, "A2AD_ADMIN_LISTEN=127.0.0.1:" + at[strings.LastIndex(at, ":")+1:], "A2AD_PUBLIC_URL=" + srv.URL}}
	look := func() map[string]string {
		i.run(t, "doctor", "-o", "json")
		return i.levels(t)
	}
	i.env[2] = "A2AD_ADMIN_LISTEN=localhost:" + at[strings.LastIndex(at, ":")+1:] // the same port under another name
	if found := look(); found["ok api"] == "" || found["ok admin"] == "" || found["ok public url"] == "" {
		t.Errorf("a good server: %v", found)
	}
	ready, name = false, ""
	if found := look(); found["fault api"] == "" || found["fault admin"] == "" || found["fault public url"] == "" {
		t.Errorf("a bad server: %v", found)
	}
	i.env[3] = "A2AD_PUBLIC_URL=http://a2ad.invalid"
	srv.Close()
	found := look()
	if found["warning api"] == "" || found["warning admin"] == "" || found["fault public url"] == "" || !strings.Contains(found["warning public url"], "not https") {
		t.Errorf("no server: %v", found)
	}
	i.env[1], i.env[3] = "A2AD_LISTEN=0.0.0.0:1", "A2AD_PUBLIC_URL="
	if found := look(); found["warning public url"] == "" {
		t.Errorf("no public URL: %v", found)
	}
}

func TestDoctorChecksAgentFilesAndKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bad.yaml"), []byte("name: bad/name\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	i := invocation{env: []string{"A2AD_DATABASE_URL=postgres://127.0.0.1:1/x", "A2AD_AGENTS=" + dir}}
	i.run(t, "doctor", "--offline", "-o", "json")
	if found := i.levels(t); !strings.Contains(found["fault agents"], "bad.yaml") {
		t.Errorf("%s", i.stdout)
	}
	ring := func(text string) seal.Ring {
		r, err := seal.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first, second, other := seal.Generate("k1"), seal.Generate("k2"), seal.Generate("k1")
	sample, err := ring(first).Seal([]byte("x"), seal.Place{Table: "push_configs", Row: pushID, Column: "token"})
	if err != nil {
		t.Fatal(err)
	}
	sealed := []store.Sealed{{KeyID: "k1", Secrets: 3, Place: "token", Name: pushID, Sample: sample}}
	for name, tc := range map[string]struct {
		ring   seal.Ring
		sealed []store.Sealed
		want   string
	}{
		"fine": {ring(first), sealed, levelOK}, "older": {ring(second + "," + first), sealed, levelNote}, "gone": {ring(second), sealed, levelFault},
		"another under its id": {ring(other), sealed, levelFault}, "none": {seal.Ring{}, sealed, levelFault}, "none and nothing sealed": {seal.Ring{}, nil, levelNote},
	} {
		var f findings
		new(DoctorCmd).judgeSealed(tc.ring, tc.sealed, &f)
		if len(f) != 1 || f[0].Level != tc.want {
			t.Errorf("%s: %+v", name, f)
		}
	}
	// The database of dev goes with the keys of dev.
	if _, err := devKeys(dir); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		url  string
		dev  bool
		keys int
	}{{"", false, 1}, {"postgres://db/a2ad", false, 0}, {"postgres://db/a2ad", true, 1}} {
		c := DoctorCmd{Dev: tc.dev}
		c.DataDir, c.DatabaseURL = dir, config.NewSecret(tc.url)
		if got, err := c.ring(); err != nil || len(got.IDs()) != tc.keys {
			t.Errorf("%+v: keys %v, %v", tc, got.IDs(), err)
		}
	}
}

// TestDoctorJudges what no test can plant: a pooler, clocks, old sessions.
func TestDoctorJudges(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*store.Inspection)
		want   string
	}{
		"old version":   {func(in *store.Inspection) { in.Version = 140000 }, "fault version"},
		"no fsync":      {func(in *store.Inspection) { in.Settings["fsync"] = store.Setting{Value: "off"} }, "fault durability"},
		"no vacuum":     {func(in *store.Inspection) { in.Settings["autovacuum"] = store.Setting{Value: "off"} }, "fault autovacuum"},
		"standby":       {func(in *store.Inspection) { in.Standby = true }, "fault standby"},
		"encoding":      {func(in *store.Inspection) { in.Encoding = "LATIN1" }, "fault encoding"},
		"collation":     {func(in *store.Inspection) { in.Collation = store.Collation{Name: "C", Made: "1", Actual: "2"} }, "warning collation"},
		"clock":         {func(in *store.Inspection) { in.ClockAhead = -5 * time.Second }, "warning clock"},
		"clock far off": {func(in *store.Inspection) { in.ClockAhead = time.Hour }, "fault clock"},
		"slow network":  {func(in *store.Inspection) { in.ClockAhead, in.RoundTrip = 2*time.Second, 3*time.Second }, "ok clock"},
		"shared":        {func(in *store.Inspection) { in.Pooler.Lends = true }, "fault pooler"},
		"role lost":     {func(in *store.Inspection) { in.Pooler.LosesRole = true }, "fault pooler"},
		"wakes lost":    {func(in *store.Inspection) { in.Pooler.LosesWakes = true }, "fault pooler"},
		"wraparound":    {func(in *store.Inspection) { in.XIDAge = 1_500_000_000 }, "warning autovacuum"},
		"idle":          {func(in *store.Inspection) { in.IdleInTx = []store.OpenTransaction{{PID: 1, For: time.Minute}} }, "warning sessions"},
		"old":           {func(in *store.Inspection) { in.Transactions = []store.OpenTransaction{{PID: 1, For: time.Hour}} }, "warning sessions"},
		"slot": {func(in *store.Inspection) {
			in.Holders = []store.XminHolder{{Kind: "replication slot", Name: "s", Age: 1e6}}
		}, "warning dead rows"},
		"bloat":         {func(in *store.Inspection) { in.Tables[0].Dead = 100_000 }, "warning dead rows"},
		"broken index":  {func(in *store.Inspection) { in.BrokenIndex = []string{"i"} }, "fault schema"},
		"many replicas": {func(in *store.Inspection) { in.Replicas = make([]store.ReplicaSeen, 4) }, "warning connections"},
		"too many":      {func(in *store.Inspection) { in.Replicas = make([]store.ReplicaSeen, 50) }, "fault connections"},
		"role missing":  {func(in *store.Inspection) { in.Roles = in.Roles[1:] }, "fault roles"},
		"archive": {func(in *store.Inspection) {
			in.Archiver = store.Archiver{Failing: true, WAL: "w", Failures: 3, Quiet: time.Hour}
		}, "warning archive"},
		"local standbys": {func(in *store.Inspection) {
			in.Settings["synchronous_commit"], in.Settings["synchronous_standby_names"] = store.Setting{Value: "local"}, store.Setting{Value: "s"}
		}, "warning durability"},
	} {
		c := &DoctorCmd{Config: config.Config{Pool: config.Pool{DBPool: 16}}}
		in := goodInspection()
		var f findings
		c.judge(in, &f)
		for _, x := range f {
			if x.Level == levelWarning || x.Level == levelFault {
				t.Fatalf("of a good one: %+v", x)
			}
		}
		tc.change(in)
		f = nil
		c.judge(in, &f)
		if !slices.ContainsFunc(f, func(x finding) bool { return x.Level+" "+x.Check == tc.want && x.Text != "" }) {
			t.Errorf("%s: no %s in %+v", name, tc.want, f)
		}
	}
}

func goodInspection() *store.Inspection {
	in := &store.Inspection{
		Version: 160004, VersionText: "16.4", Database: "a2ad", Login: "a2ad", SeesAll: true, Encoding: "UTF8", LoginLimit: -1, DatabaseLimit: -1,
		RoundTrip: 1_200_000, Collation: store.Collation{Name: "C"}, Settings: map[string]store.Setting{}, CannotBe: map[string]error{}, Schema: store.SchemaVersion(), Connections: 19,
		Tables:   []store.TableRights{{Schema: "a2a", Name: "task_ready", Owner: "a2a_owner", Secured: true, WorkerReads: true, WorkerAdds: true}},
		Replicas: []store.ReplicaSeen{{Name: "r1", Connections: 18, Listens: true}},
	}
	for name, v := range map[string]string{
		"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "autovacuum": "on", "track_counts": "on", "default_transaction_isolation": "read committed",
		"default_transaction_read_only": "off", "row_security": "on", "max_connections": "100", "superuser_reserved_connections": "3", "idle_in_transaction_session_timeout": "60000",
	} {
		in.Settings[name] = store.Setting{Value: v, Source: "default"}
	}
	for _, name := range store.OurRoles {
		in.Roles = append(in.Roles, store.Role{Name: name, Member: true, BypassRLS: name == "a2a_worker"})
	}
	return in
}

// TestDoctorScreens are what a person sees of a doctor who has found much, and colours.
func TestDoctorScreens(t *testing.T) {
	t.Parallel()
	in := goodInspection()
	in.Login, in.Super, in.Settings["synchronous_commit"] = "postgres", true, store.Setting{Value: "off", Source: "database"}
	in.IdleInTx = []store.OpenTransaction{{PID: 4711, Login: "bob", Application: "psql", For: 7 * time.Minute}}
	for _, colour := range []bool{false, true} {
		c := &DoctorCmd{Config: config.Config{Pool: config.Pool{DBPool: 16}, Database: config.Database{DatabaseURL: config.NewSecret("postgres://h/d")}}}
		var f findings
		c.judge(in, &f)
		var out strings.Builder
		code := finish(t.Context(), &App{}, c.show(&App{Console: term.Console{Stdout: &out, Color: colour}}, f))
		text := strings.Replace(out.String(), fmt.Sprintf("version %d\n", in.Schema), "version N\n", 1)
		golden(t, map[bool]string{false: "doctor", true: "doctor-colours"}[colour], fmt.Sprintf("%s[exit code %d]\n", text, code))
	}
}
