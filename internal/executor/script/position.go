package script

import (
	"errors"
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// position is the progress of a task, as a checkpoint. It names the message with the program instead of containing the
// program, because it is written with every chunk.
type position struct {
	Seen    int  // messages processed so far
	Program int  // index of the message whose program runs or waits
	Op      int  // next op; one more than the number of ops after the program has completed
	Chunk   int  // next chunk of the op
	Waiting bool // the next message decides how to continue
}

func (p position) encode() a2a.Raw {
	b := append(make([]byte, 0, 64), `{"seen":`...)
	b = strconv.AppendInt(b, int64(p.Seen), 10)
	b = strconv.AppendInt(append(b, `,"program":`...), int64(p.Program), 10)
	b = strconv.AppendInt(append(b, `,"op":`...), int64(p.Op), 10)
	b = strconv.AppendInt(append(b, `,"chunk":`...), int64(p.Chunk), 10)
	b = strconv.AppendBool(append(b, `,"waiting":`...), p.Waiting)
	return append(b, '}')
}

// fits reports whether p is a valid position in ops.
func (p position) fits(ops []op) bool {
	switch {
	case p.Op > len(ops):
		return p.Op == len(ops)+1 && p.Waiting && p.Chunk == 0
	case p.Waiting:
		return p.Chunk == 0 && p.Op > 0 && ops[p.Op-1].state.Interrupted()
	case p.Op == len(ops):
		return p.Chunk == 0
	}
	return p.Chunk == 0 || p.Chunk < ops[p.Op].n
}

var errCheckpoint = errors.New("the checkpoint was not written by this agent")

func parsePosition(raw a2a.Raw) (position, error) {
	if rawjson.Check(raw, 2) != nil {
		return position{}, errCheckpoint
	}
	var p position
	obj := rawjson.Trim(raw)
	for _, f := range []struct {
		key string
		dst *int
	}{{"seen", &p.Seen}, {"program", &p.Program}, {"op", &p.Op}, {"chunk", &p.Chunk}} {
		v, ok := rawjson.Int(rawjson.Get(obj, f.key))
		if !ok || v < 0 || v > 1<<31 {
			return position{}, errCheckpoint
		}
		*f.dst = int(v)
	}
	var ok bool
	if p.Waiting, ok = rawjson.Bool(rawjson.Get(obj, "waiting")); !ok {
		return position{}, errCheckpoint
	}
	return p, nil
}
