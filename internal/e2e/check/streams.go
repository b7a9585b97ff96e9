package check

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// Names of what Clients and Shown find.
const (
	Contiguity  = "I3b a stream begins with the task, or after what its client has, and misses and repeats nothing"
	Ending      = "I3b a stream ends with its last event, or says when to reconnect"
	Resume      = "I3c over all its connections a reader sees every event once"
	SameBytes   = "I3d an event is the same for all readers"
	Fold        = "I3f a snapshot is what the events before it add up to"
	Unreadable  = "I3 a stream can be parsed"
	InLog       = "I3e what was shown is in the log"
	Immutable   = "I2d what has ended does not change"
	Kept        = "I1 what was acknowledged exists"
	eventsStart = 2 // event 1, the submission, is never sent separately: the first Task includes it
)

// Clients returns the violations in what clients saw, on streams and in answers.
func Clients(streams []Stream, answers []Answer) []Violation {
	var found faults
	read := make([][]object, len(streams))
	for i := range streams {
		for _, f := range streams[i].Frames {
			o, ok := found.read(f.Result)
			if !ok || o.task() == "" {
				found.add(Unreadable, "", "a stream has an event without a task: %s", f.Result)
				return found
			}
			read[i] = append(read[i], o)
		}
		found.connection(&streams[i], read[i])
	}
	found.readers(streams, read)
	all := found.events(streams, read)
	found.folds(streams, read, all)
	found.answers(answers, streams, read, all)
	return found
}

func (f *faults) read(doc []byte) (o object, ok bool) {
	err := json.Unmarshal(doc, &o)
	if err != nil {
		f.add(Unreadable, "", "%v: %s", err, doc)
	}
	return o, err == nil
}

// connection checks one connection by itself.
func (f *faults) connection(s *Stream, read []object) {
	after, _ := parseID(s.After)
	for i := range read {
		o, seq := &read[i], seqOf(s.Frames[i])
		task := o.task()
		if task != read[0].task() {
			f.add(Contiguity, task, "a stream of task %s has an event of another", read[0].task())
		}
		switch {
		case seq < 1:
			f.add(Contiguity, task, "an event has the id %q", s.Frames[i].ID)
		case i > 0 && o.Kind == "task":
			f.add(Contiguity, task, "a Task (seq %d) in the middle of a stream", seq)
		case i > 0 && seq != seqOf(s.Frames[i-1])+1 && !repeatsEnd(s, read, i):
			f.add(Contiguity, task, "seq %d after seq %d", seq, seqOf(s.Frames[i-1]))
		case i == 0 && s.After == "" && o.Kind != "task":
			f.add(Contiguity, task, "a stream begins with a %s (seq %d)", o.Kind, seq)
		case i == 0 && s.After != "" && o.Kind != "task" && seq != after+1:
			f.add(Contiguity, task, "seq %d after the Last-Event-ID %s", seq, s.After)
		case i == 0 && s.After != "" && o.Kind == "task" && !s.Gap && seq != after:
			f.add(Contiguity, task, "a Task of seq %d without a gap after the Last-Event-ID %s", seq, s.After)
		}
		f.ending(s, read, i)
	}
	if s.Ended && !s.Retry && (len(read) == 0 || !read[len(read)-1].Final) {
		task, last := "", int64(0)
		if len(read) > 0 {
			task, last = read[0].task(), seqOf(s.Frames[len(read)-1])
		}
		f.add(Ending, task, "a stream ended after seq %d without a last event", last)
	}
}

// repeatsEnd reports whether frame i is the final status of a task after its snapshot, when the snapshot already was
// all there was to show. The status then repeats the snapshot's number.
func repeatsEnd(s *Stream, read []object, i int) bool {
	return i == 1 && len(read) == 2 && read[0].Kind == "task" && read[1].Final &&
		s.Frames[0].ID == s.Frames[1].ID && read[0].Status.State == read[1].Status.State
}

// ending checks that the last event, and no other, is marked as final.
func (f *faults) ending(s *Stream, read []object, i int) {
	o := &read[i]
	if o.Kind == "task" {
		return
	}
	ends := terminal(o.Status.State) || s.Message && o.Status.State == "input-required"
	switch {
	case o.Final != ends:
		f.add(Ending, o.task(), "seq %d (%s) has final %t", seqOf(s.Frames[i]), o.Status.State, o.Final)
	case o.Final && i < len(read)-1:
		f.add(Ending, o.task(), "seq %d is final and other events follow it", seqOf(s.Frames[i]))
	case o.Final && s.Retry:
		f.add(Ending, o.task(), "a stream that has ended asks its client to reconnect")
	}
}

// readers checks the views over several connections. Events that a client had not processed when it resumed do not
// count, because it asked for them again.
func (f *faults) readers(streams []Stream, read [][]object) {
	byReader := make(map[string][]int)
	for i := range streams {
		if len(read[i]) > 0 {
			key := streams[i].Reader + " " + read[i][0].task()
			byReader[key] = append(byReader[key], i)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byReader)) {
		f.reader(streams, read, byReader[key])
	}
}

func (f *faults) reader(streams []Stream, read [][]object, mine []int) {
	last := int64(0) // the last event that the reader has
	for n, i := range mine {
		s, task := &streams[i], read[i][0].task()
		resumed := int64(1 << 62)
		if n+1 < len(mine) {
			if next := streams[mine[n+1]].After; next != "" {
				resumed, _ = parseID(next)
			}
		}
		after, _ := parseID(s.After)
		switch {
		case s.After == "":
			last = 0 // the reader wants to see the task from the start
		case n > 0 && after != last:
			f.add(Resume, task, "a reader that has seq %d resumes after %s", last, s.After)
		case n > 0 && s.Gap:
			f.add(Resume, task, "a reader that has seq %d gets a gap after %s", last, s.After)
		}
		for k, frame := range s.Frames {
			seq := seqOf(frame)
			switch {
			case seq > resumed:
				continue
			case k == 0 && read[i][0].Kind == "task", repeatsEnd(s, read[i], k):
			case last > 0 && seq != last+1:
				f.add(Resume, task, "a reader that has seq %d gets seq %d", last, seq)
			}
			last = max(last, seq)
		}
	}
}

// eventKey identifies one event of one task.
type eventKey struct {
	task string
	seq  int64
}

// seen is an event as its first reader saw it.
type seen struct {
	id     string
	result []byte
	object *object
}

// events collects what all streams showed, and checks that they agree.
func (f *faults) events(streams []Stream, read [][]object) map[eventKey]seen {
	all := make(map[eventKey]seen)
	for i := range streams {
		for k, frame := range streams[i].Frames {
			o := &read[i][k]
			at := eventKey{o.task(), seqOf(frame)}
			// Whether an event is the last one depends on the request (T-03 in docs/reference/protocol.md).
			bytesOf := bytes.Replace(frame.Result, []byte(`"final":true`), []byte(`"final":false`), 1)
			if o.Kind == "task" {
				bytesOf = nil
			}
			first, ok := all[at]
			if !ok {
				all[at] = seen{frame.ID, bytesOf, o}
				continue
			}
			if first.id != frame.ID {
				f.add(SameBytes, at.task, "seq %d has the ids %s and %s", at.seq, first.id, frame.ID)
			}
			switch {
			case bytesOf == nil:
			case first.result == nil:
				all[at] = seen{frame.ID, bytesOf, o}
			case !bytes.Equal(first.result, bytesOf):
				f.add(SameBytes, at.task, "seq %d is\n%s\nand\n%s", at.seq, first.result, bytesOf)
			}
		}
	}
	return all
}

// folds checks each Task of a stream whose events are all known.
func (f *faults) folds(streams []Stream, read [][]object, all map[eventKey]seen) {
	for i := range streams {
		if len(read[i]) == 0 || read[i][0].Kind != "task" {
			continue
		}
		snapshot, upto := &read[i][0], seqOf(streams[i].Frames[0])
		if want, ok := fold(all, snapshot.ID, upto); ok {
			f.compare(want, snapshot, "the Task of seq "+strconv.FormatInt(upto, 10))
		}
	}
}

// fold adds up the events of a task; ok is false if one is missing.
func fold(all map[eventKey]seen, task string, upto int64) (t *object, ok bool) {
	t = &object{Kind: "task", ID: task, Status: status{State: "submitted"}}
	for seq := int64(eventsStart); seq <= upto; seq++ {
		e := all[eventKey{task, seq}]
		if e.result == nil {
			return nil, false
		}
		switch e.object.Kind {
		case "status-update":
			if len(t.Status.Message) > 0 {
				t.History = append(t.History, t.Status.Message)
			}
			t.Status = e.object.Status
		case "artifact-update":
			t.apply(e.object)
		}
	}
	return t, true
}

func (o *object) apply(e *object) {
	i := slices.IndexFunc(o.Artifacts, func(a artifact) bool { return a.ID == e.Artifact.ID })
	switch {
	case i < 0:
		o.Artifacts = append(o.Artifacts, e.Artifact)
	case e.Append:
		o.Artifacts[i].Parts = slices.Concat(o.Artifacts[i].Parts, e.Artifact.Parts)
	default:
		o.Artifacts[i] = e.Artifact
	}
}

// compare compares a snapshot with its expected value. The time of the first status and the client's messages are in
// no event.
func (f *faults) compare(want, got *object, what string) {
	if got.Status.State != want.Status.State || want.Status.Timestamp != "" &&
		got.Status.Timestamp != want.Status.Timestamp ||
		!bytes.Equal(got.Status.Message, want.Status.Message) {
		f.add(Fold, got.ID, "%s has the status %s %s %s, its events %s %s %s", what, got.Status.State,
			got.Status.Timestamp, got.Status.Message,
			want.Status.State, want.Status.Timestamp, want.Status.Message)
	}
	equal := func(a, b artifact) bool {
		return a.ID == b.ID && a.Name == b.Name && a.Description == b.Description &&
			bytes.Equal(a.Metadata, b.Metadata) &&
			slices.EqualFunc(a.Parts, b.Parts, func(x, y json.RawMessage) bool { return bytes.Equal(x, y) })
	}
	if !slices.EqualFunc(got.Artifacts, want.Artifacts, equal) {
		f.add(Fold, got.ID, "%s has the artifacts\n%s\nits events\n%s", what, outline(got.Artifacts),
			outline(want.Artifacts))
	}
	var said []json.RawMessage
	for _, m := range got.History {
		if role(m) == "agent" {
			said = append(said, m)
		}
	}
	if !slices.EqualFunc(said, want.History, func(x, y json.RawMessage) bool { return bytes.Equal(x, y) }) {
		f.add(Fold, got.ID, "%s has the agent's messages\n%s\nits events\n%s", what, said, want.History)
	}
}

func outline(list []artifact) string {
	text := ""
	for _, a := range list {
		text += a.ID + ": " + strconv.Itoa(len(a.Parts)) + " parts; "
	}
	return text
}

func role(message []byte) string {
	var m struct{ Role string }
	_ = json.Unmarshal(message, &m) // an unreadable message has no role
	return m.Role
}

func seqOf(frame Frame) int64 {
	seq, _ := parseID(frame.ID)
	return seq
}
