package agents_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/agents"
)

const scheduled = "name: a\ndescription: d\nexecutor: {echo: {}}\nschedules:\n"

// loadSchedules loads an agent file with these schedules.
func loadSchedules(t *testing.T, list string) ([]a2a.Schedule, []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(path, []byte(scheduled+list), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := agents.Load(path)
	var faults agents.Faults
	if errors.As(err, &faults) {
		var lines []string
		for _, f := range faults {
			lines = append(lines, strings.TrimPrefix(f.String(), filepath.Dir(path)+"/"))
		}
		return nil, lines
	}
	if err != nil {
		t.Fatal(err)
	}
	return files[0].Agent.Schedules, nil
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	got, faults := loadSchedules(t, `
  - {name: daily, cron: "@daily", owner: ann, message: Hello}
  - name: busy
    cron: "*/5 8-18 * * 1-5"
    timezone: America/New_York
    tenant: acme
    owner: bob
    overlap: queue
    catch_up: 10m
    jitter: 30s
    paused: true
    message:
      parts: [{text: x}, {data: {n: 1}, mediaType: application/json}, {url: "https://example.com/f", filename: f}]
      metadata: {k: v}
`)
	want := []a2a.Schedule{
		{
			Name: "daily", Cron: "@daily", Timezone: "UTC", Tenant: "default", Owner: "ann", CatchUp: time.Hour,
			Message: a2a.Message{Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "Hello"}}},
		},
		{
			Name: "busy", Cron: "*/5 8-18 * * 1-5", Timezone: "America/New_York", Tenant: "acme", Owner: "bob",
			Overlap: a2a.OverlapQueue, CatchUp: 10 * time.Minute, Jitter: 30 * time.Second, Paused: true,
			Message: a2a.Message{Role: a2a.RoleUser, Metadata: a2a.Raw(`{"k":"v"}`), Parts: []a2a.Part{
				{Kind: a2a.PartText, Text: "x"},
				{Kind: a2a.PartData, Data: a2a.Raw(`{"n":1}`), MediaType: "application/json"},
				{Kind: a2a.PartURL, Text: "https://example.com/f", Filename: "f"},
			}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" || faults != nil {
		t.Errorf("faults %v, -want +got:\n%s", faults, diff)
	}
}

func TestScheduleFaults(t *testing.T) {
	t.Parallel()
	_, got := loadSchedules(t, `
  - {name: a, cron: "@daily", owner: o, message: m}
  - {name: a, cron: "61 * * * *", timezone: Europe/Atlantis, owner: o, message: m}
  - {name: b/c, cron: "@every 1s", owner: o, message: {role: agent}}
  - {name: d, cron: "0 0 31 2 *", overlap: wait, catch_up: 200h, jitter: 5, owner: o, message: {parts: [{}]}}
  - {crn: x}
`)
	want := []string{
		`a.yaml:7: cron: "61 * * * *": end of range (61) above maximum (59): "61"`,
		`a.yaml:7: timezone: "Europe/Atlantis" is unknown; write a name like Europe/Berlin or UTC`,
		`a.yaml:7: the schedule name "a" is on line 6 already; choose another`,
		`a.yaml:8: the schedule name "b/c" must have at most 64 letters, digits, - and _, ` +
			`and start with a letter or digit`,
		`a.yaml:8: cron: "@every 1s": write five fields, like 30 8 * * 1-5, or ` +
			`@hourly, @daily, @weekly, @monthly, @yearly`,
		`a.yaml:8: message has no role here: it is a message of the user`,
		`a.yaml:8: message has no parts; write a text, or {parts: [{text: Write the report.}]}`,
		`a.yaml:9: cron: "0 0 31 2 *": no such day exists, so it would never tick`,
		`a.yaml:9: overlap must be skip, queue or allow`,
		`a.yaml:9: catch_up must be at most 168h`,
		`a.yaml:9: jitter: 5 has no unit; write a duration like 30s, 5m or 1h`,
		`a.yaml:9: a part must have one of text, data and url`,
		`a.yaml:10: a schedule has no key "crn"; did you mean cron?`,
		`a.yaml:10: a schedule has no name; add one, like name: daily`,
		`a.yaml:10: a schedule has no cron; add one, like cron: "0 8 * * *"`,
		`a.yaml:10: a schedule has no message; add one, like message: Write the report.`,
		`a.yaml:10: a schedule has no owner; add one, like owner: reports`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The agent accepts from its schedules what it accepts from its clients.
func TestScheduleMessageThatTheAgentRefuses(t *testing.T) {
	t.Parallel()
	const skills = `
skills:
  - id: clean
    input_schema: {type: object, properties: {days: {type: integer}}, required: [days]}
extended_card:
  skills:
    - {id: hidden, input_schema: {type: string}}
input_modes: [text/plain, application/json]
`
	const schedule = `  - {cron: "@daily", owner: o, name: n, message: x}
  - {cron: "@daily", owner: o, name: `
	for _, tc := range []struct{ message, want string }{
		{"hello", ""},
		{"{parts: [{data: {days: 3}, metadata: {skillId: clean}}]}", ""},
		{"{parts: [{data: x}], metadata: {skillId: hidden}}", ""},
		{"{parts: [{data: {days: soon}}]}", ""}, // it names no skill
		{"{parts: [{text: x}, {data: {days: soon}}], metadata: {skillId: clean}}",
			`message.parts[1].data.days: got string, want integer`},
		{"{parts: [{data: {}, metadata: {skillId: clean}}]}",
			`message.parts[0].data: missing property 'days'`},
		{"{parts: [{data: 1}], metadata: {skillId: hidden}}", `message.parts[0].data: got number, want string`},
		{"{parts: [{data: {days: 3}}], metadata: {skillId: clear}}",
			`message.metadata.skillId: the agent has no skill "clear"`},
		{"{parts: [{url: 'https://example.com/x', media_type: image/png}]}",
			`message.parts[0]: the agent does not accept image/png; it accepts text/plain, application/json`},
	} {
		_, got := loadSchedules(t, schedule+"m, message: "+tc.message+"}\n"+skills)
		var want []string
		if tc.want != "" {
			want = []string{"a.yaml:6: the agent does not accept the message of schedule m: " + tc.want}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tc.message, diff)
		}
	}
}
