package worker_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
)

// begins is the event that a step begins whose output goes to the artifact "report".
func begins(key string) *a2a.Step { return &a2a.Step{Key: key, Name: "write", Artifact: "report"} }

// artifacts describes the artifact events of a task, in order: = replaces the artifact, + appends to it.
func (f *fixture) artifacts(task a2a.ID) (list []string) {
	for _, e := range f.events(task) {
		if u, ok := e.(*a2a.ArtifactUpdate); ok {
			mark := "="
			if u.Append {
				mark = "+"
			}
			var b strings.Builder
			for _, p := range u.Artifact.Parts {
				b.WriteString(p.Text)
			}
			list = append(list, mark+u.Artifact.Name+b.String())
		}
	}
	return list
}

func TestStreamedStepThatBeginsAgainRestoresItsArtifact(t *testing.T) {
	t.Parallel()
	intro := chunk("report", "intro ", "and plan. ")
	intro.Append, intro.Artifact.Name = false, "Report:"
	crash := errors.New("crashed")
	done := func(key string) *a2a.Step { return &a2a.Step{Key: key, Name: "write", Result: a2a.Raw(`"whole"`)} }
	for name, c := range map[string]struct {
		first, second []a2a.Event
		want          []string
	}{
		"existing": {
			[]a2a.Event{intro, begins("s"), chunk("report", "half a sen")},
			[]a2a.Event{begins("s"), chunk("report", "whole.")},
			[]string{"=Report:intro and plan. ", "+half a sen", "=Report:intro and plan. ", "+whole."},
		},
		"new": {
			[]a2a.Event{begins("s"), chunk("report", "half a sen")},
			[]a2a.Event{begins("s"), chunk("report", "whole.")},
			[]string{"+half a sen", "=", "+whole."},
		},
		"nothing written": {
			[]a2a.Event{intro, begins("s"), chunk("other", "x")},
			[]a2a.Event{begins("s"), chunk("report", "whole.")},
			[]string{"=Report:intro and plan. ", "+x", "+whole."}, // nothing to restore
		},
		"replaced": {
			[]a2a.Event{intro, begins("s"), &a2a.ArtifactUpdate{Artifact: chunk("report", "another").Artifact}},
			[]a2a.Event{begins("s"), chunk("report", "whole.")},
			[]string{"=Report:intro and plan. ", "=another", "=Report:intro and plan. ", "+whole."},
		},
		"in one run": { // events of one burst, which one batch may contain
			[]a2a.Event{},
			[]a2a.Event{
				intro, chunk("report", "more. "), begins("s"), chunk("report", "half"), begins("s"),
				chunk("report", "hal"), begins("s"), chunk("report", "whole."),
			},
			[]string{
				"=Report:intro and plan. ", "+more. ", "+half", "=Report:intro and plan. more. ", "+hal",
				"=Report:intro and plan. more. ", "+whole.",
			},
		},
		"after a failure": {
			[]a2a.Event{
				intro, begins("s"), chunk("report", "half"),
				&a2a.Step{Key: "s", Name: "write", Error: a2a.Raw(`"busy"`), NextAt: time.Now().Add(time.Hour)},
			},
			[]a2a.Event{begins("s"), chunk("report", "whole.")},
			[]string{"=Report:intro and plan. ", "+half", "=Report:intro and plan. ", "+whole."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.start(config(nil, agent("a", programs(func(p *program) {
				list := c.second
				if p.run.Attempt == 1 {
					list = c.first
				}
				for _, e := range list {
					if !p.yield(e, nil) {
						return
					}
				}
				if p.run.Attempt == 1 {
					p.yield(nil, crash)
					return
				}
				if p.yield(done("s"), nil) {
					p.complete("done")
				}
			}))))
			task := f.submit("a", "x")
			end := f.waitState(task, a2a.StateCompleted)
			if got, want := fmt.Sprintf("%q", f.artifacts(task)), fmt.Sprintf("%q", c.want); got != want {
				t.Errorf("the log has the artifact events\n%s, want\n%s", got, want)
			}
			var text strings.Builder
			for _, p := range end.Artifacts[a2a.FindArtifact(end.Artifacts, "report")].Parts {
				text.WriteString(p.Text)
			}
			if got := text.String(); !strings.HasSuffix(got, "whole.") || strings.Contains(got, "hal") {
				t.Errorf("the artifact ends as %q", got)
			}
			const row = `SELECT concat_ws(' ', seq, key, name, result, artifact_id, artifact_after > 0,
				ended_at IS NOT NULL) FROM a2a.task_steps WHERE task_id = $1`
			if got, want := value[string](f, row, task), `1 s write "whole" report t t`; got != want {
				t.Errorf("recorded %s, want %s", got, want)
			}
		})
	}
}

// A run knows that its step has begun, and a step that is over does not begin again.
func TestStreamedStepsAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	over := &a2a.Step{Key: "s", Name: "write", Result: a2a.Raw(`1`)}
	cases := map[string]struct {
		events []a2a.Event
		want   string
	}{
		"over": {[]a2a.Event{begins("s"), over, begins("s")},
			`event 3: the step "s" is over: its result is in the steps of the run`},
		"other artifact": {[]a2a.Event{begins("s"), &a2a.Step{Key: "s", Name: "write", Artifact: "letter"}},
			`event 2: nondeterministic step "s": recorded with the artifact "report", now "letter"`},
		"with result": {[]a2a.Event{&a2a.Step{Key: "s", Artifact: "report", Result: a2a.Raw(`1`)}},
			`event 1: the step "s" names an artifact with its result: name it when the step begins`},
		"artifact": {[]a2a.Event{&a2a.Step{Key: "s", Artifact: "a\x00"}}, `event 1: step.artifact is longer than 256`},
	}
	cfg := config(nil)
	for name, c := range cases {
		cfg.Agents = append(cfg.Agents, agent(name, say(append(c.events, status(a2a.StateCompleted))...)))
	}
	f.start(cfg)
	for name, c := range cases {
		task := f.submit(name, "x")
		got := f.waitState(task, a2a.StateFailed).Status.Message.Parts[0].Text
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: failed with %q, want %q", name, got, c.want)
		}
	}
}
