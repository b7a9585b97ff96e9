package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// worker is a remote worker of the agent orders: it claims runs over HTTP, as workers on other machines do.
type worker struct {
	url  string
	log  *slog.Logger
	http *http.Client
}

const workerName = "warehouse-1"

func newWorker(url string, log *slog.Logger) *worker {
	return &worker{url: url, log: log, http: &http.Client{Timeout: time.Minute}}
}

// claimed is a run, with what the worker needs of it.
type claimed struct {
	TaskID   string
	Epoch    int64
	Messages []struct{ Parts []struct{ Text string } }
	Steps    []struct {
		Key     string
		EndedAt *time.Time
		Result  json.RawMessage
	}
}

// run claims and does one run after another until ctx ends.
func (w *worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		var got struct{ Runs []claimed }
		claim := map[string]any{"worker": workerName, "agents": []string{"orders"}, "waitSeconds": 20}
		err := w.post(ctx, "claim", claim, &got)
		for i := range got.Runs {
			if err == nil {
				err = w.do(ctx, &got.Runs[i])
			}
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		w.log.WarnContext(ctx, "worker of the demo", "err", err)
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
		}
	}
}

type event = map[string]any

// do does one run of a task.
func (w *worker) do(ctx context.Context, r *claimed) error {
	events := plan(r)
	path := fmt.Sprintf("runs/%s/%d/events", r.TaskID, r.Epoch)
	return w.post(ctx, path, map[string]any{"events": events, "batchId": "all"}, nil)
}

// plan returns what a run reports: which step of the work it is follows from the steps that are recorded.
func plan(r *claimed) []event {
	if len(r.Steps) > 0 && r.Steps[len(r.Steps)-1].EndedAt != nil {
		return finish(r)
	}
	switch text := r.text(); {
	case strings.HasPrefix(text, "Approve"):
		return []event{question(text, event{"choices": []string{"approve", "reject"}})}
	case strings.HasPrefix(text, "Change the delivery address"):
		return []event{question("What is the new address?", event{"schema": addressSchema})}
	}
	call := func(key, agent, text, script string) event {
		return event{"call": event{"key": key, "agent": agent, "message": event{"parts": []event{
			{"text": text}, {"data": event{"script": json.RawMessage("[" + script + "]")}},
		}}}}
	}
	return []event{
		status("TASK_STATE_WORKING", "asking for the weight and the label"),
		call("weight", "research", "What do the goods weigh?",
			`{"op":"sleep","ms":900},{"op":"artifact","id":"weight","text":"31 kg"}`),
		call("label", "translate", "Translate the label.",
			`{"op":"sleep","ms":1500},{"op":"artifact","id":"label","text":"Vorsicht, Glas"}`),
		{"wait": event{"key": "both", "tasks": []string{"weight", "label"}}},
	}
}

var addressSchema = event{
	"type": "object", "required": []string{"street", "city"},
	"properties": event{
		"street": event{"type": "string", "title": "Street and number"},
		"city":   event{"type": "string", "title": "City"},
		"floor":  event{"type": "integer", "title": "Floor", "description": "0 is the ground floor."},
		"gift":   event{"type": "boolean", "title": "Wrap it as a gift"},
	},
}

func status(state, text string) event {
	return event{"statusUpdate": event{"status": event{
		"state": state, "message": event{"role": "ROLE_AGENT", "parts": []event{{"text": text}}},
	}}}
}

func question(text string, expects event) event {
	update := status("TASK_STATE_INPUT_REQUIRED", text)["statusUpdate"]
	asked := update.(event)["status"] //nolint:forcetypeassert // see status
	return event{"wait": event{"key": "question", "message": true, "status": asked, "expects": expects}}
}

func finish(r *claimed) []event {
	return []event{
		{"artifactUpdate": event{"artifact": event{
			"artifactId": "plan", "name": "Plan",
			"parts": []event{{"text": "## Delivery\n\n- by van, on **Tuesday**\n- two people\n"}},
		}}},
		status("TASK_STATE_COMPLETED", "Done: "+r.text()),
	}
}

// text is what the first message says.
func (r *claimed) text() string {
	for _, m := range r.Messages {
		for _, p := range m.Parts {
			if p.Text != "" {
				return p.Text
			}
		}
	}
	return ""
}

// post sends a request to the worker API.
func (w *worker) post(ctx context.Context, path string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/worker/v1/"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "a2ad-demo")
	res, err := w.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err = io.ReadAll(io.LimitReader(res.Body, 8<<20))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", path, res.Status, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}
