package check

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
)

// given is a parsed Task that a client received.
type given struct {
	*Answer
	object *object
}

// answers checks the Tasks that clients received, by themselves and against their streams.
func (f *faults) answers(answers []Answer, streams []Stream, read [][]object, all map[eventKey]seen) {
	whole := make(map[string][]given) // by task, in the order of the log
	sent := make(map[string][]json.RawMessage)
	for i := range answers {
		a := &answers[i]
		o, ok := f.read(a.Task)
		if !ok || o.Kind != "task" {
			f.add(Unreadable, "", "an answer is not a Task: %s", a.Task)
			return
		}
		if a.Message != nil {
			sent[o.ID] = append(sent[o.ID], a.Message)
		}
		if a.Whole {
			whole[o.ID] = append(whole[o.ID], given{a, &o})
		}
	}
	for i := range streams {
		if len(read[i]) > 0 && read[i][0].Kind == "task" {
			o := &read[i][0]
			whole[o.ID] = append(whole[o.ID],
				given{&Answer{Replica: streams[i].Replica, Task: streams[i].Frames[0].Result}, o})
		}
	}
	last := make(map[string]int64) // seq of the last event of each task
	for at, e := range all {
		if e.result != nil && terminal(e.object.Status.State) {
			last[at.task] = at.seq
		}
	}
	for _, id := range slices.Sorted(maps.Keys(whole)) {
		f.ended(whole[id], last[id], all)
	}
	for _, id := range slices.Sorted(maps.Keys(sent)) {
		f.kept(id, sent[id], whole[id])
	}
}

// ended checks that all Tasks of an ended task are the same bytes, and equal what its events add up to, if all events
// are known.
func (f *faults) ended(tasks []given, last int64, all map[eventKey]seen) {
	tasks = slices.DeleteFunc(slices.Clone(tasks), func(g given) bool { return !terminal(g.object.Status.State) })
	for i, g := range tasks {
		if i == 0 {
			if want, ok := fold(all, g.object.ID, last); ok && last > 0 {
				f.compare(want, g.object, "the Task on "+g.Replica)
			}
			continue
		}
		if !bytes.Equal(tasks[0].Task, g.Task) {
			f.add(Immutable, g.object.ID, "it was\n%s\nand on %s\n%s", tasks[0].Task, g.Replica, g.Task)
			return
		}
	}
}

// kept checks that every replica has every message at the end. It skips a task that was not read then.
func (f *faults) kept(id string, messages []json.RawMessage, tasks []given) {
	for _, g := range tasks {
		if !g.AtEnd {
			continue
		}
		for _, m := range messages {
			if !slices.ContainsFunc(g.object.History, func(h json.RawMessage) bool { return sameMessage(h, m) }) {
				f.add(Kept, id, "the Task on %s lacks the message %s", g.Replica, m)
			}
		}
	}
}

// sameMessage compares a sent message with the one in the history, which also names the task, the context, and the
// kinds that a client may omit.
func sameMessage(history, sent []byte) bool {
	h, s := decodeExact(history), decodeExact(sent)
	for k, v := range s {
		if k != "kind" && k != "role" && k != "taskId" && k != "contextId" && !reflect.DeepEqual(v, h[k]) {
			return false
		}
	}
	return h["messageId"] != nil && h["role"] == "user"
}

// decodeExact decodes JSON and keeps numbers as written.
func decodeExact(doc []byte) map[string]any {
	var m map[string]any
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	_ = d.Decode(&m) // an unreadable document equals none
	return m
}
