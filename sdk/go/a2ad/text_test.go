package a2ad_test

import (
	"context"
	"errors"
	"strings"
	"testing"

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
