package a2ad_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
	"github.com/a2ad/a2ad/sdk/go/a2ad/a2adtest"
)

// Programs read bytes and cut texts, so a character may be cut.
func TestCharactersThatAreCut(t *testing.T) {
	t.Parallel()
	text := "a🚆é\xff🚆z\xf0\x9f" // the last character is never complete
	want := "a🚆é\uFFFD🚆z\uFFFD"
	bytewise := func(ctx context.Context, a *a2ad.ArtifactWriter) error {
		for i := range len(text) {
			if err := a.Write(ctx, text[i:i+1]); err != nil {
				return err
			}
		}
		return nil
	}
	agent := func(ctx context.Context, t *a2ad.Task) (any, error) {
		return text, errors.Join(
			bytewise(ctx, t.Artifact("outside")),
			t.Status(ctx, text[:3]),
			a2ad.Do(ctx, t, "a", func(ctx context.Context) error { return bytewise(ctx, t.Artifact("inside")) }),
			t.Artifact("outside").Write(ctx, "\x9f|"), // not the rest of a character, because other calls came between
			t.Artifact("whole").Replace(ctx, text),
		)
	}
	for name, client := range map[string]a2adtest.Client{"agent": {}, "handler": {Handler: true}} {
		outside := want + "\uFFFD|"
		if client.Handler { // whose text ends with the checkpoint or the run
			outside = "a🚆é\uFFFD🚆z\uFFFD|"
		}
		r := crashEverywhere(t, agent, "x", client)
		if r.Text() != want || r.Artifact("outside") != outside || r.Artifact("inside") != want ||
			r.Artifact("whole") != want {
			t.Errorf("%s: %q, %q, %q, %q", name, r.Text(), r.Artifact("outside"), r.Artifact("inside"),
				r.Artifact("whole"))
		}
	}
}

// What a handler has written before a step to the same artifact is not sent again.
func TestTextOfAHandlerBeforeAStep(t *testing.T) {
	t.Parallel()
	agent := func(ctx context.Context, t *a2ad.Task) (any, error) {
		return nil, errors.Join(
			t.Write(ctx, "Well"),
			t.Artifact("answer").Append(ctx, a2ad.Part{Data: json.RawMessage(`[1]`)}),
			writesInAStep(ctx, t, ": text. "),
			t.Write(ctx, "Then: "),
			writesInAStep(ctx, t, "more. "),
			t.Write(ctx, "End."),
		)
	}
	r, err := a2adtest.CrashEverywhere(agent, "x", a2adtest.Client{Handler: true}, shown)
	if err != nil || shown(r) != "Well[1]: text. Then: more. End." {
		t.Errorf("%q, %v", shown(r), err)
	}
}

func shown(r *a2adtest.Result) string {
	var all strings.Builder
	for _, p := range r.Artifacts["answer"].Parts {
		if p.Text != nil {
			all.WriteString(*p.Text)
		}
		all.Write(p.Data)
	}
	return all.String()
}

// What a handler writes in place of what it has written in an earlier attempt is not lost.
func TestTextOfAHandlerThatTakesAnotherPath(t *testing.T) {
	t.Parallel()
	for said, sent := range map[string]string{
		"Intro 🚆. Sorry.":              "Sorry.",
		"Sorry.":                       "Sorry.",
		"Intro":                        "",
		"Intro 🚆. ":                    "",
		"Intro: I am sorry.":           ": I am sorry.",
		"Intro 🚂. Sorry.":              "🚂. Sorry.",
		"Intro 🚆. Intro. All is down.": "Intro. All is down.",
	} {
		agent := func(ctx context.Context, t *a2ad.Task) (any, error) {
			data := func(value string) error {
				return t.Artifact("answer").Append(ctx, a2ad.Part{Data: json.RawMessage(value)})
			}
			if t.Attempt() < 3 {
				err := errors.Join(t.Write(ctx, "Intro 🚆. "), data("[1]"), data("[2]"))
				if err == nil {
					err = a2ad.Do(ctx, t, "model", func(ctx context.Context) error {
						return errors.Join(t.Write(ctx, "half "), errors.New("reset"))
					})
				}
				return nil, err
			}
			for i := range len(said) { // also parts of a character
				if err := t.Write(ctx, said[i:i+1]); err != nil {
					return nil, err
				}
			}
			return nil, errors.Join(data("[1]"), data("[3]"))
		}
		r := run(t, agent, "x", a2adtest.Client{Handler: true})
		want := "Intro 🚆. [1][2]half " + sent + "[1][3]"
		if said == "Intro 🚆. " {
			want = "Intro 🚆. [1][2]half [3]"
		}
		if shown(r) != want {
			t.Errorf("%q: %q, want %q", said, shown(r), want)
		}
	}
}

// What a handler writes after a step is not taken for what it has written before the step.
func TestTextOfAHandlerAfterAStep(t *testing.T) {
	t.Parallel()
	r := run(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		laugh := "Ha. "
		if t.Attempt() == 1 {
			laugh = "Ha. Ha. "
		}
		err := errors.Join(t.Write(ctx, laugh), writesInAStep(ctx, t, "Well. "))
		if t.Attempt() == 1 {
			return nil, errors.Join(err, errors.New("reset"))
		}
		return nil, errors.Join(err, t.Write(ctx, "Ha. "))
	}, "x", a2adtest.Client{Handler: true})
	if shown(r) != "Ha. Ha. Well. Ha. " {
		t.Errorf("%q", shown(r))
	}
}

// What a handler writes after a step is sent, if it wrote the same before the step in another attempt.
func TestTextOfAHandlerThatWroteNothingBeforeAStep(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"model": "Sorry. Well. Sorry. ", "other": "Sorry. Well. Well. Sorry. "} {
		r := run(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
			well := func(ctx context.Context) error { return t.Write(ctx, "Well. ") }
			if t.Attempt() == 1 {
				err := errors.Join(t.Write(ctx, "Sorry. "), a2ad.Do(ctx, t, "model", well))
				return nil, errors.Join(err, errors.New("reset"))
			}
			return nil, errors.Join(a2ad.Do(ctx, t, name, well), t.Write(ctx, "Sorry. "))
		}, "x", a2adtest.Client{Handler: true})
		if shown(r) != want {
			t.Errorf("%s: %q, want %q", name, shown(r), want)
		}
	}
}

// When a step begins again, what came after it in another attempt is removed, so it is sent again.
func TestTextOfAHandlerAfterAStepThatBeginsAgain(t *testing.T) {
	t.Parallel()
	runs := 0
	r := run(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		var errs []error
		if runs++; runs != 2 {
			errs = append(errs, a2ad.Do(ctx, t, "model", func(ctx context.Context) error {
				if err := t.Write(ctx, "model "); err != nil || runs >= 3 {
					return err
				}
				return errors.New("reset")
			}, a2ad.Retries(3), a2ad.Backoff(time.Minute)))
		}
		other := func(ctx context.Context) error { return t.Write(ctx, "other ") }
		errs = append(errs, t.Write(ctx, "End. "), a2ad.Do(ctx, t, "other", other))
		if runs == 2 {
			errs = append(errs, errors.New("reset"))
		}
		return nil, errors.Join(errs...)
	}, "x", a2adtest.Client{Handler: true})
	if shown(r) != "model End. " {
		t.Errorf("%q", shown(r))
	}
}

// Half a character before other output is sent once.
func TestHalfACharacterOfAHandlerBeforeAStep(t *testing.T) {
	t.Parallel()
	agent := func(ctx context.Context, t *a2ad.Task) (any, error) {
		return nil, errors.Join(
			t.Write(ctx, "A\xf0"),
			t.Artifact("answer").Append(ctx, a2ad.Part{Data: json.RawMessage(`[1]`)}),
			t.Write(ctx, "B\xf0"),
			writesInAStep(ctx, t, "<s>"),
			t.Write(ctx, "E"),
		)
	}
	r, err := a2adtest.CrashEverywhere(agent, "x", a2adtest.Client{Handler: true}, shown)
	if err != nil || shown(r) != "A\ufffd[1]B\ufffd<s>E" {
		t.Errorf("%q, %v", shown(r), err)
	}
}

// Text that is too long to be recorded is sent again.
func TestLongTextOfAHandlerBeforeAStep(t *testing.T) {
	t.Parallel()
	limit := strings.Repeat("x", 128<<10-3)
	r := run(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		err := errors.Join(
			t.Write(ctx, limit), t.Write(ctx, "and more"), t.Write(ctx, "and"), writesInAStep(ctx, t, "text"),
		)
		if t.Attempt() == 1 {
			err = errors.Join(err, errors.New("reset"))
		}
		return nil, err
	}, "x", a2adtest.Client{Handler: true})
	if rest, ok := strings.CutPrefix(shown(r), limit); !ok || rest != "and moreandtextand moreand" {
		t.Errorf("%.80q", rest)
	}
}

func writesInAStep(ctx context.Context, t *a2ad.Task, text string) error {
	return a2ad.Do(ctx, t, "model", func(ctx context.Context) error { return t.Write(ctx, text) })
}

func TestQuestionWithACutCharacter(t *testing.T) {
	t.Parallel()
	r := run(t, func(ctx context.Context, t *a2ad.Task) (any, error) { return t.Ask(ctx, "Go\xf0?") }, "x",
		a2adtest.Client{Answers: []any{"yes"}})
	if r.Text() != "yes" || r.Questions[0] != "Go\uFFFD?" {
		t.Errorf("%q to %q", r.Text(), r.Questions)
	}
}

// The server compares the choices with the texts of the answer, with spaces between them.
func TestChoiceInSeveralParts(t *testing.T) {
	t.Parallel()
	for want, answer := range map[string]a2ad.Message{
		"New York":  {Parts: []a2ad.Part{a2ad.Text(" New"), a2ad.Text("York\n")}},
		"New\nYork": {Parts: []a2ad.Part{a2ad.Text("New\nYork")}},
	} {
		r := run(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
			return t.Ask(ctx, "Where?", a2ad.Choices("New York", "New\nYork"))
		}, "x", a2adtest.Client{Answers: []any{answer}})
		if r.Text() != want {
			t.Errorf("got %q, want %q", r.Text(), want)
		}
	}
}

func TestValuesThatAreAlmostNothing(t *testing.T) {
	t.Parallel()
	type text string
	for _, value := range []any{nil, "", text(""), (*a2ad.Message)(nil), (*int)(nil), []a2ad.Part{}} {
		r := run(t, func(context.Context, *a2ad.Task) (any, error) { return value, nil }, "x", a2adtest.Client{})
		if r.State != "completed" || len(r.Message.Parts) != 0 {
			t.Errorf("%#v: %s with %+v, want no message", value, r.State, r.Message)
		}
	}
	r := run(t, func(context.Context, *a2ad.Task) (any, error) { return text("hello"), nil }, "x", a2adtest.Client{})
	if r.Text() != "hello" {
		t.Errorf("a value whose kind is string is %+v, want a text", r.Message)
	}
	wrong := mistakeOf(t, func(context.Context, *a2ad.Task) (any, error) { return errors.New("oops"), nil })
	want := `what the agent returned is an error: return it as the error, or its text: "oops"`
	if !strings.HasSuffix(wrong.Error(), want) {
		t.Errorf("got %q, want %q", wrong, want)
	}
}
