package engine_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
)

// wants is a schema with one text.
type wants string

func (w wants) Check(v a2a.Raw) (path, mismatch string) {
	if string(v) == string(w) {
		return "", ""
	}
	return ".a[0]", "must be " + string(w)
}

func parts(list ...a2a.Part) func(*a2a.SendMessage) {
	return func(op *a2a.SendMessage) { op.Message.Parts = list }
}

func TestSendRefusesTypesThatTheCardOmits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	text := func(kind string) a2a.Part { return a2a.Part{Kind: a2a.PartText, Text: "x", MediaType: kind} }
	file := func(kind string) a2a.Part { return a2a.Part{Kind: a2a.PartFile, Text: "eA==", MediaType: kind} }
	link := func(kind string) a2a.Part {
		return a2a.Part{Kind: a2a.PartURL, Text: "https://example.com/x", MediaType: kind}
	}
	data := func(kind string) a2a.Part { return a2a.Part{Kind: a2a.PartData, Data: a2a.Raw("1"), MediaType: kind} }
	for _, tc := range []struct {
		modes    string
		part     a2a.Part
		accepted bool
	}{
		{"", file("image/png"), true},
		{"*/*", file(""), true},
		{"text/plain", text(""), true},
		{"text/plain", text("text/plain; charset=utf-8"), true},
		{"text/plain;charset=utf-8", text("Text/Plain"), true},
		{"text/plain", text("text/markdown"), false},
		{"text/markdown", text(""), true},
		{"image/*", text(""), false},
		{"text/plain", data(""), false},
		{"text/plain application/json", data(""), true},
		{"application/json", data("application/vnd.x+json"), false},
		{"image/*", file("image/png"), true},
		{"image/*", file("imagex/png"), false},
		{"image/*", link("image/png"), true},
		{"image/*", file(""), false},
		{"application/octet-stream", file(""), true},
		{"application/octet-stream", link(""), true},
		{"text/plain", file("*"), false},
		{"text/plain", file("*/*"), false},
		{"text/plain", file("text/plain"), true},
	} {
		agent := &a2a.Agent{Name: "words", Card: a2a.Card{InputModes: strings.Fields(tc.modes)}}
		_, err := r.Send(t.Context(), ann, agent, send("x",
			parts(a2a.Part{Kind: a2a.PartText, Text: "x", MediaType: first(agent.Card.InputModes)}, tc.part)))
		if tc.accepted {
			if err != nil {
				t.Errorf("%q, %+v: %v", tc.modes, tc.part, err)
			}
			continue
		}
		wantCode(t, tc.modes, err, a2a.CodeContentTypeNotSupported)
		var e *a2a.Error
		if errors.As(err, &e); e == nil || e.Field != "message.parts[1]" ||
			!strings.Contains(e.Message, "it accepts "+strings.Join(strings.Fields(tc.modes), ", ")) {
			t.Errorf("%q: error %+v, want one that names the part and the accepted types", tc.modes, err)
		}
	}
}

func first(modes []string) string {
	if len(modes) == 0 {
		return ""
	}
	return strings.ReplaceAll(modes[0], "*", "x")
}

func TestSendChecksAPartAgainstItsSkill(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	agent := &a2a.Agent{Name: "words", Inputs: map[string]a2a.Schema{"s": wants(`"good"`)}, Card: a2a.Card{
		InputModes: []string{"text/plain", "application/json"},
		Skills:     []a2a.Skill{{ID: "s"}, {ID: "free"}, {ID: "image", InputModes: []string{"image/png"}}},
	}}
	free := &a2a.Agent{Name: "words"}
	data := func(v, meta string) a2a.Part {
		return a2a.Part{Kind: a2a.PartData, Data: a2a.Raw(v), Metadata: a2a.Raw(meta)}
	}
	image := func(meta string) a2a.Part {
		return a2a.Part{Kind: a2a.PartFile, Text: "eA==", MediaType: "image/png", Metadata: a2a.Raw(meta)}
	}
	const ok = a2a.CodeInternal
	for _, tc := range []struct {
		name  string
		agent *a2a.Agent
		meta  string // metadata of the message
		part  a2a.Part
		code  a2a.ErrorCode
		field string
	}{
		{"fits", agent, "", data(`"good"`, `{"skillId":"s"}`), ok, ""},
		{"fits, by the message", agent, `{"skillId":"s"}`, data(`"good"`, ""), ok, ""},
		{"does not fit", agent, "", data(`"bad"`, `{"skillId":"s"}`), a2a.CodeInvalidParams,
			"message.parts[0].data.a[0]"},
		{"does not fit, by the message", agent, `{"skillId":"s"}`, data(`"bad"`, `{"x":1}`), a2a.CodeInvalidParams,
			"message.parts[0].data.a[0]"},
		{"the part wins", agent, `{"skillId":"s"}`, data(`"bad"`, `{"skillId":"free"}`), ok, ""},
		{"for no skill", agent, "", data(`"bad"`, ""), ok, ""},
		{"text has no schema", agent, `{"skillId":"s"}`, a2a.Part{Kind: a2a.PartText, Text: "bad"}, ok, ""},
		{"no such skill", agent, "", data(`"good"`, `{"skillId":"S"}`), a2a.CodeInvalidParams,
			"message.parts[0].metadata.skillId"},
		{"no such skill, by the message", agent, `{"skillId":"S"}`, data(`"good"`, ""), a2a.CodeInvalidParams,
			"message.metadata.skillId"},
		{"no text", agent, "", data(`"good"`, `{"skillId":1}`), a2a.CodeInvalidParams,
			"message.parts[0].metadata.skillId"},
		{"no schemas: the name means nothing", free, "", data(`"bad"`, `{"skillId":"S"}`), ok, ""},
		{"modes of the skill", agent, "", image(`{"skillId":"image"}`), ok, ""},
		{"modes of any skill", agent, "", image(""), ok, ""},
		{"modes of another skill", agent, "", image(`{"skillId":"s"}`), a2a.CodeContentTypeNotSupported,
			"message.parts[0]"},
		{"not the agent's modes", agent, "", data(`1`, `{"skillId":"image"}`), a2a.CodeContentTypeNotSupported,
			"message.parts[0]"},
	} {
		_, err := r.Send(t.Context(), ann, tc.agent, send("x", parts(tc.part), func(op *a2a.SendMessage) {
			op.Message.Metadata = a2a.Raw(tc.meta)
		}))
		if tc.code == ok {
			if err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
			continue
		}
		wantCode(t, tc.name, err, tc.code)
		var e *a2a.Error
		if errors.As(err, &e); e == nil || e.Field != tc.field {
			t.Errorf("%s: error %+v, want one that names %s", tc.name, err, tc.field)
		}
	}
}
