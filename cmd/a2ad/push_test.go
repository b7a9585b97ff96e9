package main

import (
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/term"
)

// A webhook is not tried while its destination waits, so push ls shows the later of the two times.
func TestPushLsShowsTheDestinationsWait(t *testing.T) {
	t.Parallel()
	retry, wait := someTime.Add(time.Second), someTime.Add(time.Hour)
	for _, tt := range []struct {
		name string
		row  pushRow
		want string
	}{
		{"its own delay", pushRow{State: "active", NextAttemptAt: &wait, OpenUntil: &retry}, term.Moment(wait)},
		{"the destination's wait", pushRow{State: "active", NextAttemptAt: &retry, OpenUntil: &wait},
			term.Moment(wait)},
		{"no breaker", pushRow{State: "active", NextAttemptAt: &retry}, term.Moment(retry)},
		{"a disabled destination", pushRow{State: "active", NextAttemptAt: &retry, DisabledAt: &retry}, "-"},
		{"dead", pushRow{State: "dead", NextAttemptAt: &retry}, "-"},
		{"deleted", pushRow{State: "active", NextAttemptAt: &retry, DeletedAt: &retry}, "-"},
		{"nothing to deliver", pushRow{State: "active"}, "-"},
	} {
		if got := nextAttempt(&tt.row); got != tt.want {
			t.Errorf("%s: next try %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestWebhooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const origin = "https://hooks.example:443"
	w.submit(oldTask, "bob", nil)
	w.submit(taskID, "alice", &webhooks.NewWebhook{
		ConfigID: "default", URL: "https://hooks.example/a2a", Origin: origin, Version: a2a.PushV10,
		Seal: func(a2a.ID) (token, credentials []byte, err error) { return nil, nil, nil },
	})
	w.complete()
	list := rows[pushRow](t, w.run(exitOK, "push", "ls", "-o", "json"))
	if len(list) != 1 || list[0].TaskID != taskID || list[0].State != "active" || list[0].Origin != origin {
		t.Fatalf("%+v", list)
	}
	id := list[0].ID
	for _, args := range [][]string{
		{"--state", "dead"},
		{"--owner", "bob"},
		{"--origin", "https://other:443"},
		{"--task", oldTask},
		{"--before", id},
	} {
		if i := w.run(exitOK, append([]string{"push", "ls", "-o", "json"}, args...)...); i.stdout != "" {
			t.Errorf("%v: %s", args, i.stdout)
		}
	}
	if i := w.run(exitOK, "push", "ls", "--limit", "1"); i.stderr != "next page: --before "+id+"\n" {
		t.Errorf("the next page is not named: %q", i.stderr)
	}
	if i := w.run(exitOK, "push", "attempts", id, "-o", "json"); i.stdout != "" {
		t.Errorf("attempts: %s", i.stdout)
	}
	if i := w.run(exitFailure, "push", "attempts", "x"); i.stderr != "a2ad: webhook x: not the id of a webhook\n" {
		t.Errorf("%s", i.stderr)
	}
	i := w.run(exitOK, "push", "replay", id, "--after", "0", "-o", "json")
	if i.stdout != `{"id":"`+id+`","replayed":true}`+"\n" {
		t.Errorf("%s", i.stdout)
	}
	if i := w.run(exitFailure, "push", "replay", id, "x"); i.stdout != id+" will be delivered again\n" ||
		!strings.Contains(i.stderr, "webhook x") {
		t.Errorf("%s%s", i.stdout, i.stderr)
	}
	all := []string{"push", "replay", "--tenant", "acme", "--origin", origin, "--since"}
	if i := w.run(exitOK, append(all, "1h")...); i.stdout != "1 webhook will be delivered again\n" {
		t.Errorf("%s", i.stdout)
	}
	want := `{"tenant":"acme","origin":"` + origin + `","webhooks":0}` + "\n"
	if i := w.run(exitOK, append(all, "2100-01-01", "-o", "json")...); i.stdout != want {
		t.Errorf("%s", i.stdout)
	}
	for _, args := range [][]string{
		nil, {"--tenant", "acme", "--origin", origin}, {id, "--since", "1h"}, append(all[2:], "1h", "--after", "0"),
	} {
		w.run(exitUsage, append([]string{"push", "replay"}, args...)...)
	}
	destinations := rows[admin.Destination](t, w.run(exitOK, "push", "destinations", "-o", "json"))
	if len(destinations) != 1 || destinations[0].Origin != origin || destinations[0].Backlog == 0 ||
		describeDestination(&destinations[0]) != "ok" {
		t.Errorf("%+v", destinations)
	}
	enable := []string{"push", "enable", "--tenant", "acme", origin}
	if i := w.run(exitFailure, enable...); !strings.Contains(i.stderr, "is already enabled") {
		t.Errorf("%s", i.stderr)
	}
	change := `INSERT INTO a2a.push_destinations (tenant, origin, fails, disabled_at)
		VALUES ('acme', '` + origin + `', 9, now())
		ON CONFLICT (tenant, origin) DO UPDATE SET disabled_at = now()`
	databaseSetting(t, strings.TrimPrefix(w.env[0], "A2AD_DATABASE_URL="), change)
	r := rows[pushRow](t, w.run(exitOK, "push", "ls", "-o", "json"))
	if describeWebhook(&r[0]) != "destination disabled" {
		t.Errorf("%+v", r)
	}
	if i := w.run(exitOK, "push", "destinations", "--tenant", "acme"); !strings.Contains(i.stdout, "disabled") {
		t.Errorf("%s", i.stdout)
	}
	i = w.run(exitOK, append(enable, "-o", "json")...)
	if i.stdout != `{"tenant":"acme","origin":"`+origin+`","enabled":true}`+"\n" {
		t.Errorf("%s", i.stdout)
	}
}
