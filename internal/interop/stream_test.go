package interop

import (
	"slices"
	"strconv"
	"testing"

	"github.com/a2aproject/a2a-go/a2a"
)

func TestStreamAddsUpToTheTask(t *testing.T) {
	t.Parallel()
	p := dial(t, scriptAgent)
	s := p.stream(script(
		op{"op": "status", "state": "working", "text": "thinking"},
		chunks("a", 20),
		op{"op": "status", "state": "working", "text": "writing"},
		op{"op": "chunk", "id": "big", "n": 3, "bytes": 200_000}, // far longer than a line reader's default limit
		op{"op": "artifact", "id": "whole", "text": "at once"},
		op{"op": "complete", "text": "there you are"},
	))
	stream := s.rest()
	checkStream(t, stream)
	task := p.get(stream[0].TaskInfo().TaskID)
	checkState(t, task, a2a.TaskStateCompleted)
	checkSame(t, "the events, added up, and tasks/get", fold(t, stream), task)
	checkSame(t, "chunks", texts(t, task, "a"), numbered("a", 20))
	if last := stream[len(stream)-1].(*a2a.TaskStatusUpdateEvent); text(t,
		last.Status.Message.Parts[0]) != "there you are" {
		t.Errorf("the last event says %v", last.Status.Message)
	}
}

func TestEveryEndOfATaskEndsItsStream(t *testing.T) {
	t.Parallel()
	p := dial(t, scriptAgent)
	for name, want := range map[string]a2a.TaskState{
		"complete": a2a.TaskStateCompleted, "fail": a2a.TaskStateFailed, "reject": a2a.TaskStateRejected,
		"input": a2a.TaskStateInputRequired,
	} {
		stream := p.stream(script(op{"op": name, "text": "because"})).rest()
		checkStream(t, stream)
		task := p.get(stream[0].TaskInfo().TaskID)
		checkState(t, task, want)
		checkSame(t, name+": the events, added up, and tasks/get", fold(t, stream), task)
	}
}

func TestTwoClientsSeeTheSameEvents(t *testing.T) {
	t.Parallel()
	// The second client uses another replica.
	database := newDatabase(t)
	one, two := newAddressOn(t, database), newAddressOn(t, database)
	sender, watcher, g := dialAt(t, one.url(), scriptAgent), dialAt(t, two.url(), scriptAgent), newGate(t)

	sent := sender.stream(script(chunks("a", 5), g.op(), chunks("b", 20)))
	sent.untilChunk("a", true)
	id := sent.seen[0].TaskInfo().TaskID
	watched := watcher.resubscribe(id)
	atStart := watched.first()
	checkSame(t, "what the second client starts with", atStart, fold(t, sent.seen))
	known := len(sent.seen)
	g.open()
	first, second := sent.rest(), watched.rest()
	checkStream(t, first)
	checkStream(t, second)
	checkSame(t, "what both see from then on", second[1:], first[known:])
	checkSame(t, "the events, added up, and tasks/get", fold(t, second), watcher.get(id))
}

func TestDisconnectedClientDoesNotEndTheTask(t *testing.T) {
	t.Parallel()
	p, g := dial(t, scriptAgent), newGate(t)
	s := p.stream(script(chunks("a", 1), g.op(), chunks("b", 3)))
	s.untilChunk("a", true)
	id := s.seen[0].TaskInfo().TaskID
	s.stop() // closes the connection
	back := p.resubscribe(id)
	checkState(t, back.first(), a2a.TaskStateWorking)
	g.open()
	checkStream(t, back.rest())
	checkSame(t, "chunks", texts(t, p.get(id), "b"), numbered("b", 3))
}

func TestResubscribeToAFinishedTask(t *testing.T) {
	t.Parallel()
	p := dial(t, echoAgent)
	task := p.send(message("hello"))
	stream := p.resubscribe(task.ID).rest()
	checkStream(t, stream)
	checkSame(t, "the task", stream[0], a2a.Event(task))
	if len(stream) != 2 {
		t.Errorf("the events are %s, want the task and its last status", sketch(stream))
	}
}

func TestManyTasksAtOnceHaveWholeStreams(t *testing.T) {
	t.Parallel()
	p := dial(t, scriptAgent)
	var open []*events
	for range 30 {
		open = append(open, p.stream(script(chunks("a", 10))))
	}
	for _, s := range open {
		s.first() // every stream is open before any is read further
	}
	for _, s := range open {
		stream := s.rest()
		checkStream(t, stream)
		checkSame(t, "chunks", texts(t, fold(t, stream), "a"), numbered("a", 10))
	}
}

// numbered returns the parts that n chunks of the agent script produce.
func numbered(id string, n int) []string {
	list := make([]string, n)
	for k := range list {
		list[k] = id + ":" + strconv.Itoa(k) + ":"
	}
	return slices.Clip(list)
}
