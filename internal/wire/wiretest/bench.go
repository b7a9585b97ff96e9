package wiretest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/wire"
)

// prose is typical text of agents: lines, some quotes, and some letters beyond ASCII.
func prose(n int) string {
	const line = "Die Antwort lautet: \"the quick brown fox\" jumps over 13 lazy dogs, naïvely…\n"
	return strings.Repeat(line, n/len(line)+1)[:n]
}

var (
	benchID   = a2a.ID{0x01, 0x9a, 0x9d, 0x40, 0x12, 0x34, 0x7a, 0xbc, 0x8d, 0xef, 1, 2, 3, 4, 5, 6}
	benchTime = time.Date(2026, 11, 20, 10, 0, 0, 7_000_000, time.UTC)
)

// bigTask is 34 kB on the wire.
func bigTask() *a2a.Task {
	t := &a2a.Task{ID: benchID, ContextID: "ctx-1", Status: a2a.Status{State: a2a.StateCompleted, Time: benchTime},
		Metadata: a2a.Raw(`{"trace":"abc","n":1.0}`)}
	for i := range 10 {
		t.History = append(t.History, a2a.Message{
			ID: fmt.Sprintf("message-%d", i), Role: a2a.RoleUser,
			Parts: []a2a.Part{{Kind: a2a.PartText, Text: prose(500)}}})
	}
	for i := range 2 {
		t.Artifacts = append(t.Artifacts,
			a2a.Artifact{ID: fmt.Sprintf("artifact-%d", i), Name: "report", Parts: []a2a.Part{
				{Kind: a2a.PartText, Text: prose(10_000)},
				{Kind: a2a.PartData, Data: a2a.Raw(`{"rows":[` + strings.Repeat(`1.25,`, 500) + `0]}`)}}})
	}
	return t
}

// Bench measures a codec: encoding of tasks and events, and decoding of requests, each by name.
// Copy is the baseline for the large task.
func Bench(b *testing.B, c wire.Codec, method string, requests map[string]string) {
	big := c.AppendTask(nil, bigTask())
	b.Run("Copy/34kB", func(b *testing.B) {
		benchAppend(b, func(dst []byte) []byte { return append(dst, big...) })
	})
	for name, task := range map[string]*a2a.Task{
		"34kB":  bigTask(),
		"small": {ID: benchID, ContextID: "ctx-1", Status: a2a.Status{State: a2a.StateWorking, Time: benchTime}},
	} {
		b.Run("Task/"+name, func(b *testing.B) {
			benchAppend(b, func(dst []byte) []byte { return c.AppendTask(dst, task) })
		})
		b.Run("Task/"+name+"/fresh", func(b *testing.B) {
			benchAppend(b, func([]byte) []byte { return c.AppendTask(nil, task) })
		})
	}
	for name, event := range map[string]a2a.Event{
		"status": &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking, Time: benchTime}},
		"chunk": &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a",
			Parts: []a2a.Part{{Kind: a2a.PartText, Text: prose(60)}}}, Append: true},
		"artifact": &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a",
			Parts: []a2a.Part{{Kind: a2a.PartText, Text: prose(34_000)}}}},
		"file": &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a",
			Parts: []a2a.Part{{Kind: a2a.PartFile, Text: strings.Repeat("QUJD", 8_500)}}}},
	} {
		entry := &a2a.Entry{TaskID: benchID, ContextID: "ctx-1", Event: event}
		b.Run("Event/"+name, func(b *testing.B) {
			benchAppend(b, func(dst []byte) []byte { return c.AppendEvent(dst, entry, false) })
		})
	}
	for name, params := range requests {
		b.Run("Decode/"+name, func(b *testing.B) {
			body := []byte(params)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Decode(method, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchAppend(b *testing.B, encode func(dst []byte) []byte) {
	dst := encode(nil)
	b.SetBytes(int64(len(dst)))
	b.ReportAllocs()
	for b.Loop() {
		dst = encode(dst[:0])
	}
}
