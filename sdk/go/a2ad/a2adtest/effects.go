package a2adtest

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
)

// restore makes an artifact what it was when the log had a length.
func (s *server) restore(id string, length int) {
	for _, e := range s.log[length:] {
		if e.Artifact == nil || e.Artifact.Artifact.ID != id {
			continue
		}
		was, ok := fold(s.log[:length])[id]
		if !ok {
			was = a2ad.Artifact{ID: id, Parts: []a2ad.Part{a2ad.Text("")}}
		}
		s.log = append(s.log, reported{Artifact: &artifactUpdate{Artifact: was}})
		return
	}
}

// fold puts artifacts together from a log.
func fold(log []reported) map[string]a2ad.Artifact {
	all := make(map[string]a2ad.Artifact)
	for _, e := range log {
		if e.Artifact == nil {
			continue
		}
		next := e.Artifact.Artifact
		if old, ok := all[next.ID]; ok && e.Artifact.Append {
			old.Parts = append(slices.Clip(old.Parts), next.Parts...)
			next = old
		}
		all[next.ID] = next
	}
	return all
}

// doCalls ends the called tasks that a wait is for: all, or the first one.
func (s *server) doCalls(w *wait) error {
	for _, key := range w.Tasks {
		old := s.step(key)
		if old.EndedAt != nil {
			continue
		}
		do := s.client.Calls[old.Agent]
		if do == nil {
			return fmt.Errorf("%w: it calls %q, and the test has no such agent", ErrStuck, old.Agent)
		}
		result, err := callResult(key, do(s.calls[key].Message.Text()))
		if err != nil {
			return err
		}
		old.Result, old.EndedAt = result, s.time()
		if w.Mode == "any" {
			return nil
		}
	}
	return nil
}

// callResult returns what a called agent has done.
func callResult(key string, said any) (json.RawMessage, error) {
	state := "TASK_STATE_COMPLETED"
	if err, ok := said.(error); ok {
		state, said = "TASK_STATE_FAILED", err.Error()
	}
	part, err := partOf(said)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"taskId": key + "-task", "state": state,
		"message": a2ad.Message{Role: "ROLE_AGENT", Parts: []a2ad.Part{part}},
	})
}

// partOf returns a text part of a string, and a data part of anything else.
func partOf(said any) (a2ad.Part, error) {
	if text, ok := said.(string); ok {
		return a2ad.Text(text), nil
	}
	data, err := json.Marshal(said)
	return a2ad.Part{Data: data}, err
}
