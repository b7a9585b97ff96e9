package engine_test

import (
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
)

func TestInputModesAreEnforcedWhereTheAgentSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	modes := []string{"text/plain", "image/*", "application/json; charset=utf-8"}
	for name, tc := range map[string]struct {
		part a2a.Part
		ok   bool
	}{
		"text":                   {a2a.Part{Kind: a2a.PartText, Text: "x"}, true},
		"text of another type":   {a2a.Part{Kind: a2a.PartText, Text: "x", MediaType: "text/html"}, false},
		"an image":               {a2a.Part{Kind: a2a.PartFile, Text: "AA==", MediaType: "Image/PNG"}, true},
		"a linked image":         {a2a.Part{Kind: a2a.PartURL, Text: "https://x", MediaType: "image/svg+xml; q=1"}, true},
		"a file of any type":     {a2a.Part{Kind: a2a.PartFile, Text: "AA=="}, false},
		"data":                   {a2a.Part{Kind: a2a.PartData, Data: a2a.Raw(`1`)}, true},
		"a file of another type": {a2a.Part{Kind: a2a.PartFile, Text: "AA==", MediaType: "imagex/png"}, false},
	} {
		for _, enforce := range []bool{true, false} {
			agent := &a2a.Agent{Name: words.Name, EnforceInputModes: enforce, Card: a2a.Card{InputModes: modes}}
			op := send("x", func(op *a2a.SendMessage) {
				op.Message.Parts = []a2a.Part{{Kind: a2a.PartText, Text: "first"}, tc.part}
			})
			_, err := r.Send(r.ctx, ann, agent, op)
			if tc.ok || !enforce {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			wantCode(t, name, err, a2a.CodeContentTypeNotSupported)
			if _, err := r.Stream(r.ctx, ann, agent, op); a2a.CodeOf(err) != a2a.CodeContentTypeNotSupported {
				t.Errorf("%s: stream: %v", name, err)
			}
		}
	}
	open := &a2a.Agent{Name: words.Name, EnforceInputModes: true, Card: a2a.Card{InputModes: []string{"*/*"}}}
	if _, err := r.Send(r.ctx, ann, open, send("x", func(op *a2a.SendMessage) { op.Message.Parts[0].MediaType = "made/up" })); err != nil {
		t.Errorf("*/*: %v", err)
	}
	list, err := r.List(r.ctx, ann, words, &a2a.ListTasks{ContextID: "refused"})
	if err != nil || list.Total != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}
