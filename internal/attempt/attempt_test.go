package attempt_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

func TestBounds(t *testing.T) {
	t.Parallel()
	b := attempt.Bounds{Bytes: 100, Events: 10, Artifacts: 2}
	l := &tasks.Lease{LastSeq: 8, Bytes: 60, StepBytes: 30}
	for _, tt := range []struct {
		events, bytes int
		ends, ok      bool
	}{{2, 10, false, true}, {3, 10, false, false}, {3, 10, true, true}, {1, 11, false, false}, {1, 11, true, false}} {
		if err := b.Admit(l, tt.events, tt.bytes, tt.ends); (err == nil) != tt.ok {
			t.Errorf("%+v: %v", tt, err)
		}
		if err := (attempt.Bounds{}).Admit(l, tt.events, tt.bytes, tt.ends); err != nil {
			t.Errorf("%+v: %v without bounds", tt, err)
		}
	}
	if err := b.TooMany(2); err != nil {
		t.Error(err)
	}
	if err := b.TooMany(3); err == nil {
		t.Error("three artifacts were admitted")
	}
}

func TestPrepareCopiesAndFillsIn(t *testing.T) {
	t.Parallel()
	in := &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking,
		Message: &a2a.Message{Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "a\xff"}}}}}
	out, n, err := attempt.Prepare(in)
	if err != nil {
		t.Fatal(err)
	}
	m := out.(*a2a.StatusUpdate).Status.Message
	if m.ID == "" || m.Role != a2a.RoleAgent || m.Parts[0].Text != "a\uFFFD" || n != len(m.Parts[0].Text) {
		t.Errorf("%+v, %d bytes", m, n)
	}
	if old := in.Status.Message; old.ID != "" || old.Role != a2a.RoleUser || old.Parts[0].Text != "a\xff" {
		t.Errorf("the agent's event has changed: %+v", old)
	}
}

func TestPrepareRefuses(t *testing.T) {
	t.Parallel()
	parts := []a2a.Part{{Kind: a2a.PartText, Text: "x"}}
	for name, e := range map[string]a2a.Event{
		"nothing":                           nil,
		"an empty status":                   (*a2a.StatusUpdate)(nil),
		"a state that only the server sets": &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCanceled}},
		"a bare message":                    &a2a.Message{Parts: parts},
		"no artifact id":                    &a2a.ArtifactUpdate{Artifact: a2a.Artifact{Parts: parts}},
		"a NUL in an id":                    &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a\x00", Parts: parts}},
		"no parts":                          &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a"}},
		"a part that is large": &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a",
			Parts: []a2a.Part{{Kind: a2a.PartText, Text: strings.Repeat("x", 1<<20+1)}}}},
		"a large checkpoint": &a2a.Checkpoint{Body: a2a.Raw(`"` + strings.Repeat("x", 1<<20) + `"`)},
	} {
		if out, _, err := attempt.Prepare(e); err == nil {
			t.Errorf("%s: accepted as %+v", name, out)
		}
	}
}

func TestTextIsFitForTheRecord(t *testing.T) {
	t.Parallel()
	if got := attempt.Text("a\x00b\xff"); got != "a\uFFFDb\uFFFD" {
		t.Errorf("%q", got)
	}
	if got := attempt.Text(strings.Repeat("ä", 600)); len(got) > 1<<10+6 || !strings.HasSuffix(got, "…") {
		t.Errorf("%d bytes: %q", len(got), got[len(got)-10:])
	}
}

func TestAWaitIsComparedWithTheRecord(t *testing.T) {
	t.Parallel()
	recorded := func(input []byte, ended bool) a2a.StepRecord {
		return a2a.StepRecord{Step: a2a.Step{Key: "ask", Input: input}, Seq: 1, Kind: a2a.StepWait, Ended: ended}
	}
	for name, tt := range map[string]struct {
		old  a2a.StepRecord
		want string
	}{
		"same":                         {recorded([]byte{1}, false), ""},
		"another input":                {recorded([]byte{2}, false), `nondeterministic step "ask"`},
		"another input, over":          {recorded([]byte{2}, true), `nondeterministic step "ask"`},
		"recorded without input":       {recorded(nil, false), ""},
		"recorded without input, over": {recorded(nil, true), `the wait "ask" is over`},
	} {
		j := attempt.Bounds{}.Journal(1, []a2a.StepRecord{tt.old})
		_, err := j.Record(&a2a.Wait{Key: "ask", Input: []byte{1}, Message: true}, 0)
		if got := fmt.Sprint(err); tt.want == "" && err != nil || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
