package v03_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/wiretest"
)

// Each row is read in both modes. strict names the member that strict mode refuses. If strict is empty, strict
// mode reads wantStrict, or else want.
func TestLenientParts(t *testing.T) {
	t.Parallel()
	file := a2a.Part{Kind: a2a.PartFile, Text: "QQ==", MediaType: "a/b", Filename: "f"}
	url := a2a.Part{Kind: a2a.PartURL, Text: "https://u"}
	for _, tc := range []struct {
		part   string
		want   a2a.Part
		rules  string
		strict string // the member of the part that strict mode refuses
	}{
		{`{"text":"x"}`, a2a.Part{Kind: a2a.PartText, Text: "x"}, "L-08", ""},
		{`{"kind":null,"text":"x","data":null}`, a2a.Part{Kind: a2a.PartText, Text: "x"}, "L-08", ""},
		{`{"data":{"a":1}}`, a2a.Part{Kind: a2a.PartData, Data: a2a.Raw(`{"a":1}`)}, "L-08", ""},
		{`{"file":{"uri":"https://u"}}`, url, "L-08", ""},
		{`{"kind":"file","mimeType":"a/b","name":"f","data":"QQ=="}`, file, "L-05", "file"},
		{`{"kind":"file","mimeType":"a/b","name":"f","bytes":"QQ"}`, file, "L-05", "file"},
		{`{"kind":"file","mimeType":"a/b","name":"f","fileWithBytes":"QQ=="}`, file, "L-05", "file"},
		{`{"kind":"file","uri":"https://u"}`, url, "L-05", "file"},
		{`{"kind":"file","url":"https://u"}`, url, "L-05", "file"},
		{`{"kind":"file","fileWithUri":"https://u"}`, url, "L-05", "file"},
		{`{"kind":"file","file":{"data":"QQ==","mimeType":"a/b","name":"f"}}`, file, "L-05", "file.bytes"},
		{`{"kind":"file","file":{"fileWithBytes":"QQ==","mimeType":"a/b","name":"f"}}`, file, "L-05", "file.bytes"},
		{`{"kind":"file","file":{"url":"https://u"}}`, url, "L-05", "file.bytes"},
		{`{"kind":"file","file":{"fileWithUri":"https://u"}}`, url, "L-05", "file.bytes"},
		{`{"kind":"file","file":{"uri":"https://u","data":"QQ=="},"data":"QQ==","bytes":"QQ==","mimeType":7}`, url, "",
			""},
		{`{"kind":"data","data":{},"mimeType":"a/b"}`,
			a2a.Part{Kind: a2a.PartData, Data: a2a.Raw(`{}`), MediaType: "a/b"}, "L-07", "-"},
		{`{"kind":"data","data":{},"mimeType":7}`, a2a.Part{Kind: a2a.PartData, Data: a2a.Raw(`{}`)}, "", ""},
		{`{"kind":"data","data":"QQ=="}`, a2a.Part{Kind: a2a.PartData, Data: a2a.Raw(`"QQ=="`)}, "L-07", "data"},
		{`{"kind":"data","data":1.0}`, a2a.Part{Kind: a2a.PartData, Data: a2a.Raw(`1.0`)}, "L-07", "data"},
		{`{"kind":"data","data":false}`, a2a.Part{Kind: a2a.PartData, Data: a2a.Raw(`false`)}, "L-07", "data"},
		{`{"kind":"data","data":[{"a":1}]}`, a2a.Part{Kind: a2a.PartData, Data: a2a.Raw(`[{"a":1}]`)}, "L-07", ""},
		// Wrapped data, as a2ad and the SDKs write it, in both modes.
		{`{"kind":"data","data":{"value":null},"metadata":{"data_part_compat":true}}`,
			a2a.Part{Kind: a2a.PartData, Data: a2a.Raw(`null`)}, "", ""},
		{`{"kind":"data","data":{"value":1},"metadata":{"a":1,"data_part_compat":true}}`,
			a2a.Part{Kind: a2a.PartData, Data: a2a.Raw(`1`), Metadata: a2a.Raw(`{"a":1}`)}, "", ""},
		{`{"kind":"data","data":{"value":1,"b":2},"metadata":{"data_part_compat":true}}`,
			a2a.Part{Kind: a2a.PartData, Data: a2a.Raw(`{"value":1,"b":2}`),
				Metadata: a2a.Raw(`{"data_part_compat":true}`)}, "", ""},
		{`{"kind":"data","data":{"value":1},"metadata":{"data_part_compat":"true"}}`,
			a2a.Part{Kind: a2a.PartData, Data: a2a.Raw(`{"value":1}`),
				Metadata: a2a.Raw(`{"data_part_compat":"true"}`)}, "", ""},
		{`{"kind":"text","text":"x","metadata":{"a2ad/mediaType":"a/b", "k" : 1,"a2ad/filename":"f"}}`,
			a2a.Part{Kind: a2a.PartText, Text: "x", MediaType: "a/b", Filename: "f", Metadata: a2a.Raw(`{ "k" : 1}`)},
			"", ""},
		{`{"kind":"text","text":"x","metadata":{"a2ad/mediaType":1,"a2ad/filename":""}}`,
			a2a.Part{Kind: a2a.PartText, Text: "x", Metadata: a2a.Raw(`{"a2ad/mediaType":1,"a2ad/filename":""}`)}, "",
			""},
	} {
		for _, lenient := range []bool{true, false} {
			params := `{"message":{"kind":"message","messageId":"m","role":"user","parts":[` + tc.part + `]}}`
			op, rules, err := decode(t, lenient, "message/send", params)
			want := tc.want
			switch {
			case lenient && strings.Join(rules, " ") != tc.rules:
				t.Errorf("%s: rules %v, want %s", tc.part, rules, tc.rules)
			case lenient || tc.strict == "":
			case tc.strict == "-": // read without the member that 0.3.0 does not have
				want.MediaType = ""
			default:
				wiretest.WantInvalid(t, err, "message.parts[0]."+tc.strict, "strict", tc.part)
				continue
			}
			if err != nil {
				t.Errorf("%s (lenient %v): %v", tc.part, lenient, err)
				continue
			}
			if diff := cmp.Diff([]a2a.Part{want}, op.(*a2a.SendMessage).Message.Parts); diff != "" {
				t.Errorf("%s (lenient %v): -want +got\n%s", tc.part, lenient, diff)
			}
		}
	}
}

// Early drafts of the protocol called kind "type". A part without kind may have a type, unless the type names
// another content than the part has.
func TestTypeMustMatchTheContentOfThePart(t *testing.T) {
	t.Parallel()
	for part, member := range map[string]string{
		`{"type":"text","text":"x"}`:                           "",
		`{"type":"data","data":{}}`:                            "",
		`{"type":"file","file":{"uri":"https://u"}}`:           "",
		`{"type":null,"text":"x"}`:                             "",
		`{"type":7,"text":"x"}`:                                "", // not a name
		`{"kind":"text","type":"file","text":"x"}`:             "", // kind takes precedence
		`{"type":"file","text":"x"}`:                           "type",
		`{"type":"text","data":{}}`:                            "type",
		`{"type":"data","file":{"uri":"https://u"}}`:           "type",
		`{"type":"image","text":"x"}`:                          "type",
		`{"type":"Text","text":"x"}`:                           "type",
		`{"type":"","text":"x"}`:                               "type",
		`{"type":"text"}`:                                      "kind",
		`{"type":"text","text":"x","file":{"uri":"https://"}}`: "kind",
	} {
		for _, lenient := range []bool{true, false} {
			_, _, err := decode(t, lenient, "message/send",
				`{"message":{"messageId":"m","role":"user","parts":[`+part+`]}}`)
			if member == "" {
				if err != nil {
					t.Errorf("%s (lenient %v): %v", part, lenient, err)
				}
				continue
			}
			wiretest.WantInvalid(t, err, "message.parts[0]."+member, "part", part)
		}
	}
}

func TestLenientRefuses(t *testing.T) {
	t.Parallel()
	for part, field := range map[string]string{
		`{"kind":"file","mimeType":"a/b"}`:                "file",       // L-06
		`{"kind":"file","file":{"mimeType":"a/b"}}`:       "file.bytes", // L-06
		`{"kind":"file","data":"QQ==","bytes":"QQ=="}`:    "file",
		`{"kind":"file","data":"QQ==","uri":"https://u"}`: "file.bytes",
		`{"kind":"file","data":"not base64"}`:             "file.bytes",
		`{"kind":"file","data":{}}`:                       "file.bytes",
		`{"kind":"file","file":"QQ==","data":"QQ=="}`:     "file",
		`{"kind":"file","mimeType":7,"data":"QQ=="}`:      "file.mimeType",
		`{"kind":"data","data":null}`:                     "data",
		`{"kind":"data","data":1,"mimeType":"\u0000"}`:    "mimeType",
		`{"data":{},"text":"x"}`:                          "kind",
		`{"mimeType":"a/b","uri":"https://u"}`:            "kind",
		`{"kind":"text","data":"x"}`:                      "text",
		`{"type":"text","metadata":{}}`:                   "kind",
	} {
		_, _, err := decode(t, true, "message/send",
			`{"message":{"kind":"message","messageId":"m","role":"user","parts":[`+part+`]}}`)
		wiretest.WantInvalid(t, err, "message.parts[0]."+field, "lenient", part)
	}
}

func TestLenientContext(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		inside, beside string
		want, rules    string
		fails          bool
	}{
		{``, `"c"`, "c", "L-02", false},
		{`null`, `"c"`, "c", "L-02", false},
		{`"c"`, `"c"`, "c", "", false},
		{`"c"`, `"\u0063"`, "c", "", false},
		{`"c"`, `"d"`, "", "L-02", true},
		{`"c"`, `""`, "c", "", false},
		{`"c"`, `7`, "c", "", false},
		{``, `null`, "", "", false},
	} {
		params := `{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":""}]`
		if tc.inside != "" {
			params += `,"contextId":` + tc.inside
		}
		params += `},"contextId":` + tc.beside + `}`
		op, rules, err := decode(t, true, "message/send", params)
		if got := strings.Join(rules, " "); got != tc.rules {
			t.Errorf("%s: rules %q, want %q", params, got, tc.rules)
		}
		if tc.fails {
			wiretest.WantInvalid(t, err, "message.contextId", "lenient", params)
		} else if err != nil || op.(*a2a.SendMessage).Message.ContextID != tc.want {
			t.Errorf("%s: %+v, %v", params, op, err)
		}
		op, rules, err = decode(t, false, "message/send", params)
		inside, _ := rawjson.String([]byte(tc.inside))
		if err != nil || len(rules) > 0 || op.(*a2a.SendMessage).Message.ContextID != inside {
			t.Errorf("strict %s: %+v, rules %v, %v", params, op, rules, err)
		}
	}
}

func TestLenientKindOfMessage(t *testing.T) {
	t.Parallel()
	for _, lenient := range []bool{true, false} {
		_, rules, err := decode(t, lenient, "message/send",
			`{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":""}]}}`)
		if err != nil || strings.Join(rules, " ") != "L-03" {
			t.Errorf("lenient %v: %v, rules %v", lenient, err, rules)
		}
	}
}

func TestLenientList(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		params, rules string
		want          a2a.ListTasks
		field         string
	}{
		{``, "L-01", a2a.ListTasks{}, ""},
		{`{}`, "L-01", a2a.ListTasks{}, ""},
		{`{"contextId":"c","status":"working","pageSize":10}`, "L-01",
			a2a.ListTasks{ContextID: "c", State: a2a.StateWorking, PageSize: 10}, ""},
		{`{"status":"cancelled"}`, "L-01 L-04", a2a.ListTasks{State: a2a.StateCanceled}, ""},
		{`{"status":"canceled","pageToken":"p","historyLength":0,"includeArtifacts":true}`, "L-01",
			a2a.ListTasks{State: a2a.StateCanceled, PageToken: "p", HistoryLength: pointer(0), IncludeArtifacts: true},
			""},
		{`{"status":null,"contextId":null,"pageSize":null,"pageToken":null,"historyLength":null,` +
			`"includeArtifacts":null}`, "L-01", a2a.ListTasks{}, ""},
		{`{"status":"WORKING"}`, "L-01", a2a.ListTasks{}, "status"},
		{`{"status":""}`, "L-01", a2a.ListTasks{}, "status"},
		{`{"status":1}`, "L-01", a2a.ListTasks{}, "status"},
		{`{"pageSize":0}`, "L-01", a2a.ListTasks{}, "pageSize"},
		{`{"pageSize":101}`, "L-01", a2a.ListTasks{}, "pageSize"},
		{`{"pageSize":"1"}`, "L-01", a2a.ListTasks{}, "pageSize"},
		{`{"statusTimestampAfter":"2026-11-20T10:00:00+01:00"}`, "L-01",
			a2a.ListTasks{UpdatedAfter: time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)}, ""},
		{`{"statusTimestampAfter":"yesterday"}`, "L-01", a2a.ListTasks{}, "statusTimestampAfter"},
		{`{"pageToken":1}`, "L-01", a2a.ListTasks{}, "pageToken"},
		{`{"includeArtifacts":0}`, "L-01", a2a.ListTasks{}, "includeArtifacts"},
		{`{"contextId":"\u0000"}`, "L-01", a2a.ListTasks{}, "contextId"},
		{`[]`, "L-01", a2a.ListTasks{}, "params"},
		{`{"context_id":"c","page_size":10,"page_token":"p","history_length":0,"include_artifacts":true,` +
			`"last_updated_after":"2026-11-20T12:00:00.5+02:00"}`,
			"L-01 L-24",
			a2a.ListTasks{ContextID: "c", PageSize: 10, PageToken: "p", HistoryLength: pointer(0),
				IncludeArtifacts: true,
				UpdatedAfter:     time.Date(2026, 11, 20, 10, 0, 0, 5e8, time.UTC)}, ""},
		{`{"context_id":"other","contextId":"c"}`, "L-01", a2a.ListTasks{ContextID: "c"}, ""},
		{`{"context_id":null,"last_updated_after":null}`, "L-01", a2a.ListTasks{}, ""},
		{`{"page_size":0}`, "L-01 L-24", a2a.ListTasks{}, "pageSize"},
		{`{"last_updated_after":"yesterday"}`, "L-01 L-24", a2a.ListTasks{}, "statusTimestampAfter"},
		{`{"last_updated_after":1}`, "L-01 L-24", a2a.ListTasks{}, "statusTimestampAfter"},
	} {
		op, rules, err := decode(t, true, "tasks/list", tc.params)
		if got := strings.Join(rules, " "); got != tc.rules {
			t.Errorf("%s: rules %q, want %q", tc.params, got, tc.rules)
		}
		if tc.field != "" {
			wiretest.WantInvalid(t, err, tc.field, "tasks/list", tc.params)
		} else if diff := cmp.Diff(a2a.Op(&tc.want), op); err != nil || diff != "" {
			t.Errorf("%s: %v, -want +got\n%s", tc.params, err, diff)
		}
		if _, rules, err := decode(t, false, "tasks/list", tc.params); a2a.CodeOf(err) != a2a.CodeMethodNotFound ||
			len(rules) > 0 {
			t.Errorf("strict %s: %v, rules %v", tc.params, err, rules)
		}
	}
}

// The requests are the examples of the page.
func TestRequestExamples(t *testing.T) {
	t.Parallel()
	type outcome struct {
		op    a2a.Op
		rules string
		code  a2a.ErrorCode // of strict mode; zero: both modes read the same operation
	}
	want := map[string]outcome{
		"message/send": {&a2a.SendMessage{Blocking: true, StreamRules: toTheLast,
			Message: a2a.Message{ID: "msg-123", ContextID: "ctx-456", Role: a2a.RoleUser,
				Parts: []a2a.Part{{Kind: a2a.PartText, Text: "Research quantum computing applications"}}}}, "L-02 L-03",
			0},
		"tasks/get": {&a2a.GetTask{ID: "task-abc", HistoryLength: pointer(10)}, "", 0},
		"tasks/list": {&a2a.ListTasks{ContextID: "ctx-456", State: a2a.StateWorking, PageSize: 10}, "L-01",
			a2a.CodeMethodNotFound},
		"tasks/cancel": {&a2a.CancelTask{ID: "task-abc"}, "", 0},
	}
	doc := rawjson.Trim(wiretest.ReadFile(t, "testdata/seed-004-requests.json"))
	if err := rawjson.Check(doc, 16); err != nil {
		t.Fatal(err)
	}
	n := 0
	for request := range rawjson.Elements(doc) {
		n++
		method, _ := rawjson.String(rawjson.Get(request, "method"))
		params := string(rawjson.Get(request, "params"))
		op, rules, err := decode(t, true, method, params)
		if err != nil || strings.Join(rules, " ") != want[method].rules {
			t.Errorf("%s: %v, rules %v", method, err, rules)
			continue
		}
		if diff := cmp.Diff(want[method].op, withoutDigest(op)); diff != "" {
			t.Errorf("%s: -want +got\n%s", method, diff)
		}
		op, _, err = decode(t, false, method, params)
		switch {
		case want[method].code != 0:
			if a2a.CodeOf(err) != want[method].code {
				t.Errorf("strict %s: %v", method, err)
			}
		case err != nil:
			t.Errorf("strict %s: %v", method, err)
		default:
			strict := want[method].op
			if send, ok := strict.(*a2a.SendMessage); ok {
				copied := *send
				copied.Message.ContextID = "" // outside the message it has no meaning
				strict = &copied
			}
			if diff := cmp.Diff(strict, withoutDigest(op)); diff != "" {
				t.Errorf("strict %s: -want +got\n%s", method, diff)
			}
		}
	}
	if n != len(want) {
		t.Errorf("%d requests on the page, want %d", n, len(want))
	}
}

func withoutDigest(op a2a.Op) a2a.Op {
	if send, ok := op.(*a2a.SendMessage); ok {
		send.Digest = [32]byte{}
	}
	return op
}
