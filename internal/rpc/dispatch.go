package rpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/throttle"
	"github.com/a2ad/a2ad/internal/wire/encode"
)

// This file carries out operations for any binding (JSON-RPC, REST, gRPC). A binding makes a call
// for each request and signs the client in. Then it lets a codec decode the operation, and passes
// it to serve. The result comes back through the front of the binding:
//
//	c := &call{s: s, front: f, rec: rec, agent: agent, gen: gen, header: r.Header, reply: w.Header()}
//	defer c.end()
//	if err := c.signIn(r); err != nil { c.fail(ctx, err); return }
//	op, err := c.gen.Decode(method, params)
//	if err != nil { c.fail(ctx, err); return }
//	c.serve(ctx, op)

// front is how a binding sends the result of a call: one answer, one error, or a stream.
type front interface {
	// answer sends the result of an operation, one JSON value as the codec wrote it.
	answer(result []byte)
	// fail sends an error that is written for callers. Headers or metadata for it are in reply
	// already.
	fail(e *a2a.Error)
	// open begins a stream. It need not send anything before the first item.
	open() (items, error)
}

// items is an open stream to a client. An error of a method ends it: the client disconnected, or
// reads too slowly.
type items interface {
	// item sends one item, as the generation packs it, under the id after which the client can
	// resume.
	item(id string, result []byte) error
	// gap says that events before the next item are missing.
	gap() error
	// ping keeps the connection alive.
	ping() error
	// end is called once. why is nil after the last item, and engine.ErrDraining if the client
	// should come back later. It is an *auth.Error if the client may come back with other
	// credentials. Otherwise it is the error that ended the stream.
	end(why error) error
}

// call is one request of a client on its way through the server.
type call struct {
	s      *Server
	front  front
	rec    *record
	agent  *served
	gen    *generation
	header http.Header // of the request; for gRPC its metadata
	reply  http.Header // header of the answer

	principal auth.Principal
	caller    db.Caller
	session   *auth.Session // ends with the credential
	mem       *budget.Lease // memory that the request holds; nil until the client is signed in
}

// SignIn authenticates a request. It counts and reports bad credentials, and bounds how many of
// them are checked per address, so everything that takes credentials must use it. In addition to
// the errors of an auth.Authenticator it returns one with a2a.CodeRateLimited, whose SetHeader says
// when to come back.
func (s *Server) SignIn(r *http.Request) (auth.Principal, error) {
	p, err := s.throttle.SignIn(s.cfg.Authenticator.Authenticate, r)
	return s.signedIn(r, p, err)
}

// SignInByCode is SignIn for a code that check asks another server about. It must also be in the Authorization header
// of the request, which tells codes apart.
func (s *Server) SignInByCode(
	check func(*http.Request) (auth.Principal, error), r *http.Request,
) (auth.Principal, error) {
	p, err := s.throttle.SignInByCode(check, r)
	return s.signedIn(r, p, err)
}

// signedIn reports the result of a sign-in, and returns it.
func (s *Server) signedIn(r *http.Request, p auth.Principal, err error) (auth.Principal, error) {
	var refused *auth.Error
	if errors.As(err, &refused) && s.cfg.Refused != nil {
		s.cfg.Refused(s.throttle.ClientAddress(r), refused)
	}
	if rec := recordOf(r.Context()); err != nil {
		rec.err = err
	} else {
		rec.principal = &p
	}
	return p, err
}

// AdmitOperator counts a request of the admin API or of the console: a write as a message, another one as a read. It
// returns an error with a2a.CodeRateLimited, whose SetHeader says when to come back, if there were too many.
func (s *Server) AdmitOperator(p auth.Principal, write bool) error {
	if write {
		return s.throttle.Admit(p, &a2a.CancelTask{})
	}
	return s.throttle.Admit(p, &a2a.GetTask{})
}

// OpenOperatorStream counts a stream of the admin API until leave, as a stream of its caller. Its request is measured
// until now: the stream may last for hours. It returns the errors of AdmitOperator.
func (s *Server) OpenOperatorStream(r *http.Request, p auth.Principal) (leave func(), err error) {
	if err := s.throttle.Admit(p, &a2a.Subscribe{}); err != nil {
		return nil, err
	}
	leave, err = s.cfg.Engine.OpenStream(db.Caller{Tenant: p.Tenant, Owner: p.Owner})
	if err == nil {
		recordOf(r.Context()).streaming()
	}
	return leave, err
}

// signIn authenticates the client of a call.
func (c *call) signIn(r *http.Request) error {
	p, err := c.s.SignIn(r)
	if err != nil {
		var refused *auth.Error
		if errors.As(err, &refused) {
			refused.SetHeader(c.reply)
		}
		return err
	}
	c.principal, c.rec.principal = p, &c.principal
	c.session = c.s.cfg.Sessions.Enter(r, p)
	c.caller = db.Caller{Tenant: p.Tenant, Owner: p.Owner, Shared: c.s.cfg.Shared, Actor: p.Actor()}
	c.mem = c.s.cfg.Budget.Open(budget.Owner{Tenant: p.Tenant, Name: p.Owner})
	c.rec.mem = c.mem
	return nil
}

// end ends a call, whether its client was signed in or not. The answer has been written by then,
// so the call gives back the memory that it held.
func (c *call) end() {
	c.session.Leave()
	c.mem.Release()
}

// workShare is how much memory decoding, storing and answering a request takes, in multiples of its
// size.
const workShare = 4

// work draws the memory for handling a complete body.
func (c *call) work(ctx context.Context, body []byte) error {
	return c.mem.Grow(ctx, workShare*int64(len(body)))
}

// serve carries out an operation, if the caller may, and answers. It follows a stream only after
// everything that opened the stream has returned: deeper frames would double the stack of every
// idle stream. All of this ends with the credential, so no operation can outlive the credential by
// waiting.
func (c *call) serve(ctx context.Context, op a2a.Op) {
	ctx, stop := c.session.Context(ctx)
	defer stop()
	st, err := c.admit(ctx, op)
	if err == nil && st != nil {
		err = c.stream(ctx, st)
	}
	if err == nil {
		return
	}
	if ended := auth.Ended(ctx); ended != nil {
		ended.SetHeader(c.reply)
		err = ended
	}
	c.fail(ctx, err)
}

// admit carries out an operation if the caller may and no limit is reached.
func (c *call) admit(ctx context.Context, op a2a.Op) (*engine.Stream, error) {
	if err := ctx.Err(); err != nil { // the client disconnected while the request was read
		return nil, err
	}
	if err := c.permit(op); err != nil {
		return nil, err
	}
	if err := c.s.throttle.Admit(c.principal, op); err != nil {
		return nil, err
	}
	return c.do(ctx, op)
}

// chooseAgent replaces the agent that the path names by the one of that name.
func (c *call) chooseAgent(name string) error {
	named := c.s.agent(name)
	if named == nil {
		return a2a.InvalidParams("tenant", "there is no agent of this name")
	}
	c.agent = named
	return nil
}

// permit refuses an operation if the caller lacks a scope, or if the credentials are not for the
// agent. It also refuses a request without an extension that the agent requires.
func (c *call) permit(op a2a.Op) error {
	for _, scope := range scopesOf(op) {
		if !c.principal.Has(scope) {
			c.reply.Add("WWW-Authenticate", `Bearer error="insufficient_scope", scope="`+string(scope)+`"`)
			return a2a.Errorf(a2a.CodeForbidden, "the credentials lack the scope %s", scope)
		}
	}
	if !c.principal.MayUse(c.agent.agent.Name) {
		return a2a.Errorf(a2a.CodeForbidden, "the credentials are not for this agent")
	}
	return c.agreeExtensions()
}

// scopesOf returns the scopes that an operation needs. A message that contains a webhook also sets
// one.
func scopesOf(op a2a.Op) []auth.Scope {
	switch op := op.(type) {
	case *a2a.SendMessage:
		if op.Push != nil {
			return []auth.Scope{auth.ScopeTasksWrite, auth.ScopePushWrite}
		}
		return []auth.Scope{auth.ScopeTasksWrite}
	case *a2a.CancelTask:
		return []auth.Scope{auth.ScopeTasksWrite}
	case *a2a.SetPushConfig, *a2a.DeletePushConfig:
		return []auth.Scope{auth.ScopePushWrite}
	}
	return []auth.Scope{auth.ScopeTasksRead}
}

// do carries out the operation. It answers, or returns a stream to follow.
func (c *call) do(ctx context.Context, op a2a.Op) (*engine.Stream, error) {
	ctx = budget.With(ctx, c.mem)
	e, agent := c.s.cfg.Engine, c.agent.agent
	c.rec.agent = agent.Name
	switch op := op.(type) {
	case *a2a.SendMessage:
		if c.agent.removed {
			return nil, a2a.Errorf(a2a.CodeUnsupportedOperation,
				"the agent %s was removed: its tasks can be read and canceled, but accept no messages", agent.Name)
		}
		if err := c.idempotency(op); err != nil {
			return nil, err
		}
		op.Traceparent, op.Message.Activated = c.rec.trace, c.activated()
		if op.Stream {
			c.inFrames()
			return e.Stream(ctx, c.caller, agent, op)
		}
		t, err := e.Send(ctx, c.caller, agent, op)
		return nil, c.answerTask(ctx, t, err, c.gen.AppendSent)
	case *a2a.GetTask:
		t, err := e.Get(ctx, c.caller, agent, op)
		return nil, c.answerTask(ctx, t, err, c.gen.AppendTask)
	case *a2a.CancelTask:
		t, err := e.Cancel(ctx, c.caller, agent, op)
		return nil, c.answerTask(ctx, t, err, c.gen.AppendTask)
	case *a2a.ListTasks:
		page, err := e.List(ctx, c.caller, agent, op)
		if err != nil {
			return nil, err
		}
		if page.Estimated { // totalSize is required, and the schema has no member that says how exact it is
			c.reply.Set("A2AD-Total-Size", "estimate")
		}
		return nil, c.answerPage(ctx, page, op.IncludeArtifacts)
	case *a2a.Subscribe:
		op.LastEventID = c.header.Get("Last-Event-ID")
		c.inFrames()
		return e.Subscribe(ctx, c.caller, agent, op)
	case *a2a.SetPushConfig:
		cfg, err := e.SetPush(ctx, c.caller, agent, op)
		return nil, c.answerPush(op.TaskID, cfg, err)
	case *a2a.GetPushConfig:
		cfg, err := e.GetPush(ctx, c.caller, agent, op)
		return nil, c.answerPush(op.TaskID, cfg, err)
	case *a2a.ListPushConfigs:
		all, err := e.ListPushes(ctx, c.caller, agent, op)
		if err != nil {
			return nil, err
		}
		c.front.answer(c.gen.AppendPushConfigs(nil, op.TaskID, all))
		return nil, nil
	case *a2a.DeletePushConfig:
		if err := e.DeletePush(ctx, c.caller, agent, op); err != nil {
			return nil, err
		}
		c.front.answer(c.gen.AppendDeleted(nil))
		return nil, nil
	case *a2a.GetExtendedCard:
		return nil, c.extendedCard(op)
	}
	return nil, fmt.Errorf("operation %T is not carried out", op)
}

// idempotency reads the headers that make a send repeatable.
func (c *call) idempotency(op *a2a.SendMessage) error {
	keys := c.header.Values("Idempotency-Key")
	if len(keys) == 0 {
		return nil
	}
	if len(keys) > 1 || keys[0] == "" || len(keys[0]) > 256 || strings.ContainsFunc(keys[0], notPrintable) {
		return a2a.InvalidParams("Idempotency-Key", "must occur once, with 1 to 256 printable ASCII characters")
	}
	op.Idempotency, op.LastEventID = keys[0], c.header.Get("Last-Event-ID")
	return nil
}

// traceparent reads the position of the request in a trace. It ignores an invalid header.
func traceparent(h http.Header) a2a.Traceparent {
	lines := h.Values("Traceparent")
	if len(lines) != 1 {
		return ""
	}
	return a2a.ParseTraceparent(lines[0])
}

func notPrintable(r rune) bool { return r < 0x20 || r > 0x7e }

func (c *call) answerTask(ctx context.Context, t *a2a.Task, err error, write func([]byte, *a2a.Task) []byte) error {
	if err != nil {
		return err
	}
	c.rec.task, c.rec.context = t.ID.String(), t.ContextID
	out, ok := c.front.(splicing)
	if !ok || encode.TaskSize(t, true) < spliceFrom {
		c.front.answer(write(nil, t))
		return nil
	}
	s := newSplice(c.gen)
	short := s.task(t)
	if err := c.mem.Grow(ctx, 2*int64(s.whole)); err != nil {
		return err
	}
	out.splice(s.pieces(write(nil, short)))
	return nil
}

func (c *call) answerPage(ctx context.Context, p *a2a.Page, artifacts bool) error {
	size := 0
	for i := range p.Tasks {
		size += encode.TaskSize(&p.Tasks[i], artifacts)
	}
	out, ok := c.front.(splicing)
	if !ok || size < spliceFrom {
		c.front.answer(c.gen.AppendPage(nil, p, artifacts))
		return nil
	}
	s := newSplice(c.gen)
	short := *p
	short.Tasks = make([]a2a.Task, len(p.Tasks))
	for i := range p.Tasks {
		short.Tasks[i] = *s.task(&p.Tasks[i])
	}
	if err := c.mem.Grow(ctx, 2*int64(s.whole)); err != nil {
		return err
	}
	out.splice(s.pieces(c.gen.AppendPage(nil, &short, artifacts)))
	return nil
}

// inFrames says that the answer is a stream, whose items are built whole one at a time.
func (c *call) inFrames() { c.mem.SetWhole(max(c.mem.Whole(), 1)) }

func (c *call) answerPush(taskID string, cfg *a2a.PushConfig, err error) error {
	if err != nil {
		return err
	}
	c.front.answer(c.gen.AppendPushConfig(nil, taskID, cfg))
	return nil
}

// fail sends an error to the client. An error that was not written for callers only goes to the
// log.
func (c *call) fail(ctx context.Context, err error) {
	c.rec.err, c.rec.failed = err, true
	var e *a2a.Error
	if !errors.As(err, &e) {
		e = &a2a.Error{Code: a2a.CodeInternal}
		if c.rec.gone = ctx.Err() != nil; !c.rec.gone {
			c.s.cfg.Logger.ErrorContext(ctx, "internal error", "request_id", c.rec.id,
				"method", clip(c.rec.method), "err", err)
		}
	}
	if e.Code == a2a.CodeRateLimited || e.Code == a2a.CodeUnavailable {
		c.reply.Set("Retry-After", "1")
	}
	var limited *throttle.Error
	if errors.As(err, &limited) {
		limited.SetHeader(c.reply)
	}
	c.front.fail(e)
}
