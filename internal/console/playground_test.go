package console_test

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// play sends the form of the playground with a file.
func (b *browser) play(page string, fields map[string]string, file string) (status int, body string) {
	b.t.Helper()
	m := tokenField.FindStringSubmatch(b.page(page))
	if m == nil {
		b.t.Fatalf("%s has no form", page)
	}
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	fields["form_token"] = m[1]
	for k, v := range fields {
		if err := w.WriteField(k, v); err != nil {
			b.t.Fatal(err)
		}
	}
	if file != "" {
		part, err := w.CreateFormFile("file", "notes.txt")
		if err != nil {
			b.t.Fatal(err)
		}
		part.Write([]byte(file)) //nolint:errcheck // a buffer
	}
	w.Close()
	return b.sendBody(http.MethodPost, "/console/playground", w.FormDataContentType(), form.String())
}

func TestPlaygroundTalksToAnAgent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve(open)
	if page := b.page("/console/playground"); !strings.Contains(page, "skills is missing") {
		t.Errorf("the page does not check the card: %s", page)
	}
	status, body := b.play("/console/playground", map[string]string{
		"agent": storetest.Agent, "text": "What's new?", "data": `{"a":[1]}`,
	}, "hello file")
	at := b.last.Header.Get("Location")
	if status != http.StatusSeeOther || !strings.HasPrefix(at, "/console/playground/") {
		t.Fatalf("the message got %d to %q: %s", status, at, body)
	}
	id := mustID(t, strings.TrimPrefix(at, "/console/playground/"))
	parts := r.Snapshot(id).History[0].Parts
	if len(parts) != 3 || parts[0].Text != "What's new?" || string(parts[1].Data) != `{"a":[1]}` ||
		parts[2].Filename != "notes.txt" || parts[2].Text != "aGVsbG8gZmlsZQ==" {
		t.Errorf("the agent gets %+v", parts)
	}
	r.Append(r.ClaimTask(id), storetest.Artifact("answer", "**Nothing** new."),
		storetest.Status(a2a.StateInputRequired, "Anything else?"))
	page := b.page(at)
	for _, want := range []string{
		"<strong>Nothing</strong> new.", "Anything else?", "TASK_STATE_INPUT_REQUIRED", `data-live="/console/tasks/`,
		"curl -N", "urllib.request", "crypto.randomUUID", `What&#39;\&#39;&#39;s new?`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
	if status, body := b.play(at, map[string]string{
		"agent": storetest.Agent, "task": id.String(), "text": "No.",
	}, ""); status != http.StatusSeeOther || b.last.Header.Get("Location") != at {
		t.Fatalf("the second message got %d: %s", status, body)
	}
	if n := len(r.Snapshot(id).History); n != 3 {
		t.Errorf("the task has %d messages, want 3", n)
	}
	r.Invariants()
}

func TestPlaygroundRefusesWhatIsNoMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve(open)
	for name, form := range map[string]map[string]string{
		"empty":    {"agent": storetest.Agent, "text": "  "},
		"no JSON":  {"agent": storetest.Agent, "data": "{"},
		"no agent": {"agent": "nobody", "text": "hi"},
	} {
		status, _ := b.play("/console/playground", form, "")
		if status != http.StatusUnprocessableEntity && status != http.StatusNotFound {
			t.Errorf("%s answered %d", name, status)
		}
	}
	if status, _ := b.play("/console/playground", map[string]string{"agent": storetest.Agent},
		strings.Repeat("x", 2<<20)); status != http.StatusBadRequest {
		t.Errorf("a file of 2 MiB answered %d", status)
	}
	if n := r.Column(`SELECT count(*)::text FROM a2a.tasks`)[0]; n != "0" {
		t.Errorf("%s tasks were made", n)
	}
}

func TestPlaygroundSendsInTheNameOfTheViewer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	reader := r.serve()
	reader.mustSignIn(r.key(everything...))
	form := url.Values{"agent": {storetest.Agent}, "text": {"hi"}}
	if status, _ := reader.post("/console/playground", "/console/playground", form); status != http.StatusForbidden {
		t.Errorf("without tasks:write a message got %d, want 403", status)
	}
	b := r.serve()
	b.mustSignIn(r.key(auth.ScopeOperatorRead, auth.ScopeTasksWrite))
	if status, body := b.post("/console/playground", "/console/playground", form); status != http.StatusSeeOther {
		t.Fatalf("the message got %d: %s", status, body)
	}
	if got := r.Column(`SELECT tenant || '/' || owner FROM a2a.tasks`)[0]; got != "acme/operator" {
		t.Errorf("the task belongs to %s", got)
	}
	other := r.NewTask() // of ann
	page := b.page("/console/playground/" + other.String())
	if strings.Contains(page, `name="task"`) {
		t.Error("the page offers to write to the task of somebody else")
	}
	form.Set("task", other.String())
	if status, _ := b.post("/console/playground", "/console/playground", form); status != http.StatusNotFound {
		t.Errorf("a message to the task of somebody else got %d, want 404", status)
	}
}
