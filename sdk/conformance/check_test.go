package conformance_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// check compares what has happened with what the case wants.
func (s *scene) check() {
	s.t.Helper()
	w := &s.Want
	got, err := s.server.client(s.Case).Get(bounded(s.t), s.task, 0)
	if err != nil {
		s.t.Fatalf("get the task: %v", err)
	}
	if text := textOf(got.Parts); w.Text != nil && !s.matches(text, *w.Text) {
		s.t.Errorf("the last message is %q, want %q", text, *w.Text)
	}
	if w.Data != nil {
		s.same("data of the last message", dataOf(got.Parts), normal(w.Data))
	}
	artifacts := make(map[string]any)
	for _, a := range got.Artifacts {
		artifacts[a.ID] = contentOf(a.Parts)
	}
	for id, content := range w.Artifacts {
		if text, ok := letters(content); ok {
			if artifacts[id] != text {
				s.t.Errorf("artifact %s has %d bytes, want another text of %d bytes", id,
					len(fmt.Sprint(artifacts[id])), len(text))
			}
			continue
		}
		pattern, ok := content.(string)
		if text, same := artifacts[id].(string); !ok || !same || !s.matches(text, pattern) {
			s.same("artifact "+id, artifacts[id], normal(content))
		}
	}
	if w.Artifacts != nil && len(artifacts) != len(w.Artifacts) {
		s.t.Errorf("the task has %d artifacts, want %d", len(artifacts), len(w.Artifacts))
	}
	s.same("effects", s.world.effects(), w.Effects)
	if w.Steps != nil {
		s.same("steps", s.steps(), w.Steps)
	}
	if w.Attempts != nil {
		got := s.attempts()
		if !slices.Contains(w.Attempts, "released") {
			// A run that a worker claims as it dies is released, and costs no attempt.
			got = slices.DeleteFunc(got, func(outcome string) bool { return outcome == "released" })
		}
		s.same("attempts", got, w.Attempts)
	}
	if w.Usage != nil {
		s.same("usage", s.usage(), w.Usage)
	}
	events, shown := s.stream()
	if w.Stream != nil {
		s.same("stream", events, w.Stream)
	}
	s.same("artifacts built from the stream, against those of the task", shown, artifacts)
	for agent, state := range w.Children {
		until(s.t, agent+" is "+state, func() bool { return s.childState(agent) == state })
	}
}

func (s *scene) same(what string, got, want any) {
	s.t.Helper()
	a, b := reflect.ValueOf(got), reflect.ValueOf(want)
	if a.Kind() == reflect.Map && b.Kind() == reflect.Map && a.Len() == 0 && b.Len() == 0 {
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// normal returns a value of a case as JSON decodes it.
func normal(v any) (out any) {
	data, _ := json.Marshal(v) // it was YAML
	_ = json.Unmarshal(data, &out)
	return out
}

// matches reports whether a text is what a case wants: /…/ is a regular expression.
func (s *scene) matches(text, want string) bool {
	s.t.Helper()
	pattern, ok := strings.CutPrefix(want, "/")
	if !ok {
		return text == want
	}
	re, err := regexp.Compile("^(?s:" + strings.TrimSuffix(pattern, "/") + ")$")
	if err != nil {
		s.t.Fatalf("the case has a wrong pattern: %v", err)
	}
	return re.MatchString(text)
}

func textOf(parts []a2a.Part) string {
	var b strings.Builder
	for _, p := range parts {
		if p.Kind == a2a.PartText {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

func dataOf(parts []a2a.Part) any {
	for _, p := range parts {
		if p.Kind == a2a.PartData {
			return normal(json.RawMessage(p.Data))
		}
	}
	return nil
}

// contentOf returns a text, the value of a data part, or what describes a file. For several parts that are not all
// texts, it returns a list.
func contentOf(parts []a2a.Part) any {
	if len(parts) == 1 {
		switch p := parts[0]; p.Kind {
		case a2a.PartData:
			return dataOf(parts)
		case a2a.PartFile, a2a.PartURL:
			return strings.Join(strings.Fields(p.Text+" "+p.Filename+" "+p.MediaType), " ")
		}
	}
	if len(parts) > 1 && slices.ContainsFunc(parts, func(p a2a.Part) bool { return p.Kind != a2a.PartText }) {
		list := make([]any, len(parts))
		for i := range parts {
			list[i] = contentOf(parts[i : i+1])
		}
		return list
	}
	return textOf(parts)
}

// usage returns the tokens of the task, by model.
func (s *scene) usage() map[string]string {
	got := make(map[string]string)
	for _, line := range s.server.column(`SELECT model || ': ' || input_tokens || ' + ' || output_tokens
		FROM audit.usage WHERE task_id::text = $1`, s.task) {
		model, tokens, _ := strings.Cut(line, ": ")
		got[model] = tokens
	}
	return got
}

// steps returns the recorded steps: kind, key, more than one try, and how they ended.
func (s *scene) steps() []string {
	return s.server.column(`SELECT kind || ' ' || key
			|| CASE WHEN attempts > 1 THEN format(' (%s tries)', attempts) ELSE '' END
			|| CASE WHEN error IS NOT NULL THEN ' failed' WHEN ended_at IS NULL THEN ' open' ELSE '' END
			|| CASE WHEN kind = 'wait' AND ended_at IS NOT NULL THEN ' by ' || (result::text::json ->> 'by') ELSE '' END
		FROM audit.step WHERE task_id::text = $1 ORDER BY seq`, s.task)
}

// attempts returns how the attempts ended, in order.
func (s *scene) attempts() []string {
	return s.server.column(
		`SELECT coalesce(outcome, 'runs') FROM audit.attempt WHERE task_id::text = $1 ORDER BY token`, s.task)
}

func (s *scene) childState(agent string) string {
	return stateName(s.server.one(`SELECT state FROM audit.task WHERE agent = $1`, agent))
}

// stream reads all events of the task. It returns them in the notation of cases, and the artifacts that a client
// builds from them. Consecutive chunks of an artifact are one event, because the size of chunks depends on timing.
func (s *scene) stream() (events []string, shown map[string]any) {
	s.t.Helper()
	first := s.server.one(
		`SELECT '1-' || left(event_uid::text, 8) FROM audit.event WHERE task_id::text = $1 AND seq = 1`, s.task)
	last := s.server.one(`SELECT last_seq::text FROM audit.task WHERE id::text = $1`, s.task)
	shown = make(map[string]any)
	parts := make(map[string][]a2a.Part)
	chunk := "" // the artifact of the last event, if that was a chunk
	cl := s.server.client(s.Case)
	for ev, err := range cl.Resubscribe(bounded(s.t), s.task, client.StreamOptions{LastEventID: first}) {
		if err != nil {
			s.t.Fatalf("read the stream: %v", err)
		}
		a := ev.Artifact
		switch {
		case ev.Kind == client.KindStatus && len(ev.Parts) == 0 && !ev.State.EndsTurn():
			// the server says that an attempt or a turn begins
		case ev.Kind == client.KindStatus:
			events = append(events, strings.TrimSuffix(ev.State.String()+": "+textOf(ev.Parts), ": "))
			chunk = ""
		case ev.Append && chunk == a.ID:
			events[len(events)-1] += textOf(a.Parts)
		case ev.Append:
			events = append(events, a.ID+" + "+fmt.Sprint(contentOf(a.Parts)))
			chunk = a.ID
		default:
			events = append(events, a.ID+" = "+fmt.Sprint(contentOf(a.Parts)))
			chunk = ""
		}
		if ev.Kind == client.KindArtifact {
			if !ev.Append {
				parts[a.ID] = nil
			}
			parts[a.ID] = append(parts[a.ID], a.Parts...)
			shown[a.ID] = contentOf(parts[a.ID])
		}
		if fmt.Sprint(ev.Seq) == last {
			break
		}
	}
	return events, shown
}
