package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// loadSchedule stores a schedule, as a server that loads its file.
func (w *world) loadSchedule(change ...func(*a2a.Schedule)) {
	w.Helper()
	s := a2a.Schedule{
		Name: "daily", Cron: "0 8 * * *", Timezone: "Europe/Berlin", Tenant: "acme", Owner: "reports",
		CatchUp: time.Hour,
		Message: a2a.Message{Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "x"}}},
	}
	for _, c := range change {
		c(&s)
	}
	if _, err := w.store.Schedules.Load(w.Context(), map[string][]a2a.Schedule{"words": {s}}); err != nil {
		w.Fatal(err)
	}
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if i := w.run(exitFailure, "schedule", "run", "words/daily"); i.stderr !=
		"a2ad: schedule words/daily not found; no loaded agent file has schedules\n" {
		t.Errorf("%s", i.stderr)
	}
	w.loadSchedule()
	before := time.Now()
	list := rows[scheduleRow](t, w.run(exitOK, "schedule", "ls", "-o", "json"))
	if len(list) != 1 || list[0].State != "active" || len(list[0].Next) != admin.Upcoming {
		t.Fatalf("%+v", list)
	}
	for i, next := range list[0].Next {
		if !next.After(before) || i > 0 && next.Sub(list[0].Next[i-1]) < 23*time.Hour {
			t.Errorf("tick %d is at %v", i, next)
		}
	}
	for _, tt := range []struct{ command, want, state string }{
		{"pause", "words/daily is paused\n", "paused"},
		{"pause", "words/daily is already paused\n", "paused"},
		{"resume", "words/daily is resumed, next tick …\n", "active"},
		{"resume", "words/daily is not paused, next tick …\n", "active"},
	} {
		i := w.run(exitOK, "schedule", tt.command, "words/daily")
		if got := times.ReplaceAllString(i.stdout, "…"); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.command, got, tt.want)
		}
		if r := rows[scheduleRow](t, w.run(exitOK, "schedule", "ls", "-o", "json")); r[0].State != tt.state {
			t.Errorf("after %s the state is %s", tt.command, r[0].State)
		}
	}
	made := rows[changedSchedule](t, w.run(exitOK, "schedule", "run", "words/daily", "-o", "json"))
	if len(made) != 1 || made[0].Name != "daily" {
		t.Fatalf("%+v", made)
	}
	task := rows[taskRow](t, w.run(exitOK, "task", "ls", "-o", "json"))
	if len(task) != 1 || task[0].ID != made[0].TaskID || task[0].Owner != "reports" || task[0].Agent != "words" {
		t.Errorf("the task is %+v, want %s", task, made[0].TaskID)
	}
	if i := w.run(exitFailure, "schedule", "pause", "words/weekly", "words"); i.stderr !=
		"a2ad: schedule words/weekly not found; schedules here: words/daily\n"+
			"a2ad: schedule words: write AGENT/NAME\n" {
		t.Errorf("%s", i.stderr)
	}
	if i := w.run(exitOK, "schedule", "ticks", "words/daily", "-o", "json"); i.stdout != "" {
		t.Errorf("a run by an operator is a tick: %s", i.stdout)
	}
	w.loadSchedule(func(s *a2a.Schedule) { s.Paused = true })
	const still = "words/daily is paused in its agent file\n"
	if i := w.run(exitOK, "schedule", "resume", "words/daily"); i.stdout != still {
		t.Errorf("%s", i.stdout)
	}
	w.loadSchedule(func(s *a2a.Schedule) { s.Name = "other" })
	if i := w.run(exitOK, "schedule", "ls", "--agent", "words"); strings.Contains(i.stdout, "words/daily") {
		t.Errorf("%s", i.stdout)
	}
	if i := w.run(exitOK, "schedule", "ls", "--all"); !strings.Contains(i.stdout, "removed") {
		t.Errorf("%s", i.stdout)
	}
	if i := w.run(exitFailure, "schedule", "run", "words/daily"); !strings.Contains(i.stderr, "no longer has it") {
		t.Errorf("%s", i.stderr)
	}
}

// Ticks are listed with their tasks, the newest first.
func TestScheduleTicks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.loadSchedule(func(s *a2a.Schedule) { s.Cron = storetest.FarCron() }) // no tick of its own comes between
	databaseSetting(t, strings.TrimPrefix(w.env[0], "A2AD_DATABASE_URL="), `UPDATE a2a.schedules
		SET next_tick = clock_timestamp() - interval '1 min', next_at = clock_timestamp() - interval '1 min'`)
	list, err := w.store.Schedules.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ticks, err := w.store.Schedules.Act(t.Context(), &list[0], 0)
	if err != nil || len(ticks) != 1 {
		t.Fatalf("%v, %v", ticks, err)
	}
	found := rows[tickRow](t, w.run(exitOK, "schedule", "ticks", "words/daily", "-o", "json"))
	if len(found) != 1 || found[0].TaskID != ticks[0].Task.String() || found[0].Outcome != "started" {
		t.Errorf("%+v, want %+v", found, ticks)
	}
	if i := w.run(exitOK, "schedule", "ls"); !strings.Contains(i.stdout, ticks[0].Task.String()) {
		t.Errorf("schedule ls does not show the last task:\n%s", i.stdout)
	}
}

func someSchedules() []scheduleRow {
	next := time.Date(2026, 1, 3, 7, 0, 0, 0, time.UTC)
	return []scheduleRow{
		{Agent: "words", Name: "morning", State: "active", Cron: "0 8 * * 1-5", Timezone: "Europe/Berlin",
			Tenant: "acme", Owner: "reports", Overlap: "skip",
			Next: []time.Time{next, next.Add(24 * time.Hour)}, NextAt: &next,
			LastTick: &someTime, LastTask: taskID, LoadedAt: someTime, LoadedBy: "replica-1"},
		{Agent: "words", Name: "old", State: "paused", Cron: "@hourly", Timezone: "UTC", Tenant: "default",
			Owner: "ops", Overlap: "allow", PausedAt: &someTime, LoadedAt: someTime, LoadedBy: "replica-1"},
	}
}

// agent check shows the line of a schedule that can never work.
func TestAgentCheckShowsFaultsOfSchedules(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.yaml")
	text := "name: a\ndescription: d\nexecutor: {echo: {}}\nschedules:\n" +
		"  - {name: s, cron: 0 25 * * *, timezone: Europe/Atlantis, owner: o, message: m}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var i invocation
	i.run(t, "agent", "check", path)
	for _, want := range []string{
		`:5: fault: cron: "0 25 * * *": end of range (25) above maximum (23): "25"`,
		`:5: fault: timezone: "Europe/Atlantis" is unknown; write a name like Europe/Berlin or UTC`,
	} {
		if i.code != exitFailure || !strings.Contains(i.stdout, path+want+"\n") {
			t.Errorf("exit code %d, and this has no %q:\n%s", i.code, want, i.stdout)
		}
	}
}
