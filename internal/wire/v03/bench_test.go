package v03_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
)

// prose is text as agents write it: lines, some quotes, some letters beyond ASCII.
func prose(n int) string {
	const line = "Die Antwort lautet: \"the quick brown fox\" jumps over 13 lazy dogs, naïvely…\n"
	return strings.Repeat(line, n/len(line)+1)[:n]
}

// bigTask is 34 kB on the wire.
func bigTask() *a2a.Task {
	t := &a2a.Task{ID: taskID, ContextID: "ctx-1", Status: a2a.Status{State: a2a.StateCompleted, Time: at}, Metadata: a2a.Raw(`{"trace":"abc","n":1.0}`)}
	for i := range 10 {
		t.History = append(t.History, a2a.Message{
			ID: fmt.Sprintf("message-%d", i), Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: prose(500)}}})
	}
	for i := range 2 {
		t.Artifacts = append(t.Artifacts, a2a.Artifact{ID: fmt.Sprintf("artifact-%d", i), Name: "report", Parts: []a2a.Part{
			{Kind: a2a.PartText, Text: prose(10_000)}, {Kind: a2a.PartData, Data: a2a.Raw(`{"rows":[` + strings.Repeat(`1.25,`, 500) + `0]}`)}}})
	}
	return t
}

func BenchmarkAppendTask(b *testing.B) {
	for name, task := range map[string]*a2a.Task{
		"34kB":  bigTask(),
		"small": {ID: taskID, ContextID: "ctx-1", Status: a2a.Status{State: a2a.StateWorking, Time: at}},
	} {
		b.Run(name, func(b *testing.B) {
			dst := codec.AppendTask(nil, task)
			b.SetBytes(int64(len(dst)))
			b.ReportAllocs()
			for b.Loop() {
				dst = codec.AppendTask(dst[:0], task)
			}
		})
		b.Run(name+"/fresh", func(b *testing.B) {
			b.SetBytes(int64(len(codec.AppendTask(nil, task))))
			b.ReportAllocs()
			for b.Loop() {
				codec.AppendTask(nil, task)
			}
		})
	}
}

// BenchmarkCopy34kB is what AppendTask is measured against.
func BenchmarkCopy34kB(b *testing.B) {
	doc := codec.AppendTask(nil, bigTask())
	dst := make([]byte, 0, len(doc))
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		dst = append(dst[:0], doc...)
	}
}

func BenchmarkAppendEvent(b *testing.B) {
	for name, event := range map[string]a2a.Event{
		"status":   &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking, Time: at}},
		"chunk":    &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a", Parts: []a2a.Part{{Kind: a2a.PartText, Text: prose(60)}}}, Append: true},
		"artifact": &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a", Parts: []a2a.Part{{Kind: a2a.PartText, Text: prose(34_000)}}}},
		"file":     &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a", Parts: []a2a.Part{{Kind: a2a.PartFile, Text: strings.Repeat("QUJD", 8_500)}}}},
	} {
		entry := &a2a.Entry{TaskID: taskID, ContextID: "ctx-1", Event: event}
		b.Run(name, func(b *testing.B) {
			dst := codec.AppendEvent(nil, entry, false)
			b.SetBytes(int64(len(dst)))
			b.ReportAllocs()
			for b.Loop() {
				dst = codec.AppendEvent(dst[:0], entry, false)
			}
		})
	}
}

func BenchmarkDecodeSend(b *testing.B) {
	for name, params := range map[string]string{
		"hello": `{"message":` + hello + `}`,
		"full":  fullSend,
		"34kB":  `{"message":{"kind":"message","messageId":"m1","role":"user","parts":[{"kind":"text","text":"` + strings.Repeat("x", 34_000) + `"}]}}`,
	} {
		b.Run(name, func(b *testing.B) {
			body := []byte(params)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := codec.Decode("message/send", body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
