package check_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/e2e/check"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

const task = "01a1f887-7fbd-72d5-a178-36d674819994"

func frame(seq int, result string) check.Frame {
	return check.Frame{ID: fmt.Sprintf("%d-%08x", seq, seq), Result: []byte(result)}
}

func statusAt(state string, seq int, message string) string {
	if message != "" {
		message = `,"message":` + message
	}
	return fmt.Sprintf(`{"state":"%s"%s,"timestamp":"2026-11-20T10:00:%02d.000Z"}`, state, message, seq)
}

func statusUpdate(state string, seq int, message string) check.Frame {
	final := state == "completed"
	return frame(seq, fmt.Sprintf(`{"kind":"status-update","taskId":"%s","contextId":"c","status":%s,"final":%t}`, task,
		statusAt(state, seq, message), final))
}

func part(k int) string { return fmt.Sprintf(`{"kind":"text","text":"%d"}`, k) }

func chunk(k, seq int) check.Frame {
	return frame(seq,
		fmt.Sprintf(`{"kind":"artifact-update","taskId":"%s","contextId":"c","artifact":{"artifactId":"a",`+
			`"parts":[%s]},"append":%t,"lastChunk":%t}`, task, part(k), k > 0, k == 3))
}

const (
	asked = `{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"go"}]}`
	said  = `{"kind":"message","messageId":"s","role":"agent","parts":[{"kind":"text","text":"begun"}]}`
)

// snapshot returns the Task with some chunks of its artifact.
func snapshot(state string, seq, chunks int, history string) string {
	artifacts := ""
	if chunks > 0 {
		var parts []string
		for k := range chunks {
			parts = append(parts, part(k))
		}
		artifacts = `,"artifacts":[{"artifactId":"a","parts":[` + strings.Join(parts, ",") + `]}]`
	}
	message := ""
	if state == "working" {
		message = said
	}
	return fmt.Sprintf(`{"kind":"task","id":"%s","contextId":"c","status":%s%s,"history":[%s]}`, task,
		statusAt(state, seq, message), artifacts, history)
}

// healthy returns what clients of a correct server saw of one task: a reader that sent the message and was cut off
// twice, one that joined in the middle, one that joined at the end, and two that asked for the task.
func healthy() ([]check.Stream, []check.Answer) {
	events := []check.Frame{
		frame(1, snapshot("submitted", 1, 0, asked)), statusUpdate("working", 2, said), chunk(0, 3), chunk(1, 4),
		chunk(2, 5), chunk(3, 6), statusUpdate("completed", 7, ""),
	}
	whole := snapshot("completed", 7, 4, asked+","+said)
	return []check.Stream{
			{Reader: "sender", Replica: "a", Message: true, Frames: events[:3]},
			{Reader: "sender", Replica: "b", After: events[2].ID, Frames: events[3:5], Retry: true, Ended: true},
			// the reader had not processed the last one
			{Reader: "sender", Replica: "a", After: events[3].ID, Frames: events[4:], Ended: true},
			{Reader: "late", Replica: "b",
				Frames: slices.Concat([]check.Frame{frame(4, snapshot("working", 2, 2, asked))}, events[4:]),
				Ended:  true},
			{Reader: "last", Replica: "b", Frames: []check.Frame{frame(7, whole), events[6]}, Ended: true},
			{Reader: "lost", Replica: "b", After: "3-ffffffff", Gap: true,
				Frames: []check.Frame{frame(7, whole), events[6]}, Ended: true},
		}, []check.Answer{
			{Replica: "a", Task: []byte(snapshot("submitted", 1, 0, asked)), Message: []byte(asked), Whole: true},
			{Replica: "a", Task: []byte(whole), Whole: true, AtEnd: true},
			{Replica: "b", Task: []byte(whole), Whole: true, AtEnd: true},
		}
}

func edit(f *check.Frame, old, fresh string) {
	f.Result = bytes.Replace(f.Result, []byte(old), []byte(fresh), 1)
}

// Each mutation breaks one thing in a good log and must be reported under the invariant's name.
func TestClientsFindEachMutation(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		name string
		mut  func(s []check.Stream, a []check.Answer)
		want string // empty: nothing
	}{
		{"clean", func([]check.Stream, []check.Answer) {}, ""},
		{"drop an event",
			func(s []check.Stream, _ []check.Answer) { s[2].Frames = slices.Delete(slices.Clone(s[2].Frames), 1, 2) },
			check.Contiguity},
		{"double an event", func(s []check.Stream, _ []check.Answer) {
			s[2].Frames = slices.Insert(slices.Clone(s[2].Frames), 1, s[2].Frames[1])
		}, check.Contiguity},
		{"swap two events", func(s []check.Stream, _ []check.Answer) {
			f := slices.Clone(s[2].Frames)
			f[0], f[1] = f[1], f[0]
			s[2].Frames = f
		}, check.Contiguity},
		{"drop the first Task", func(s []check.Stream, _ []check.Answer) { s[3].Frames = s[3].Frames[1:] },
			check.Contiguity},
		{"drop the first event of a resume", func(s []check.Stream, _ []check.Answer) { s[1].Frames = s[1].Frames[1:] },
			check.Contiguity},
		{"a Task in the middle", func(s []check.Stream, _ []check.Answer) {
			s[3].Frames = slices.Insert(slices.Clone(s[3].Frames), 1, s[3].Frames[0])
		}, check.Contiguity},
		{"an event of another task", func(s []check.Stream, _ []check.Answer) {
			s[2].Frames = slices.Clone(s[2].Frames)
			edit(&s[2].Frames[1], task, strings.Replace(task, "01", "02", 1))
		}, check.Contiguity},
		{"no id", func(s []check.Stream, _ []check.Answer) {
			s[2].Frames = slices.Clone(s[2].Frames)
			s[2].Frames[1].ID = ""
		}, check.Contiguity},
		{"an unmarked gap", func(s []check.Stream, _ []check.Answer) { s[5].Gap = false }, check.Contiguity},
		{"no JSON", func(s []check.Stream, _ []check.Answer) {
			s[2].Frames = slices.Clone(s[2].Frames)
			s[2].Frames[1].Result = []byte("{")
		}, check.Unreadable},
		{"drop the end", func(s []check.Stream, _ []check.Answer) { s[2].Frames = s[2].Frames[:2] }, check.Ending},
		{"an end without a last event", func(s []check.Stream, _ []check.Answer) { s[1].Retry = false }, check.Ending},
		{"a last event that is not marked final", func(s []check.Stream, _ []check.Answer) {
			s[2].Frames = slices.Clone(s[2].Frames)
			edit(&s[2].Frames[2], `"final":true`, `"final":false`)
		}, check.Ending},
		{"an end that was made up", func(s []check.Stream, _ []check.Answer) {
			s[0].Frames = slices.Clone(s[0].Frames)
			edit(&s[0].Frames[1], `"final":false`, `"final":true`)
		}, check.Ending},
		{"a retry hint after the end", func(s []check.Stream, _ []check.Answer) { s[2].Retry = true }, check.Ending},
		{"drop a connection", func(s []check.Stream, _ []check.Answer) { s[1] = check.Stream{Reader: "nobody"} },
			check.Resume},
		{"a resume that starts from the beginning", func(s []check.Stream, _ []check.Answer) {
			s[1].Frames = slices.Insert(slices.Clone(s[1].Frames), 0, s[0].Frames[2])
		}, check.Contiguity},
		{"a gap without missing events", func(s []check.Stream, _ []check.Answer) {
			s[2].Gap, s[2].Frames = true, s[4].Frames
		}, check.Resume},
		{"edit an event", func(s []check.Stream, _ []check.Answer) {
			s[2].Frames = slices.Clone(s[2].Frames)
			edit(&s[2].Frames[1], `"text":"3"`, `"text":"4"`)
		}, check.SameBytes},
		{"another id", func(s []check.Stream, _ []check.Answer) {
			s[2].Frames = slices.Clone(s[2].Frames)
			s[2].Frames[1].ID = "6-aaaaaaaa"
		}, check.SameBytes},
		{"a snapshot that lacks a chunk", func(s []check.Stream, _ []check.Answer) {
			s[3].Frames = slices.Clone(s[3].Frames)
			s[3].Frames[0] = frame(4, snapshot("working", 2, 1, asked))
		}, check.Fold},
		{"a snapshot of another state", func(s []check.Stream, _ []check.Answer) {
			s[3].Frames = slices.Clone(s[3].Frames)
			s[3].Frames[0] = frame(4, snapshot("submitted", 2, 2, asked))
		}, check.Fold},
		{"a snapshot that forgets what was said", func(s []check.Stream, a []check.Answer) {
			forgot := snapshot("completed", 7, 4, asked)
			for _, at := range []*check.Stream{&s[4], &s[5]} {
				at.Frames = []check.Frame{frame(7, forgot), at.Frames[1]}
			}
			a[1].Task, a[2].Task = []byte(forgot), []byte(forgot)
		}, check.Fold},
		{"an ended task that changes", func(_ []check.Stream, a []check.Answer) {
			a[2].Task = []byte(snapshot("completed", 8, 4, asked+","+said))
		}, check.Immutable},
		{"a message that is lost", func(s []check.Stream, a []check.Answer) {
			lost := snapshot("completed", 7, 4, said)
			for _, at := range []*check.Stream{&s[4], &s[5]} {
				at.Frames = []check.Frame{frame(7, lost), at.Frames[1]}
			}
			a[1].Task, a[2].Task = []byte(lost), []byte(lost)
		}, check.Kept},
		{"a message that was edited", func(_ []check.Stream, a []check.Answer) {
			a[0].Message = []byte(strings.Replace(asked, `"go"`, `"went"`, 1))
		}, check.Kept},
	} {
		streams, answers := healthy()
		m.mut(streams, answers)
		streams = slices.DeleteFunc(streams, func(s check.Stream) bool { return s.Reader == "nobody" })
		found := check.Clients(streams, answers)
		switch named := slices.ContainsFunc(found, func(v check.Violation) bool { return v.Name == m.want }); {
		case m.want == "" && len(found) > 0:
			t.Errorf("%s: found %v, want nothing", m.name, found)
		case m.want != "" && !named:
			t.Errorf("%s: found %v, want %s", m.name, found, m.want)
		}
	}
}

// Events that are in no log must be reported.
func TestShownFindsEventsMissingInTheLog(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	ids := fill(t, db.URL)
	pool := db.Pool(t)
	var uid string
	if err := pool.QueryRow(t.Context(),
		`SELECT left(event_uid::text, 8) FROM audit.event WHERE task_id::text = $1 AND seq = 3`,
		ids[0]).Scan(&uid); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]int{"3-" + uid: 0, "2-" + uid: 1, "3-00000000": 1, "9-" + uid: 1} {
		streams := []check.Stream{{Frames: []check.Frame{{ID: id,
			Result: []byte(`{"kind":"artifact-update","taskId":"` + ids[0] + `"}`)}}}}
		found, err := check.Shown(t.Context(), pool, streams)
		if err != nil || len(found) != want || want == 1 && found[0].Name != check.InLog {
			t.Errorf("event %s: %v, %v, want %d violations", id, found, err, want)
		}
	}
}

// Shown events may be gone if the server recorded their removal.
func TestShownAcceptsRetiredEvents(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	ids := fill(t, db.URL)
	pool := db.Pool(t)
	var streams []check.Stream
	for _, id := range ids[:2] {
		var event string
		if err := pool.QueryRow(t.Context(),
			`SELECT '3-' || left(event_uid::text, 8) FROM audit.event WHERE task_id::text = $1 AND seq = 3`,
			id).Scan(&event); err != nil {
			t.Fatal(err)
		}
		streams = append(streams,
			check.Stream{Frames: []check.Frame{{ID: event,
				Result: []byte(`{"kind":"artifact-update","taskId":"` + id + `"}`)}}})
	}
	for _, step := range []struct {
		sql  string
		want int
	}{
		{`SELECT $1, $2`, 0},
		{`DELETE FROM a2a.task_events WHERE seq < 4 AND task_id::text IN ($1, $2)`, 2},
		{`UPDATE a2a.tasks SET first_seq = 4 WHERE id::text = $1 AND $2 <> ''`, 1},
		{`DELETE FROM a2a.tasks WHERE id::text = $2 AND $1 <> ''`, 1},
		{`INSERT INTO a2a.audit_log (actor, action, detail)
			SELECT 'replica r', 'task.retire', json_build_object('from', $1::text, 'to', $1::text) WHERE $2 <> ''`, 1},
		{`INSERT INTO a2a.audit_log (actor, action, detail)
			VALUES ('replica r', 'task.retire', json_build_object('from', $1::text, 'to', $2::text))`, 0},
	} {
		if _, err := pool.Exec(t.Context(), step.sql, ids[0], ids[1]); err != nil {
			t.Fatalf("%s: %v", step.sql, err)
		}
		if found, err := check.Shown(t.Context(), pool, streams); err != nil || len(found) != step.want {
			t.Errorf("%s: %v, %v, want %d violations", step.sql, found, err, step.want)
		}
	}
}
