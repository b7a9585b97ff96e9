package tasks

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/a2a/a2atest"
	"github.com/a2ad/a2ad/internal/rawjson"
)

var update = flag.Bool("update", false, "write the golden files of testdata again")

// Databases keep this encoding for longer than any version of this code. Later versions must still read what a golden
// file contains: a change that fails this test needs a new member or a migration, not -update.
func TestGoldenBodies(t *testing.T) {
	t.Parallel()
	text := []a2a.Part{{Kind: a2a.PartText, Text: "hello"}}
	parts := []a2a.Part{
		{Kind: a2a.PartText, Text: "quote \" backslash \\ NUL \x00 line\r\n tab\t <html> é 😀 \u2028"},
		{Kind: a2a.PartText},
		{
			Kind: a2a.PartText, Text: "x", MediaType: "text/markdown", Filename: "a.md",
			Metadata: a2a.Raw(`{ "z":1, "a":1.0 }`),
		},
		{Kind: a2a.PartFile, Text: "aGVsbG8="},
		{Kind: a2a.PartFile, MediaType: "image/png", Filename: "empty.png"},
		{Kind: a2a.PartURL, Text: "https://example.org/?a=1&b=2", MediaType: "application/pdf", Filename: "b.pdf"},
		{Kind: a2a.PartData, Data: a2a.Raw(`{"n":12345678901234567890,"\u0000":[1e999, -0]}`)},
		{Kind: a2a.PartData, Data: a2a.Raw(`null`), Metadata: a2a.Raw(`{}`)},
		{Kind: a2a.PartData, Data: a2a.Raw("[ ]"), MediaType: "application/json"},
	}
	full := a2a.Message{
		ID: "m-1", Role: a2a.RoleUser, Parts: text, ContextID: "not stored", TaskID: "not stored",
		ReferenceTaskIDs: []string{"t-1", "t-2"},
		Extensions:       []string{"https://example.org/ext"}, Metadata: a2a.Raw(`{"k":[1.50]}`),
	}
	agent := a2a.Message{ID: "m-2", Role: a2a.RoleAgent, Parts: text}
	artifact := a2a.Artifact{
		ID: "a-1", Name: "name", Description: "what it is",
		Parts: parts[:3], Extensions: []string{"e1", "e2"}, Metadata: a2a.Raw(`{"m":0}`),
	}
	status := func(s a2a.State, m *a2a.Message, meta string) a2a.Event {
		return &a2a.StatusUpdate{Status: a2a.Status{State: s, Message: m}, Metadata: a2a.Raw(meta)}
	}
	for name, golden := range map[string]string{
		"message-full": string(appendMessage(nil, &full)),
		"message-activated": string(appendMessage(nil,
			&a2a.Message{ID: "m-3", Role: a2a.RoleUser, Parts: text, Activated: []string{"https://example.org/ext"}})),
		"message-request": string(appendMessage(nil,
			&a2a.Message{ID: "m-4", Role: a2a.RoleUser, Parts: text, RequestMetadata: a2a.Raw(`{"n": 1.50}`)})),
		"message-agent":         string(appendMessage(nil, &agent)),
		"message-empty":         string(appendMessage(nil, &a2a.Message{})),
		"parts":                 string(appendParts(nil, parts)),
		"parts-none":            string(appendParts(nil, nil)),
		"event-status":          row(t, status(a2a.StateWorking, nil, "")),
		"event-status-message":  row(t, status(a2a.StateCompleted, &agent, "")),
		"event-status-metadata": row(t, status(a2a.StateInputRequired, nil, `{"x":1}`)),
		"event-status-both":     row(t, status(a2a.StateFailed, &agent, `{}`)),
		"event-artifact":        row(t, &a2a.ArtifactUpdate{Artifact: artifact}),
		"event-artifact-bare":   row(t, &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a-2"}}),
		"event-artifact-chunk": row(t,
			&a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a-1", Parts: text}, Append: true}),
		"event-artifact-last-chunk": row(t,
			&a2a.ArtifactUpdate{Artifact: artifact, Append: true, LastChunk: true, Metadata: a2a.Raw(`{"e":true}`)}),
	} {
		file := filepath.Join("testdata", name+".golden")
		if *update {
			if err := os.WriteFile(file, []byte(golden+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.TrimSuffix(string(want), "\n"), golden); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for i, e := range []a2a.Event{
		status(a2a.StateFailed, &agent, `{}`),
		&a2a.ArtifactUpdate{Artifact: artifact, Append: true, LastChunk: true, Metadata: a2a.Raw(`{"e":true}`)},
	} {
		if diff := cmp.Diff(e, roundTrip(t, e)); diff != "" {
			t.Errorf("event %d after encode and decode (-want +got):\n%s", i, diff)
		}
	}
}

// row returns what the store keeps of an event, one line per column.
func row(t *testing.T, e a2a.Event) string {
	t.Helper()
	r, err := encodeEvent(e)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("kind %d state %d\nbody %s", r.kind, r.state, r.body)
	if r.artifactID != "" {
		text += fmt.Sprintf("\nartifact_id %s\nparts %s", r.artifactID, r.parts)
	}
	if r.messageID != "" {
		text += fmt.Sprintf("\nmessage_id %s\nmessage %s", r.messageID, r.message)
	}
	return text
}

// A body of another version, or one that was written by hand, is read without what is unknown.
func TestBodiesOfOtherVersionsAreRead(t *testing.T) {
	t.Parallel()
	body := []byte(`{ "unknown" : [{"a":1}] , ` +
		`"message" : { "parts":[ {"future":1} , {"text":"x"} ], "messageId" : "m" } , "metadata":{ } } `)
	got, err := DecodeEvent(kindStatus, int16(a2a.StateWorking), "", body, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &a2a.StatusUpdate{
		Status: a2a.Status{
			State:   a2a.StateWorking,
			Message: &a2a.Message{ID: "m", Role: a2a.RoleAgent, Parts: []a2a.Part{{}, {Kind: a2a.PartText, Text: "x"}}},
		},
		Metadata: a2a.Raw("{ }"),
	}
	if diff := cmp.Diff(a2a.Event(want), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := DecodeEvent(9, 0, "", []byte(`{}`), nil); err == nil {
		t.Error("an event of an unknown kind was read")
	}
	m, err := DecodeEvent(kindMessage, 0, "", []byte(`{"messageId":"m","role":"ROLE_AGENT","parts":[]}`), nil)
	if diff := cmp.Diff(a2a.Event(&a2a.Message{ID: "m", Role: a2a.RoleAgent}), m); diff != "" || err != nil {
		t.Errorf("a direct reply (-want +got): %v\n%s", err, diff)
	}
}

func TestEventsThatAreNotLoggedAreRefused(t *testing.T) {
	t.Parallel()
	for _, e := range []a2a.Event{&a2a.Checkpoint{}, &a2a.Message{}, nil} {
		if _, err := encodeEvent(e); err == nil {
			t.Errorf("an event of type %T was encoded", e)
		}
	}
}

// roundTrip encodes and decodes an event.
func roundTrip(t rapid.TB, e a2a.Event) a2a.Event {
	t.Helper()
	r, err := encodeEvent(e)
	if err != nil {
		t.Fatal(err)
	}
	for what, doc := range map[string][]byte{"body": r.body, "parts": r.parts, "message": r.message} {
		if len(doc) == 0 {
			continue
		}
		if err := rawjson.Check(doc, 100); err != nil {
			t.Fatalf("%s is not JSON: %v\n%s", what, err, doc)
		}
	}
	got, err := DecodeEvent(r.kind, r.state, r.artifactID, r.body, r.parts)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// checkBody draws a message and an event, and checks that both are the same after encode and decode.
func checkBody(t *rapid.T) {
	m := a2atest.Message().Draw(t, "message")
	m.ContextID, m.TaskID = "", "" // they are stored with the task
	body := appendMessage(nil, &m)
	if diff := cmp.Diff(m, DecodeMessage(body, m.Role), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("message (-want +got):\n%s\n%s", diff, body)
	}
	e := a2atest.Event().Draw(t, "event")
	switch u := e.(type) {
	case *a2a.Message:
		return
	case *a2a.StatusUpdate:
		u.Status.Time = time.Time{} // it has its own column
		if u.Status.Message != nil {
			u.Status.Message.ContextID, u.Status.Message.TaskID = "", ""
		}
	}
	if diff := cmp.Diff(e, roundTrip(t, e), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("event (-want +got):\n%s", diff)
	}
}

func TestAnyBodyReadsBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, checkBody)
}

func FuzzBody(f *testing.F) {
	f.Add(bytes.Repeat([]byte{0, 1, 2, 3}, 4<<10))
	f.Fuzz(rapid.MakeFuzz(checkBody))
}
