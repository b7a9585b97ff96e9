package check

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
)

// given is a Task that a client was given, read.
type given struct {
	*Answer
	object *object
}

// answers checks the Tasks that clients were given, by themselves and against what streams showed.
func (f *faults) answers(answers []Answer, streams []Stream, read [][]object, all map[place]seen) {
	whole := make(map[string][]given) // by task, in the order of the log
	sent := make(map[string][]json.RawMessage)
	for i := range answers {
		a := &answers[i]
		o, ok := f.read(a.Task)
		if !ok || o.Kind != "task" {
			f.add(Unreadable, "", "an answer is no Task: %s", a.Task)
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
	last := make(map[string]int64) // seq of the end of each task
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

// ended checks that all Tasks of one that has ended are the same bytes, and what its events add up to, if they are
// known.
func (f *faults) ended(tasks []given, last int64, all map[place]seen) {
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

// kept checks that every replica has every message at the end. A task that nobody read then is not looked at.
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

// sameMessage compares what a client sent with what the history holds, which names the task and the context too, and
// the kinds that a client may leave out.
func sameMessage(history, sent []byte) bool {
	h, s := decodeExact(history), decodeExact(sent)
	for k, v := range s {
		if k != "kind" && k != "role" && k != "taskId" && k != "contextId" && !reflect.DeepEqual(v, h[k]) {
			return false
		}
	}
	return h["messageId"] != nil && h["role"] == "user"
}

// decodeExact keeps numbers as they are written.
func decodeExact(doc []byte) map[string]any {
	var m map[string]any
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	_ = d.Decode(&m) // what cannot be read is equal to nothing
	return m
}
