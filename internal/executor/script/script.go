// Package script is an agent that plays the script in its message, for demonstrations, conformance kits and fault
// tests. Its events are known beforehand (package model), so a test can compare a task's log with the expected one.
//
// # Scripts
//
// A client message may carry a data part {"script":[op,…]}; the first such part counts.
//
//	{"op":"status","state":s,"text":t}                     a status event; the default state is working
//	{"op":"chunk","id":a,"n":N,"bytes":B,"every_ms":M}     N chunks of artifact a, M ms between two
//	{"op":"artifact","id":a,"text":t}                      a whole artifact
//	{"op":"sleep","ms":M}                                  wait
//	{"op":"input","text":t}   {"op":"auth","text":t}       end the turn; the next message continues after this op
//	{"op":"complete"|"fail"|"reject","text":t}             end the task
//	{"op":"reply","text":t}                                a message instead of a task, as the first event;
//	                                                       otherwise the same as complete
//	{"op":"error","text":t,"times":k}                      an error that is retried, on the first k attempts
//	                                                       (default 1)
//	{"op":"panic"}   {"op":"hang"}                         misbehave
//	{"op":"ignore_cancel","ms":M}                          wait, and begin the next op, even if the context has ended
//	{"op":"effect","url":u,"key":k}                        POST {"task","epoch","attempt","step","key"} to u
//
// text is always optional; without it a status has no message. A status op with a state that ends a turn does so.
// Chunk k, from 0, is one text part "<a>:<k>:" padded with x to B bytes. The first chunk replaces the artifact, the
// others append, and the last one has lastChunk. At the end of a script the task is completed. A script that cannot
// be read fails the task, with the position and the reason. step is the index of the op.
//
// # Turns
//
// Messages are processed one by one, in order. A message with a script starts it, and replaces a script that waits. A
// message without a script continues the script that waits. If no script waits, the prefix of the message's id
// decides (see prefix.go: what the kits of a2aproject/a2a-tck expect), and any other id ends the turn in
// input-required. An input or auth op whose answer is already among the messages of the run is skipped without an
// event. A message that arrives before a completed script could end its task is the next turn.
//
// # Attempts
//
// A checkpoint is saved with every event and after every op without one. A further attempt continues after the last
// saved checkpoint. So the log has each event of the script once, over any number of crashes. Ops without an event
// may run again.
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

// Config configures an Executor. Its zero value works.
type Config struct {
	// Resubscribe is how long a task with the message id prefix test-resubscribe-message-id runs: at least twice the
	// kit's TCK_STREAMING_TIMEOUT. Default 8 s.
	Resubscribe time.Duration
	// Delay is how long a task with the prefix tck-delayed-complete runs. Default 2 s.
	Delay time.Duration
	// Allow says which addresses an effect may be sent to; nil: none.
	Allow func(netip.Addr) bool
}

// Executor plays scripts.
type Executor struct {
	prefixes []prefixRow
	client   *http.Client
}

// New returns an Executor. It starts nothing and keeps no connections.
func New(c Config) *Executor {
	if c.Resubscribe == 0 {
		c.Resubscribe = 8 * time.Second
	}
	if c.Delay == 0 {
		c.Delay = 2 * time.Second
	}
	return &Executor{prefixes: prefixes(c), client: newClient(c.Allow)}
}

// Execute plays the script of the task from the last checkpoint on.
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

	ignoresCancel bool // the previous op was ignore_cancel, so the next one does not check the context either
}

// load reads the position from the checkpoint.
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
		return fmt.Errorf("the checkpoint is at message %d, but the task has %d", at.Seen, len(said))
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
		if p.at.Waiting && !p.nextMessage() {
			return
		}
		if p.at.Op >= len(p.program.ops) {
			p.report(&complete)
			return
		}
		o := &p.program.ops[p.at.Op]
		if err := context.Cause(ctx); err != nil && !p.ignoresCancel && o.kind != opIgnoreCancel {
			p.fail(err)
			return
		}
		p.ignoresCancel = o.kind == opIgnoreCancel
		if !p.step(ctx, o) {
			return
		}
	}
}

// complete is the op after the last one of a script.
var complete = op{kind: opStatus, state: a2a.StateCompleted}

var errNoMessage = errors.New("there is no message to act on")

// nextMessage lets the next message decide how to continue. It reports whether the run continues.
func (p *player) nextMessage() bool {
	if p.at.Seen == len(p.said) {
		if !p.program.scripted && len(p.program.ops) == 0 {
			return p.fail(executor.Permanent(errNoMessage))
		}
		// The turn has no message, so it ends as the previous one did.
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

// step does one op. It reports whether the run continues.
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
			return p.savePending() && p.fail(fmt.Errorf("script[%d] says error %q", p.at.Op, o.text))
		}
		p.at.Op++
		return true
	}
	if !p.savePending() {
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
		// If the client has sent more messages, the server starts the next turn.
		next.Op, next.Waiting = len(p.program.ops)+1, true
	case o.state.Terminal():
		p.yield(p.status(o), nil) // a checkpoint is not needed after the end
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

// reply does a reply op. If a message by itself cannot be the answer, it completes the task.
func (p *player) reply(o *op) bool {
	m := p.status(o).Status.Message
	if !p.run.MayReply || m == nil {
		return p.report(o)
	}
	m.TaskID, m.ID = "", "" // there is no task for the client
	next := p.at            // as after completed: a client that knows the task may have sent more messages
	next.Op, next.Waiting = len(p.program.ops)+1, true
	p.emit(next, m)
	return false
}

// produce does the rest of a chunk or artifact op.
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
			// The same on every attempt, and unique in the task.
			ID: fmt.Sprintf("%s-%d-%d", task, p.at.Program, p.at.Op), Role: a2a.RoleAgent,
			Parts: []a2a.Part{{Kind: a2a.PartText, Text: o.text}}, TaskID: task, ContextID: p.run.Task.ContextID,
		}
	}
	return u
}

// emit yields an event together with the position after it.
func (p *player) emit(next position, event a2a.Event) bool {
	p.at = next
	p.pending = false
	return p.save(next) && p.yield(event, nil)
}

func (p *player) save(at position) bool {
	return p.yield(&a2a.Checkpoint{Body: at.encode()}, nil)
}

// savePending makes the caller write a checkpoint that no event followed, by yielding a second one. It comes before
// ops that take long or end the run, so that a crash during them does not repeat the earlier ops.
func (p *player) savePending() bool {
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
