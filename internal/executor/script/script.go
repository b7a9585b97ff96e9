// Package script is the agent that plays what its message says: for demonstrations,
// conformance kits and fault tests. Its events are known beforehand (package model), so
// a test can compare what a task's log holds with what it must hold.
//
// # Scripts
//
// A client message may carry a data part {"script":[op,…]}; the first such part counts.
//
//	{"op":"status","state":s,"text":t}                     a status event; state is working if left out
//	{"op":"chunk","id":a,"n":N,"bytes":B,"every_ms":M}     N chunks of artifact a, M ms between two
//	{"op":"artifact","id":a,"text":t}                      a whole artifact
//	{"op":"sleep","ms":M}                                  wait
//	{"op":"input","text":t}   {"op":"auth","text":t}       end the turn; the next message goes on after this op
//	{"op":"complete"|"fail"|"reject","text":t}             end the task
//	{"op":"reply","text":t}                                a message in place of a task, as the first event; else as complete
//	{"op":"error","text":t,"times":k}                      an error worth another try, on the first k attempts (default 1)
//	{"op":"panic"}   {"op":"hang"}                         misbehave
//	{"op":"ignore_cancel","ms":M}                          wait, and begin the op after it, whatever becomes of the context
//	{"op":"effect","url":u,"key":k}                        POST {"task","epoch","attempt","step","key"} to u
//
// text may be left out everywhere; a status then has no message. A status op with a
// state that ends a turn does so. Chunk k, from 0, is one text part "<a>:<k>:" padded
// with x to B bytes; the first chunk replaces, the others append, the last one says so.
// A script that just ends completes the task. One that cannot be read fails it, with the
// place and the reason. step is the index of the op.
//
// # Turns
//
// Messages are taken one by one, in order. One with a script starts it, also in place of
// a script that waits. One without goes on with the script that waits. If neither is so,
// the message's id decides by its prefix (see prefix.go: what the kits of a2aproject/a2a-tck
// expect), and any other id ends the turn in input-required. An input or auth op whose
// answer is already among the messages of the run is passed over without an event. A
// message that arrives before a completed script could end its task is the next turn.
//
// # Attempts
//
// A checkpoint is saved with every event and after every op without one. A further
// attempt goes on behind the last that was saved, so that over any number of crashes the
// log holds each event of the script once. Ops without an event may run again.
package script

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/netip"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
)

// Config sets an Executor up. Its zero value works.
type Config struct {
	// Resubscribe is how long a task with the message id prefix
	// test-resubscribe-message-id runs: at least twice the kit's TCK_STREAMING_TIMEOUT.
	// Default 8 s.
	Resubscribe time.Duration
	// Delay is how long one with the prefix tck-delayed-complete runs. Default 2 s.
	Delay time.Duration
	// Allow says which addresses an effect may be sent to; nil: none.
	Allow func(netip.Addr) bool
}

// Executor plays scripts.
type Executor struct {
	prefixes []prefixRow
	client   *http.Client
}

// New returns an Executor. It starts nothing and holds no connections.
func New(c Config) *Executor {
	if c.Resubscribe == 0 {
		c.Resubscribe = 8 * time.Second
	}
	if c.Delay == 0 {
		c.Delay = 2 * time.Second
	}
	return &Executor{prefixes: prefixes(c), client: newClient(c.Allow)}
}

// Execute plays the script of the task from where the record stops.
func (e *Executor) Execute(ctx context.Context, run executor.Run) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		p := player{executor: e, run: &run, yield: yield}
		if err := p.load(); err != nil {
			yield(nil, executor.Permanent(err))
			return
		}
		p.play(ctx)
	}
}

// player is one run of a script.
type player struct {
	executor *Executor
	run      *executor.Run
	yield    func(a2a.Event, error) bool

	said    []a2a.Message // by the client, oldest first
	at      position
	program program // the one that at.Program names
	pending bool    // a checkpoint was yielded and no event since
	deaf    bool    // the op before was ignore_cancel, so the next one does not heed the context either
}

// load finds the place where the record stops.
func (p *player) load() error {
	said, fresh := executor.Conversation(*p.run)
	p.said = said
	if p.run.Checkpoint == nil {
		p.at = position{Seen: fresh, Waiting: true}
		return nil
	}
	at, err := parsePosition(p.run.Checkpoint)
	if err != nil {
		return err
	}
	if at.Seen > len(said) || at.Program >= at.Seen {
		return fmt.Errorf("the checkpoint is of message %d, the task has %d", at.Seen, len(said))
	}
	p.at = at
	if p.program, err = p.executor.programOf(&said[at.Program]); err != nil {
		return err
	}
	if !at.fits(p.program.ops) {
		return errCheckpoint
	}
	return nil
}

// play runs ops until the turn or the task ends, or the caller stops reading.
func (p *player) play(ctx context.Context) {
	for {
		if p.at.Waiting && !p.take() {
			return
		}
		if p.at.Op >= len(p.program.ops) {
			p.report(&complete)
			return
		}
		o := &p.program.ops[p.at.Op]
		if err := context.Cause(ctx); err != nil && !p.deaf && o.kind != opIgnoreCancel {
			p.fail(err)
			return
		}
		p.deaf = o.kind == opIgnoreCancel
		if !p.step(ctx, o) {
			return
		}
	}
}

// complete is what a script that just ends ends with.
var complete = op{kind: opStatus, state: a2a.StateCompleted}

var errNoMessage = errors.New("there is no message to act on")

// take lets the next message decide how to go on.
func (p *player) take() bool {
	if p.at.Seen == len(p.said) {
		if !p.program.scripted && len(p.program.ops) == 0 {
			return p.fail(executor.Permanent(errNoMessage))
		}
		// The turn was given no message, so it ends as the one before did.
		last := &complete
		if p.at.Op <= len(p.program.ops) {
			last = &p.program.ops[p.at.Op-1]
		}
		p.yield(p.status(last), nil)
		return false
	}
	i := p.at.Seen
	next, err := p.executor.programOf(&p.said[i])
	if err != nil {
		return p.fail(executor.Permanent(err))
	}
	if next.scripted || !p.program.scripted {
		p.program, p.at = next, position{Program: i}
	}
	p.at.Seen, p.at.Waiting = i+1, false
	return true
}

// step does one op and reports whether to go on.
func (p *player) step(ctx context.Context, o *op) bool {
	switch o.kind {
	case opStatus:
		return p.report(o)
	case opReply:
		return p.reply(o)
	case opArtifact:
		return p.produce(ctx, o)
	case opError:
		if p.run.Attempt <= o.times {
			return p.settle() && p.fail(fmt.Errorf("script[%d] says error %q", p.at.Op, o.text))
		}
		p.at.Op++
		return true
	}
	if !p.settle() {
		return false
	}
	var err error
	switch o.kind {
	case opSleep:
		err = wait(ctx, o.wait)
	case opIgnoreCancel:
		err = wait(context.WithoutCancel(ctx), o.wait)
	case opEffect:
		err = p.effect(ctx, o)
	case opHang:
		<-ctx.Done()
		err = context.Cause(ctx)
	case opPanic:
		panic(fmt.Sprintf("script[%d] says panic", p.at.Op))
	}
	if err != nil {
		return p.fail(err)
	}
	p.at.Op++
	p.pending = true
	return p.save(p.at)
}

// report does a status op.
func (p *player) report(o *op) bool {
	next := p.at
	next.Op++
	switch {
	case o.state == a2a.StateCompleted:
		// The server lets the task go on all the same if the client has sent more.
		next.Op, next.Waiting = len(p.program.ops)+1, true
	case o.state.Terminal():
		p.yield(p.status(o), nil) // nothing follows that would need a checkpoint
		return false
	case o.state.Interrupted() && p.at.Seen < len(p.said):
		next.Waiting = true
		p.at = next
		return true
	case o.state.Interrupted():
		next.Waiting = true
	}
	return p.emit(next, p.status(o)) && !next.Waiting
}

// reply does a reply op. Where a message by itself is no answer it completes the task.
func (p *player) reply(o *op) bool {
	m := p.status(o).Status.Message
	if !p.run.MayReply || m == nil {
		return p.report(o)
	}
	m.TaskID, m.ID = "", "" // that of others names the task, of which there is none
	next := p.at            // as behind completed: if the client knows of the task it may have said more
	next.Op, next.Waiting = len(p.program.ops)+1, true
	p.emit(next, m)
	return false
}

// produce does what is left of a chunk or artifact op.
func (p *player) produce(ctx context.Context, o *op) bool {
	for k := p.at.Chunk; k < o.n; k++ {
		if k > 0 {
			if err := wait(ctx, o.wait); err != nil {
				return p.fail(err)
			}
		}
		next := p.at
		if next.Chunk++; next.Chunk == o.n {
			next.Chunk = 0
			next.Op++
		}
		u := &a2a.ArtifactUpdate{
			Artifact: a2a.Artifact{ID: o.id, Parts: []a2a.Part{o.piece(k)}},
			Append:   k > 0, LastChunk: k == o.n-1,
		}
		if !p.emit(next, u) {
			return false
		}
	}
	return true
}

func (p *player) status(o *op) *a2a.StatusUpdate {
	u := &a2a.StatusUpdate{Status: a2a.Status{State: o.state}}
	if o.text != "" {
		task := p.run.Task.ID.String()
		u.Status.Message = &a2a.Message{
			// The same on every attempt, and no other message of the task has it.
			ID: fmt.Sprintf("%s-%d-%d", task, p.at.Program, p.at.Op), Role: a2a.RoleAgent,
			Parts: []a2a.Part{{Kind: a2a.PartText, Text: o.text}}, TaskID: task, ContextID: p.run.Task.ContextID,
		}
	}
	return u
}

// emit yields an event together with the place behind it.
func (p *player) emit(next position, event a2a.Event) bool {
	p.at = next
	p.pending = false
	return p.save(next) && p.yield(event, nil)
}

func (p *player) save(at position) bool {
	return p.yield(&a2a.Checkpoint{Body: at.encode()}, nil)
}

// settle makes the caller write a checkpoint that no event followed: a second one does
// that. It comes before whatever takes long or ends the run, so that a crash in the
// middle does not repeat the ops before.
func (p *player) settle() bool {
	if !p.pending {
		return true
	}
	p.pending = false
	return p.save(p.at)
}

func (p *player) fail(err error) bool {
	p.yield(nil, err)
	return false
}

// wait returns early, with the cause, when ctx is done.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
