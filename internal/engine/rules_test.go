package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
)

// The rules by which the two generations resume.
var (
	rules03 = a2a.StreamRules{LastStatus: true}
	rules10 = a2a.StreamRules{ResumeAsTask: true}
)

func TestSubscribeAndResume(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	// 1 submitted, 2 working, 3 artifact, 4 input-required | 5 submitted, 6 working, 7 artifact
	living := r.task("living")
	l := r.claim()
	r.append(l, artifact("a", "1", false), status(a2a.StateInputRequired, "?"))
	if _, err := r.Send(t.Context(), ann, words, send("answer", to(living))); err != nil {
		t.Fatal(err)
	}
	l = r.claim()
	r.append(l, artifact("a", "2", true))
	// The same log, and 8 completed.
	ended := r.task("ended")
	l = r.claim()
	r.append(l, artifact("a", "1", false), status(a2a.StateInputRequired, "?"))
	if _, err := r.Send(t.Context(), ann, words, send("answer", to(ended))); err != nil {
		t.Fatal(err)
	}
	l = r.claim()
	r.append(l, artifact("a", "2", true), status(a2a.StateCompleted, "done"))
	foreign := r.eventID(living, 3)

	type row struct {
		name     string
		task     a2a.ID
		last     string
		old, now string // what a client of 0.3 and of 1.0 gets
	}
	const refused = "refused"
	tests := []row{
		{"living, no header", living, "", "task@7 …", "task@7 …"},
		{"ended, no header", ended, "", "task@8 8!", refused},
		{"ended, the last event", ended, r.eventID(ended, 8), "task@8 8!", refused},
		{"living, the newest event", living, r.eventID(living, 7), "…", "task@7 …"},
	}
	rest := []string{"2", "3", "4", "5", "6", "7"}
	for n := 1; n < 7; n++ {
		events := strings.Join(rest[n-1:], " ")
		tests = append(tests,
			row{fmt.Sprint("living, event ", n), living, r.eventID(living, n), events + " …",
				fmt.Sprintf("task@%d %s …", n, events)},
			row{fmt.Sprint("ended, event ", n), ended, r.eventID(ended, n), events + " 8!",
				fmt.Sprintf("task@%d %s 8!", n, events)})
	}
	for name, last := range map[string]string{
		"event of another task": foreign[:2] + r.eventID(ended, 3)[2:], "another uid": "3-00000000",
		"future seq": "99-" + r.eventID(living, 7)[2:],
		"seq 0":      "0-" + foreign[2:], "negative": "-3-" + foreign[2:], "no uid": "3", "empty uid": "3-",
		"garbage": "garbage", "blank": " ", "upper case": strings.ToUpper(foreign) + "A",
		"huge": "9223372036854775808-" + foreign[2:], "long": strings.Repeat("3", 300),
		"spaces around": " " + foreign + " ", "line break": foreign + "\n", "NUL": "\x00",
	} {
		tests = append(tests, row{"living, " + name, living, last, "gap@7 …", "gap@7 …"})
		if name != "event of another task" {
			tests = append(tests, row{"ended, " + name, ended, last, "gap@8 8!", "gap@8"})
		}
	}
	for _, tt := range tests {
		for _, gen := range []struct {
			name  string
			rules a2a.StreamRules
			old   bool
			want  string
		}{{"0.3", rules03, true, tt.old}, {"1.0", rules10, false, tt.now}} {
			t.Run(gen.name+" "+tt.name, func(t *testing.T) {
				t.Parallel()
				op := &a2a.Subscribe{StreamRules: gen.rules, ID: tt.task.String(), EndedOK: gen.old}
				op.LastEventID = tt.last
				s, err := r.Subscribe(t.Context(), ann, words, op)
				if gen.want == refused {
					wantCode(t, tt.name, err, a2a.CodeUnsupportedOperation)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if got := frames(t, s, gen.want); got != gen.want {
					t.Errorf("Last-Event-ID %q: got %s, want %s", tt.last, got, gen.want)
				}
			})
		}
	}
}

// TestResumedTaskIsAsOfItsEvent: the Task of a resumed stream is the fold of the log up to its
// event.
func TestResumedTaskIsAsOfItsEvent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.task("one")
	snaps := map[int64]*a2a.Task{}
	note := func() { s := r.snapshot(id); snaps[s.LastSeq] = s }
	note()
	l := r.claim()
	note()
	for i, e := range []a2a.Event{
		artifact("a", "1", false), status(a2a.StateWorking, "busy"), artifact("b", "1", true), artifact("a", "2", true),
		artifact("a", "3", false), status(a2a.StateInputRequired, "?"),
	} {
		r.append(l, e)
		note()
		if i == 2 {
			if _, err := r.Send(t.Context(), ann, words, send("more", to(id))); err != nil {
				t.Fatal(err)
			}
		}
	}
	l = r.claim()
	note()
	r.append(l, status(a2a.StateCompleted, "done"))
	note()
	for seq, want := range snaps {
		if seq == 9 || seq == int64(len(snaps)) {
			continue
		}
		op := &a2a.Subscribe{StreamRules: rules10, ID: id.String()}
		op.LastEventID = r.eventID(id, int(seq))
		s, err := r.Subscribe(t.Context(), ann, words, op)
		if err != nil {
			t.Fatal(err)
		}
		f := next(t, s)
		if f.Task == nil {
			t.Fatalf("resumed after %d: got %s", seq, describe(&f))
		}
		same(t, fmt.Sprint("the task as of ", seq), want, f.Task)
		s.Close()
	}
}

func TestForeignTasksLookLikeUnknownOnes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.task("mine")
	id1 := r.eventID(id, 1)
	other := &a2a.Agent{Name: "other"}
	for name, c := range map[string]struct {
		caller db.Caller
		agent  *a2a.Agent
		id     string
	}{
		"another owner":  {db.Caller{Tenant: "acme", Owner: "bob"}, words, id.String()},
		"another tenant": {db.Caller{Tenant: "corp", Owner: "ann"}, words, id.String()},
		"another agent":  {ann, other, id.String()},
		"no such task":   {ann, words, db.NewTaskID().String()},
		"no id":          {ann, words, "garbage"},
		"an empty id":    {ann, words, ""},
	} {
		tries := map[string]error{}
		_, tries["get"] = r.Get(t.Context(), c.caller, c.agent, &a2a.GetTask{ID: c.id})
		_, tries["cancel"] = r.Cancel(t.Context(), c.caller, c.agent, &a2a.CancelTask{ID: c.id})
		for _, last := range []string{"", id1, "garbage"} {
			op := &a2a.Subscribe{StreamRules: rules03, ID: c.id, EndedOK: true}
			op.LastEventID = last
			_, tries["subscribe "+last] = r.Subscribe(t.Context(), c.caller, c.agent, op)
		}
		if c.id != "" {
			say := send("x")
			say.Message.TaskID = c.id
			_, tries["send"] = r.Send(t.Context(), c.caller, c.agent, say)
			_, tries["stream"] = r.Stream(t.Context(), c.caller, c.agent, say)
		}
		for op, err := range tries {
			wantCode(t, name+", "+op, err, a2a.CodeTaskNotFound)
			if err != nil && !errors.Is(err, a2a.ErrTaskNotFound) {
				t.Errorf("%s, %s: got %v, want the error of an unknown task", name, op, err)
			}
		}
	}
	if n := r.Streams(); n != 0 {
		t.Errorf("%d streams are open after errors", n)
	}
	if got := r.snapshot(id); got.Status.State != a2a.StateSubmitted || len(got.History) != 1 {
		t.Errorf("the task was touched: %+v", got)
	}
}

func TestMessageStreamEndsWhereItsRulesSay(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		events []a2a.Event
		want   string
	}{
		{"completed", []a2a.Event{artifact("a", "1", false), status(a2a.StateCompleted, "")}, "task@1 2 3 4!"},
		{"failed", []a2a.Event{status(a2a.StateFailed, "")}, "task@1 2 3!"},
		{"input-required", []a2a.Event{artifact("a", "1", false), status(a2a.StateInputRequired, "?")},
			"task@1 2 3 4!"},
		{"auth-required", []a2a.Event{status(a2a.StateAuthRequired, "?")}, "task@1 2 3 …"},
		{"working", []a2a.Event{status(a2a.StateWorking, "x")}, "task@1 2 3 …"},
	}
	r := newRig(t)
	for _, tt := range tests {
		s, err := r.Stream(t.Context(), ann, words, send(tt.name))
		if err != nil {
			t.Fatal(err)
		}
		first, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		same(t, tt.name+": the task", r.snapshot(s.TaskID), first.Task)
		r.append(r.claim(), tt.events...)
		if got := describe(&first) + " " + frames(t, s, strings.TrimPrefix(tt.want, "task@1 ")); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
		s.Close()
	}
}

// TestSubscriptionOutlastsAQuestion: a subscription follows the whole task, so it continues where a
// message stream ends.
func TestSubscriptionOutlastsAQuestion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.task("x")
	s, err := r.Subscribe(t.Context(), ann, words, &a2a.Subscribe{StreamRules: rules03, ID: id.String(), EndedOK: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r.append(r.claim(), status(a2a.StateInputRequired, "?"))
	for _, want := range []string{"task@1", "2", "3"} {
		f := next(t, s)
		if got := describe(&f); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if s.Pending() {
		t.Error("Pending() = true after everything was read")
	}
	if _, err := r.Cancel(t.Context(), ann, words, &a2a.CancelTask{ID: id.String()}); err != nil {
		t.Fatal(err)
	}
	if got := frames(t, s, "4!"); got != "4!" {
		t.Errorf("got %s, want 4!", got)
	}
}

func TestStreamOfAFollowUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.task("x")
	r.append(r.claim(), artifact("a", "1", false), status(a2a.StateInputRequired, "?"))
	// The stream starts with the task that the message resubmits.
	s, err := r.Stream(t.Context(), ann, words, send("answer", to(id)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r.append(r.claim(), status(a2a.StateInputRequired, "and?"))
	f := next(t, s)
	if describe(&f) != "task@5" || f.Task.Status.State != a2a.StateSubmitted || len(f.Task.History) != 3 {
		t.Errorf("first frame %s: %+v", describe(&f), f.Task)
	}
	if got := frames(t, s, "6 7!"); got != "6 7!" {
		t.Errorf("got %s, want 6 7!", got)
	}
	// A message to a running task: the stream starts with the task as it is, then its events
	// follow.
	if _, err := r.Send(t.Context(), ann, words, send("third", to(id))); err != nil {
		t.Fatal(err)
	}
	l := r.claim()
	w, err := r.Stream(t.Context(), ann, words, send("fourth", to(id)))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.append(l, status(a2a.StateCompleted, "done with the third"))
	r.append(r.claim(), status(a2a.StateCompleted, "done"))
	if got := frames(t, w, "task@9 10 11 12!"); got != "task@9 10 11 12!" {
		t.Errorf("got %s, want task@9 10 11 12!", got)
	}
	_, err = r.Stream(t.Context(), ann, words, send("too late", to(id)))
	wantCode(t, "a message to an ended task", err, a2a.CodeTaskTerminal)
	if n := r.Streams(); n != 2 {
		t.Errorf("%d streams are open, want 2", n)
	}
}

// TestReplayedStream: Last-Event-ID on message/stream only counts if the key shows that it is a
// replay.
func TestReplayedStream(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first, err := r.Stream(t.Context(), ann, words, send("x", key("k")))
	if err != nil {
		t.Fatal(err)
	}
	id := first.TaskID
	first.Close()
	l := r.claim()
	r.append(l, artifact("a", "1", false), artifact("a", "2", true))
	again := func(want string, change ...func(*a2a.SendMessage)) {
		t.Helper()
		s, err := r.Stream(t.Context(), ann, words, send("x", append(change, key("k"))...))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if s.TaskID != id {
			t.Errorf("the replay follows %s, want %s", s.TaskID, id)
		}
		if got := frames(t, s, want); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	from := func(last string, rules a2a.StreamRules) func(*a2a.SendMessage) {
		return func(op *a2a.SendMessage) { op.StreamRules = rules; op.LastEventID = last }
	}
	again("task@4 …", from("", rules03))                   // no header
	again("3 4 …", from(r.eventID(id, 2), rules03))        // after 2
	again("task@2 3 4 …", from(r.eventID(id, 2), rules10)) // after 2, in 1.0
	again("gap@4 …", from("x", rules03))                   // not an event id
	r.append(l, status(a2a.StateInputRequired, "?"))
	again("3 4 5!", from(r.eventID(id, 2), rules03))    // after 2, up to the question
	again("task@5 5!", from("", rules03))               // no header, at the question
	again("task@5 5!", from(r.eventID(id, 5), rules03)) // after the question
	// Another message has no earlier stream, so it ignores the header.
	s, err := r.Stream(t.Context(), ann, words, send("y", key("other"), from(r.eventID(id, 2), rules03)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := frames(t, s, "task@1 …"); got != "task@1 …" {
		t.Errorf("not a replay: got %s", got)
	}
	_, err = r.Stream(t.Context(), ann, words, send("z", key("k")))
	wantCode(t, "another message under the key", err, a2a.CodeInvalidParams)
}
