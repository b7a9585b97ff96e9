package admin_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
)

// loadSchedules stores a schedule of each tenant, as a server that loads agent files.
func (f *fixture) loadSchedules() {
	f.T.Helper()
	of := func(tenant, name string) a2a.Schedule {
		return a2a.Schedule{
			Name: name, Cron: "0 8 * * *", Timezone: "UTC", Tenant: tenant, Owner: "reports", CatchUp: time.Hour,
			Message: a2a.Message{Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "x"}}},
		}
	}
	files := map[string][]a2a.Schedule{"words": {of("acme", "daily")}, "other": {of("corp", "nightly")}}
	if _, err := f.Schedules.Load(f.T.Context(), files); err != nil {
		f.T.Fatal(err)
	}
}

func TestSchedulesAreOfTheCallersTenantAndAgents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.loadSchedules()
	for caller, want := range map[string][]string{
		"reader": {"other/nightly", "words/daily"}, "acme": {"words/daily"}, "one": {"other/nightly"},
	} {
		var got []string
		for _, s := range read[admin.ScheduleList](f, f.get(caller, "/schedules")).Schedules {
			got = append(got, s.Agent+"/"+s.Name)
			if s.State != "active" || len(s.Next) != admin.Upcoming {
				t.Errorf("%+v", s)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s lists %q, want %q", caller, got, want)
		}
	}
	there, missing := f.get("acme", "/schedules/other/nightly/ticks"), f.get("acme", "/schedules/other/none/ticks")
	if there.status != http.StatusNotFound || there.body != missing.body {
		t.Errorf("a schedule of another tenant: %d %s; an unknown one: %s", there.status, there.body, missing.body)
	}
	if got := f.get("one", "/schedules/words/daily/ticks"); got.status != http.StatusNotFound {
		t.Errorf("a schedule of another agent: %d %s", got.status, got.body)
	}
	if got := f.get("acme", "/schedules/words/daily/ticks"); got.status != http.StatusOK {
		t.Errorf("its own schedule: %d %s", got.status, got.body)
	}
}

func TestSchedulesArePausedResumedAndRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.loadSchedules()
	const path = "/schedules/words/daily/"
	for _, step := range []struct {
		action          string
		paused, changed bool
	}{{"pause", true, true}, {"pause", true, false}, {"resume", false, true}, {"resume", false, false}} {
		got := read[admin.PausedSchedule](f, f.post("both", path+step.action, `{"reason":"holidays"}`))
		if got.Paused != step.paused || got.Changed != step.changed || (got.NextTick == nil) != step.paused {
			t.Errorf("%s: %+v, want %+v", step.action, got, step)
		}
	}
	made := read[admin.ScheduledTask](f, f.post("both", path+"run", `{"reason":"asked to"}`))
	if task := read[admin.TaskDetail](f, f.get("acme", "/tasks/"+made.TaskID)); task.Agent != "words" {
		t.Errorf("the task is %+v", task.Task)
	}
	want := []string{
		`key k1 schedule.pause acme/reports {"agent":"words","reason":"holidays","schedule":"daily"}`,
		`key k1 schedule.resume acme/reports {"agent":"words","reason":"holidays","schedule":"daily"}`,
		`key k1 schedule.run acme/reports {"agent":"words","reason":"asked to","schedule":"daily"}`,
	}
	if got := f.Actions(); !slices.Equal(got, want) {
		t.Errorf("the audit log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if _, err := f.Schedules.Load(t.Context(), map[string][]a2a.Schedule{"words": nil}); err != nil {
		t.Fatal(err)
	}
	if got := f.post("both", path+"run", `{}`); got.status != http.StatusConflict || got.reason() != "REMOVED" {
		t.Errorf("a removed schedule: %d %s", got.status, got.body)
	}
	long := `{"reason":"` + strings.Repeat("x", 1001) + `"}`
	if got := f.post("both", path+"run", long); got.status != http.StatusBadRequest {
		t.Errorf("a long reason: %d %s", got.status, got.body)
	}
}

func TestStatsAndUsage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("acme", "ann", "words", "x")
	s := read[admin.Stats](f, f.get("reader", "/stats"))
	if len(s.Tasks) != 1 || s.Tasks[0].Agent != "words" || len(s.Queues) != 1 || s.Database.Bytes == 0 {
		t.Errorf("%+v", s)
	}
	if u := read[admin.UsageList](f, f.get("reader", "/usage?by=tenant&by=day")); len(u.Usage) != 0 || u.More {
		t.Errorf("%+v", u)
	}
	if got := f.get("reader", "/usage?by=color"); got.status != http.StatusBadRequest {
		t.Errorf("by color: %d %s", got.status, got.body)
	}
}
