package conformance_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// act does one act of the play.
func (s *scene) act(a *act) {
	s.t.Helper()
	if a.With != nil {
		s.Do = a.With
	}
	switch {
	case a.Await != nil && a.Await.Exited:
		worker, _ := s.current()
		worker.awaitStopped(s.t)
		s.start()
	case a.Await != nil:
		s.until(fmt.Sprintf("%+v", *a.Await), func() bool { return s.holds(a.Await) })
	case a.Answer != nil:
		s.answer(a)
	case a.Signal != "":
		s.post("/worker/v1/tasks/"+s.task+"/signals/"+a.Signal, map[string]any{"value": a.Value})
	case a.Cancel:
		s.cancel()
	case a.Kill == "server":
		s.server.restart()
	case a.Kill == "worker":
		s.killWorker()
	case a.Stop:
		s.stop()
		s.start()
	case a.Terminate:
		s.terminate()
	case a.Freeze:
		s.freeze()
	case a.Thaw:
		s.thaw()
	case a.Release != "":
		s.world.release(a.Release)
	case a.Pass:
		s.pass()
	case a.Complete != "":
		s.end(a.Complete, "COMPLETED", a.Text)
	case a.Failing != "":
		s.end(a.Failing, "FAILED", a.Text)
	default:
		s.t.Fatalf("an act has no verb: %+v", *a)
	}
}

// holds reports whether everything has happened that an act waits for.
func (s *scene) holds(w *waitFor) bool {
	switch {
	case w.State != "" && s.state() != w.State:
	case w.Text != "" && !strings.Contains(s.artifact(w.Artifact), w.Text):
	case w.Effect != "" && s.world.effects()[w.Effect] < max(w.Times, 1):
	case w.Step != "" && s.server.one(`SELECT key FROM audit.step WHERE task_id::text = $1 AND key = $2`, s.task,
		w.Step) == "":
	case w.Refused != "" && !s.proxy.refused(w.Refused):
	case w.Asked != "" && s.server.one(`SELECT state FROM audit.task WHERE agent = $1`, w.Asked) == "":
	case w.OrphansCanceled && s.server.one(`SELECT task_id::text FROM a2a.task_orphans WHERE parent_id::text = $1`,
		s.task) != "":
	case len(s.attempts()) < w.Attempts:
	case s.proxy.answered("heartbeat") < w.Heartbeats:
	default:
		return true
	}
	return false
}

// artifact returns the current text of an artifact, as a client sees it.
func (s *scene) artifact(id string) string {
	if id == "" {
		id = "answer"
	}
	got, err := s.server.client(s.Case).Get(bounded(s.t), s.task, 0)
	if err != nil {
		s.t.Fatalf("get the task: %v", err)
	}
	for _, a := range got.Artifacts {
		if a.ID == id {
			return textOf(a.Parts)
		}
	}
	return ""
}

// answer sends a message to the task, after its question if it has asked one.
func (s *scene) answer(a *act) {
	s.t.Helper()
	m := say(fmt.Sprint(a.Answer))
	if object, ok := a.Answer.(map[string]any); ok {
		data, err := json.Marshal(object["data"])
		if err != nil {
			s.t.Fatal(err)
		}
		m.Parts = []a2a.Part{{Kind: a2a.PartData, Data: data}}
	}
	m.TaskID = s.task
	_, err := s.server.client(s.Case).Send(bounded(s.t), client.SendParams{Message: m, NoWait: true})
	switch {
	case a.Refused && err == nil:
		s.t.Errorf("the answer %v was accepted", a.Answer)
	case !a.Refused && err != nil:
		s.t.Fatalf("answer: %v", err)
	}
}

// post sends a request of a worker, or of another system, to the server.
func (s *scene) post(path string, body any) []byte {
	s.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	url := s.server.address() + path
	req, err := http.NewRequestWithContext(bounded(s.t), http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.proxy.http.Do(req)
	if err != nil {
		s.t.Fatalf("POST %s: %v", path, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatalf("POST %s: %d %s %v", path, resp.StatusCode, answer, err)
	}
	return answer
}

// end ends a task of another agent, whose worker is the runner.
func (s *scene) end(agent, state, text string) {
	s.t.Helper()
	answer := s.post("/worker/v1/claim", map[string]any{
		"worker": "runner", "agents": []string{agent}, "max": 1, "waitSeconds": 60,
	})
	var got struct {
		Runs []struct {
			TaskID string
			Epoch  int64
		}
	}
	if err := json.Unmarshal(answer, &got); err != nil || len(got.Runs) != 1 {
		s.t.Fatalf("claim a task of %s: %s %v", agent, answer, err)
	}
	run := got.Runs[0]
	status := map[string]any{"state": "TASK_STATE_" + state, "message": map[string]any{
		"parts": []any{map[string]any{"text": text}},
	}}
	s.post(fmt.Sprintf("/worker/v1/runs/%s/%d/events", run.TaskID, run.Epoch), map[string]any{
		"events": []any{map[string]any{"statusUpdate": map[string]any{"status": status}}},
	})
}

// pass ends the wait of the task, as if its time had passed.
func (s *scene) pass() {
	s.until("a wait", func() bool {
		return s.server.exec(`UPDATE a2a.task_waits SET due_at = clock_timestamp(), set_at = clock_timestamp()
			WHERE task_id::text = $1`, s.task) == 1
	})
}
