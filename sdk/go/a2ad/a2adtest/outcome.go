package a2adtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// part is one part of an outcome, by a name for people.
type part struct{ name, value string }

type parts []part

// outcome returns what a crash must not change.
func outcome(r *Result) parts {
	all := parts{{"state", r.State}, {"last message", encode(r.Message.Parts)}}
	for _, id := range slices.Sorted(maps.Keys(r.Artifacts)) {
		value := r.Artifact(id)
		if value == "" {
			value = encode(r.Artifacts[id].Parts)
		}
		all = append(all, part{fmt.Sprintf("artifact %q", id), value})
	}
	for _, branch := range branches(r.Steps) {
		name := "steps of " + strings.TrimSuffix(branch.prefix, "/")
		if branch.prefix == "" {
			name = "steps"
		}
		all = append(all, part{name, strings.Join(branch.keys, " ")})
	}
	for _, model := range slices.Sorted(maps.Keys(r.Usage)) {
		all = append(all, part{fmt.Sprintf("usage of %q", model), encode(r.Usage[model])})
	}
	return all
}

func encode(v any) string {
	data, _ := json.Marshal(v) // it came as JSON
	return string(data)
}

// branch is the steps of a branch of Gather: the order within one does not depend on time.
type branch struct {
	prefix string
	keys   []string
}

var branchOfKey = regexp.MustCompile(`^(?:m\d+/)?(?:[0-9a-f]{8}/)?(?:gather#\d+\.\d+/)*`)

func branches(steps []Step) (all []branch) {
	for _, step := range steps {
		if step.Name == "write" && strings.Contains(step.Key, "write:"+step.Artifact+"#") {
			continue // a handler writes its text again under another key
		}
		prefix := branchOfKey.FindString(step.Key)
		i := slices.IndexFunc(all, func(b branch) bool { return b.prefix == prefix })
		if i < 0 {
			i = len(all)
			all = append(all, branch{prefix: prefix})
		}
		all[i].keys = append(all[i].keys, step.Key)
	}
	slices.SortFunc(all, func(a, b branch) int { return strings.Compare(a.prefix, b.prefix) })
	return all
}

// difference says what differs, one under the other; nothing if nothing does.
func difference(expected, got parts) string {
	var lines []string
	names := slices.Concat(expected, got)
	for i, p := range names {
		first := slices.IndexFunc(names, func(q part) bool { return q.name == p.name })
		a, b := expected.value(p.name), got.value(p.name)
		if a == b || first < i {
			continue
		}
		lines = append(lines, "  "+p.name, "    without the crash: "+short(a), "    with the crash:    "+short(b))
	}
	return strings.Join(lines, "\n")
}

func (p parts) value(name string) string {
	for _, one := range p {
		if one.name == name {
			return one.value
		}
	}
	return "nothing"
}

// width is how much of a value an error shows.
const width = 400

func short(s string) string {
	if len(s) <= width {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(s[:width], ""), len(s))
}

// describe says in a few words what a request to the server records.
func describe(events []reported) string {
	var said []string
	for i := range events {
		if text := events[i].describe(); text != "" && !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	switch {
	case len(said) == 0:
		return "recording text"
	case len(said) > 3:
		return fmt.Sprintf("%s and %d more", strings.Join(said[:3], ", "), len(said)-3)
	}
	return strings.Join(said, ", ")
}

func (e *reported) describe() string {
	switch {
	case e.Step != nil && e.Step.Name == "write": // text that the agent writes, which the update shows
		return ""
	case e.Step != nil && e.Step.Error != nil:
		return fmt.Sprintf("recording the failure of step %q", e.Step.Key)
	case e.Step != nil && e.Step.Artifact != "":
		return fmt.Sprintf("beginning step %q", e.Step.Key)
	case e.Step != nil:
		return fmt.Sprintf("recording step %q", e.Step.Key)
	case e.Status != nil && e.Status.Status.State == "TASK_STATE_WORKING":
		return "sending a status"
	case e.Status != nil:
		return "ending the task as " + stateName(e.Status.Status.State)
	case e.Artifact != nil:
		return fmt.Sprintf("writing artifact %q", e.Artifact.Artifact.ID)
	case e.Wait != nil:
		return fmt.Sprintf("beginning the wait %q", e.Wait.Key)
	case e.Call != nil:
		return fmt.Sprintf("calling agent %q", e.Call.Agent)
	case e.Usage != nil:
		return "reporting usage"
	}
	return "saving a checkpoint"
}

func stateName(state string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(state, "TASK_STATE_")), "_", "-")
}
