package rpc

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/a2a/a2atest"
	"github.com/a2ad/a2ad/internal/wire"
	"github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

// codecsOf are all codecs that write answers over HTTP.
func codecsOf(t *testing.T) map[string]wire.Codec {
	t.Helper()
	codecs := map[string]wire.Codec{"0.3": v03.Codec{Lenient: true}, "1.0": v1.Codec{}}
	for name, body := range map[string]string{
		"0.3 over HTTP+JSON, of the schema": `{"message":{"role":"user"}}`,
		"0.3 over HTTP+JSON":                `{"message":{"role":"ROLE_USER"}}`,
	} {
		_, _, as, err := v03.Codec{}.REST(&wire.Resource{Action: wire.ActionSend, Body: []byte(body)})
		if err != nil {
			t.Fatal(err)
		}
		codecs[name] = as
	}
	return codecs
}

func join(s *splice, short []byte) []byte {
	var all []byte
	for p := range s.pieces(short) {
		all = append(all, p...)
	}
	return all
}

// enlarge gives some parts of a task a large value, with bytes that need escapes.
func enlarge(t *rapid.T, task *a2a.Task) {
	grow := func(parts []a2a.Part) {
		for i := range parts {
			switch p := &parts[i]; {
			case rapid.Bool().Draw(t, "leave"):
			case p.Kind == a2a.PartText || p.Kind == a2a.PartURL:
				p.Text += strings.Repeat(rapid.SampledFrom([]string{"a\"\\\n\x01é🙂", "plain"}).Draw(t, "text"),
					spliceChunk/3)
			case p.Kind == a2a.PartFile:
				p.Text = strings.Repeat("AAAA", 2000)
			case p.Kind == a2a.PartData:
				p.Data = a2a.Raw(rapid.SampledFrom([]string{`{"k":"` + strings.Repeat("v", 5000) + `"}`,
					`["` + strings.Repeat("w", 5000) + `"]`}).Draw(t, "data"))
			}
		}
	}
	for i := range task.History {
		grow(task.History[i].Parts)
	}
	for i := range task.Artifacts {
		grow(task.Artifacts[i].Parts)
	}
	if task.Status.Message != nil {
		grow(task.Status.Message.Parts)
	}
}

// TestPiecesAreTheAnswer: in every dialect, an answer in pieces has the same bytes as the whole
// answer.
func TestPiecesAreTheAnswer(t *testing.T) {
	t.Parallel()
	for name, codec := range codecsOf(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spliced := 0
			rapid.Check(t, func(t *rapid.T) {
				page := &a2a.Page{PageSize: 2, Total: 2, NextToken: "n"}
				for range rapid.IntRange(1, 2).Draw(t, "tasks") {
					task := a2atest.Task().Draw(t, "task")
					enlarge(t, &task)
					page.Tasks = append(page.Tasks, task)
				}
				task := &page.Tasks[0]
				for what, write := range map[string]func([]byte, *a2a.Task) []byte{"GetTask": codec.AppendTask,
					"SendMessage": codec.AppendSent} {
					s := newSplice(codec)
					if got, want := join(s, write(nil, s.task(task))), write(nil, task); !bytes.Equal(got, want) {
						t.Fatalf("%s:\n%.2000s\nwant\n%.2000s", what, got, want)
					}
					spliced += len(s.values)
				}
				s := newSplice(codec)
				short := *page
				short.Tasks = nil
				for i := range page.Tasks {
					short.Tasks = append(short.Tasks, *s.task(&page.Tasks[i]))
				}
				got, want := join(s, codec.AppendPage(nil, &short, true)), codec.AppendPage(nil, page, true)
				if !bytes.Equal(got, want) {
					t.Fatalf("ListTasks:\n%.2000s\nwant\n%.2000s", got, want)
				}
			})
			if spliced == 0 {
				t.Error("no value was replaced by a mark")
			}
		})
	}
}
