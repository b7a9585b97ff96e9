package check

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
)

// Answers returns what is wrong with the Tasks that clients were given, by themselves and
// against what streams showed.
func Answers(answers []Answer, streams []Stream) []Violation {
	var found faults
	whole := make(map[string][]Answer) // by task, in the order of the log
	sent := make(map[string][]json.RawMessage)
	for _, a := range answers {
		var o object
		if err := json.Unmarshal(a.Task, &o); err != nil || o.Kind != "task" {
			found.add(Unreadable, "", "an answer is no Task: %v: %s", err, a.Task)
			return found
		}
		if a.Message != nil {
			sent[o.ID] = append(sent[o.ID], a.Message)
		}
		if a.Whole {
			whole[o.ID] = append(whole[o.ID], a)
		}
	}
	all, read := eventsOf(streams)
	for _, s := range streams {
		if len(s.Frames) > 0 && read(s.Frames[0]).Kind == "task" {
			id := read(s.Frames[0]).ID
			whole[id] = append(whole[id], Answer{Replica: s.Replica, Task: s.Frames[0].Result, Whole: true})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(whole)) {
		found.immutable(id, whole[id])
		found.newest(all, whole[id])
	}
	for _, id := range slices.Sorted(maps.Keys(sent)) {
		found.kept(id, sent[id], whole[id])
	}
	return found
}

func eventsOf(streams []Stream) (map[place]seen, func(Frame) object) {
	read := make([][]object, len(streams))
	one := func(f Frame) (o object) {
		_ = json.Unmarshal(f.Result, &o) // Streams names what cannot be read
		return o
	}
	for i := range streams {
		for _, f := range streams[i].Frames {
			read[i] = append(read[i], one(f))
		}
	}
	var ignored faults // Streams names them
	return ignored.events(streams, read), one
}

// immutable checks that all Tasks of one that has ended are the same bytes.
func (f *faults) immutable(id string, tasks []Answer) {
	var ended []byte
	for _, a := range tasks {
		var o object
		if json.Unmarshal(a.Task, &o) != nil || !terminal(o.Status.State) {
			continue
		}
		if ended == nil {
			ended = a.Task
		}
		if !bytes.Equal(ended, a.Task) {
			f.add(Immutable, id, "it was\n%s\nand on %s\n%s", ended, a.Replica, a.Task)
			return
		}
	}
}

// newest holds the Tasks that have ended against all their events, if they are known.
func (f *faults) newest(all map[place]seen, tasks []Answer) {
	for _, a := range tasks {
		var o object
		if json.Unmarshal(a.Task, &o) != nil || !terminal(o.Status.State) {
			continue
		}
		last := int64(0)
		for at, e := range all {
			if at.task == o.ID && e.result != nil && terminal(e.object.Status.State) {
				last = at.seq
			}
		}
		if last == 0 {
			return
		}
		if want, ok := fold(all, o.ID, last); ok {
			f.compare(want, &o, "the Task on "+a.Replica)
		}
		return // immutable compares the others with this one
	}
}

// kept checks that every replica has every message at the end. A task that nobody read then
// is not looked at: invariants.sql has no view of what was acknowledged.
func (f *faults) kept(id string, messages []json.RawMessage, tasks []Answer) {
	for _, a := range tasks {
		var o object
		if !a.AtEnd || json.Unmarshal(a.Task, &o) != nil {
			continue
		}
		for _, m := range messages {
			if !slices.ContainsFunc(o.History, func(h json.RawMessage) bool { return sameMessage(h, m) }) {
				f.add(Kept, id, "the Task on %s lacks the message %s", a.Replica, m)
			}
		}
	}
}

// sameMessage compares what a client sent with what the history holds, which names the task
// and the context too, and the kinds that a client may leave out.
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
