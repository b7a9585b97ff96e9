package a2ad_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
	"github.com/a2ad/a2ad/sdk/go/a2ad/a2adtest"
)

// Base and Named are embedded, so they must be exported.
type (
	Base struct {
		ID   int8   `json:"id"`
		Note string `json:"note"`
	}
	Named struct {
		First string `json:"first"`
	}
)

func TestSchemasOfMembers(t *testing.T) {
	t.Parallel()
	type order struct {
		Base
		Named  `json:"name"`
		Note   *string    `json:"note"`
		Count  int16      `json:"n,string"`
		Parent *Named     `json:"parent,omitempty"`
		When   *time.Time `json:"-"`
	}
	got, err := a2ad.SchemaOf[*order]()
	name := `{"properties":{"first":{"type":"string"}},"required":["first"],"type":"object"}`
	want := `{"properties":{"id":{"maximum":127,"minimum":-128,"type":"integer"},` +
		`"n":{"pattern":"^-?(0|[1-9][0-9]*)$","type":"string"},"name":` + name + `,` +
		`"note":{"anyOf":[{"type":"string"},{"type":"null"}]},"parent":` + name + `},` +
		`"required":["id","name","note","n"],"type":"object"}`
	if err != nil || string(got) != want {
		t.Errorf("SchemaOf = %s, %v, want %s", got, err, want)
	}
}

func TestSchemasOfTypes(t *testing.T) {
	t.Parallel()
	type ids map[uint]any
	for want, schema := range map[string]func() (json.RawMessage, error){
		`{"type":"string"}`: a2ad.SchemaOf[[]byte],
		`{}`:                a2ad.SchemaOf[json.RawMessage],
		`{"type":"number"}`: a2ad.SchemaOf[json.Number],
		`{"maximum":255,"minimum":0,"type":"integer"}`: a2ad.SchemaOf[uint8],

		`{"maximum":18446744073709551615,"minimum":0,"type":"integer"}`: a2ad.SchemaOf[uint64],

		`{"maximum":9223372036854775807,"minimum":-9223372036854775808,"type":"integer"}`: a2ad.SchemaOf[int64],

		`{"items":{"anyOf":[{"type":"boolean"},{"type":"null"}]},"type":"array"}`: a2ad.SchemaOf[[]*bool],

		`{"additionalProperties":{"type":"number"},"type":"object"}`: a2ad.SchemaOf[map[string]float64],

		`{"additionalProperties":{},"propertyNames":{"pattern":"^(0|[1-9][0-9]*)$"},"type":"object"}`: a2ad.
			SchemaOf[ids],
	} {
		if got, err := schema(); err != nil || string(got) != want {
			t.Errorf("SchemaOf = %s, %v, want %s", got, err, want)
		}
	}
}

// asks gives an agent that asks for a type an answer, and returns what it reads.
func asks[T any](t *testing.T, answer string) (value T, err error) {
	t.Helper()
	_, err = a2adtest.Run(func(ctx context.Context, t *a2ad.Task) (any, error) {
		var wrong error
		if value, wrong = a2ad.AskFor[T](ctx, t, "What?"); wrong != nil {
			return nil, wrong
		}
		return "read", nil
	}, "x", a2adtest.Client{Answers: []any{json.RawMessage(answer)}, MaxAttempts: 1})
	return value, err
}

// To JSON Schema, a number is an integer by its value.
func TestIntegersInEachForm(t *testing.T) {
	t.Parallel()
	type numbers struct {
		A, B, C, D int
		Large      uint64
		Float      float64
		Any        any
	}
	got, err := asks[numbers](t, `{"A": 5.0, "B": 1e3, "C": -0.0, "D": 120e-1, "Large": 9007199254740993.0,
		"Float": 2.5, "Any": [1.0, 1e-999999999, 1e300]}`)
	want := numbers{5, 1000, 0, 12, 9007199254740993, 2.5, []any{1.0, 0.0, 1e300}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

// An answer that the program could not read is refused before.
func TestAnswersThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for answer, ask := range map[string]func(string) error{
		"300":                    func(a string) error { _, err := asks[uint8](t, a); return err },
		`"24.12.2026"`:           func(a string) error { _, err := asks[time.Time](t, a); return err },
		`"2026-12-24 18:00:00Z"`: func(a string) error { _, err := asks[time.Time](t, a); return err },
		`{"n": 1}`: func(a string) error {
			_, err := asks[struct {
				N int `json:"n,string"`
			}](t, a)
			return err
		},
	} {
		if err := ask(answer); !errors.Is(err, a2adtest.ErrWrongAnswer) {
			t.Errorf("%s: %v, want a wrong answer", answer, err)
		}
	}
	at, err := asks[time.Time](t, `"2026-12-24T18:00:00.5+01:00"`)
	if err != nil || fmt.Sprint(at.UTC()) != "2026-12-24 17:00:00.5 +0000 UTC" {
		t.Errorf("got %s, %v", at, err)
	}
}
