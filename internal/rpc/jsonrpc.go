package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/jsonrpc"
	"github.com/a2ad/a2ad/internal/sse"
	"github.com/a2ad/a2ad/internal/store"
)

// call is one JSON-RPC request on its way.
type call struct {
	s      *Server
	w      http.ResponseWriter
	r      *http.Request
	rec    *record
	agent  *served
	gen    *generation
	id     []byte // of the request, as sent; nil goes out as null
	caller store.Caller
}

// serveRPC answers a POST. The caller is known before anything of the body is looked at.
func (s *Server) serveRPC(w http.ResponseWriter, r *http.Request, agent *served) {
	asked, unspoken := s.asked(r)
	c := &call{s: s, w: w, r: r, rec: recordOf(r.Context()), agent: agent, gen: s.generations[0]}
	if asked != nil {
		c.gen = asked
	}
	principal, err := s.cfg.Authenticator.Authenticate(r)
	if err != nil {
		c.refuseCaller(err)
		return
	}
	c.rec.principal = &principal
	c.caller = store.Caller{Tenant: principal.Tenant, Owner: principal.Owner}
	body, err := s.readBody(w, r)
	if err != nil {
		c.fail(err)
		return
	}
	req, fault := jsonrpc.Parse(body, s.cfg.MaxDepth)
	if fault != nil {
		c.id = fault.ID
		code := a2a.CodeInvalidRequest
		if fault.Kind == jsonrpc.ParseError {
			code = a2a.CodeParse
		}
		c.fail(a2a.Errorf(code, "%s", fault.Text))
		return
	}
	c.id, c.rec.method = req.ID, req.Method
	if unspoken != nil {
		c.fail(unspoken)
		return
	}
	if err := c.carryOut(asked, &req, &principal); err != nil {
		c.fail(err)
	}
}

// carryOut finds out what is asked for, and does it if the caller may.
func (c *call) carryOut(asked *generation, req *jsonrpc.Request, p *auth.Principal) (err error) {
	if c.gen, err = c.s.route(asked, req.Method); err != nil {
		return err
	}
	c.rec.version = c.gen.Version()
	op, err := c.gen.Decode(req.Method, req.Params)
	if err != nil {
		return err
	}
	if err := c.chooseAgent(req.Params); err != nil {
		return err
	}
	if scope := scopeOf(op); !p.Has(scope) {
		return c.forbid(scope)
	}
	if !p.MayUse(c.agent.agent.Name) {
		return a2a.Errorf(a2a.CodeForbidden, "the credentials are not for this agent")
	}
	if err := c.agreeExtensions(); err != nil {
		return err
	}
	return c.do(c.r.Context(), op)
}

// chooseAgent lets the params name the agent, as the tenant of 1.0 does, where the path does not.
func (c *call) chooseAgent(params []byte) error {
	if strings.Trim(c.r.URL.Path, "/") != "" {
		return nil
	}
	name := c.gen.Tenant(params)
	if name == "" {
		return nil
	}
	named := c.s.agents[name]
	if named == nil {
		return a2a.InvalidParams("tenant", "there is no agent of this name")
	}
	c.agent = named
	return nil
}

// scopeOf says what a caller must be allowed to for an operation.
func scopeOf(op a2a.Op) auth.Scope {
	switch op.(type) {
	case *a2a.SendMessage, *a2a.CancelTask:
		return auth.ScopeTasksWrite
	case *a2a.SetPushConfig, *a2a.DeletePushConfig:
		return auth.ScopePushWrite
	}
	return auth.ScopeTasksRead
}

// do carries out the operation and answers.
func (c *call) do(ctx context.Context, op a2a.Op) error {
	e, agent := c.s.cfg.Engine, c.agent.agent
	switch op := op.(type) {
	case *a2a.SendMessage:
		if err := c.idempotency(op); err != nil {
			return err
		}
		if op.Push != nil {
			op.Push.Generation = c.gen.Version()
		}
		if op.Stream {
			return c.streamMessage(ctx, op)
		}
		t, err := e.Send(ctx, c.caller, agent, op)
		return c.answerTask(t, err, c.gen.AppendSent)
	case *a2a.GetTask:
		t, err := e.Get(ctx, c.caller, agent, op)
		return c.answerTask(t, err, c.gen.AppendTask)
	case *a2a.CancelTask:
		t, err := e.Cancel(ctx, c.caller, agent, op)
		return c.answerTask(t, err, c.gen.AppendTask)
	case *a2a.ListTasks:
		page, err := e.List(ctx, c.caller, agent, op)
		if err != nil {
			return err
		}
		c.answer(c.gen.AppendPage(nil, page, op.IncludeArtifacts))
		return nil
	case *a2a.Subscribe:
		return c.subscribe(ctx, op)
	case *a2a.SetPushConfig:
		op.Config.Generation = c.gen.Version()
		cfg, err := e.SetPush(ctx, c.caller, agent, op)
		return c.answerPush(op.TaskID, cfg, err)
	case *a2a.GetPushConfig:
		cfg, err := e.GetPush(ctx, c.caller, agent, op)
		return c.answerPush(op.TaskID, cfg, err)
	case *a2a.ListPushConfigs:
		all, err := e.ListPushes(ctx, c.caller, agent, op)
		if err != nil {
			return err
		}
		c.answer(c.gen.AppendPushConfigs(nil, op.TaskID, all))
		return nil
	case *a2a.DeletePushConfig:
		if err := e.DeletePush(ctx, c.caller, agent, op); err != nil {
			return err
		}
		c.answer(c.gen.AppendDeleted(nil))
		return nil
	case *a2a.GetExtendedCard:
		return a2a.Errorf(op.Undeclared, "there is no extended card")
	}
	return fmt.Errorf("operation %T is not carried out", op)
}

// idempotency takes the headers that make a send repeatable.
func (c *call) idempotency(op *a2a.SendMessage) error {
	keys := c.r.Header.Values("Idempotency-Key")
	if len(keys) == 0 {
		return nil
	}
	if len(keys) > 1 || keys[0] == "" || len(keys[0]) > 256 || strings.ContainsFunc(keys[0], notPrintable) {
		return a2a.InvalidParams("Idempotency-Key", "must be one header of 1 to 256 printable ASCII characters")
	}
	op.Idempotency, op.LastEventID = keys[0], c.r.Header.Get("Last-Event-ID")
	return nil
}

func notPrintable(r rune) bool { return r < 0x20 || r > 0x7e }

func (c *call) answerTask(t *a2a.Task, err error, encode func([]byte, *a2a.Task) []byte) error {
	if err != nil {
		return err
	}
	c.rec.task = t.ID.String()
	c.answer(encode(nil, t))
	return nil
}

func (c *call) answerPush(taskID string, cfg *a2a.PushConfig, err error) error {
	if err != nil {
		return err
	}
	c.answer(c.gen.AppendPushConfig(nil, taskID, cfg))
	return nil
}

func (c *call) answer(result []byte) {
	c.write(http.StatusOK, jsonrpc.AppendResult(make([]byte, 0, len(result)+len(c.id)+48), c.id, result))
}

func (c *call) write(status int, body []byte) {
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	c.w.WriteHeader(status)
	if _, err := c.w.Write(body); err != nil && c.rec.err == nil {
		c.rec.err = err // the client is gone
	}
}

// fail answers with an error. What is not written for callers stays here, in the log.
func (c *call) fail(err error) {
	c.rec.err = err
	var e *a2a.Error
	if !errors.As(err, &e) {
		e = &a2a.Error{Code: a2a.CodeInternal}
		if c.r.Context().Err() == nil {
			c.s.cfg.Logger.ErrorContext(c.r.Context(), "internal error", "request_id", c.rec.id, "method", clip(c.rec.method), "err", err)
		}
	}
	status := http.StatusOK
	switch e.Code {
	case a2a.CodeTooLarge:
		status = http.StatusRequestEntityTooLarge
		c.w.Header().Set("Connection", "close")
	case a2a.CodeMediaType:
		status = http.StatusUnsupportedMediaType
	case a2a.CodeUnauthenticated:
		status = http.StatusUnauthorized
	case a2a.CodeForbidden:
		status = http.StatusForbidden
	case a2a.CodeRateLimited:
		status = http.StatusTooManyRequests
		c.w.Header().Set("Retry-After", "1")
	case a2a.CodeUnavailable:
		status = http.StatusServiceUnavailable
		c.w.Header().Set("Retry-After", "1")
	}
	body := jsonrpc.AppendError(nil, c.id, c.gen.AppendError(nil, e, c.rec.id))
	if status == http.StatusOK && wantsStream(c.r) {
		if err := sse.NewWriter(c.w, c.s.cfg.SSEWriteTimeout).Event("", body); err != nil {
			c.rec.err = errors.Join(c.rec.err, err) // the client is gone
		}
		return
	}
	c.write(status, body)
}

// wantsStream reports whether the client asks for an event stream by name, and not for JSON. The official clients of 0.3 do so
// where they expect one (that of Python adds */*), and an error that comes as plain JSON is then lost on them: it seems an empty
// stream, or a broken one.
func wantsStream(r *http.Request) bool {
	stream := false
	for _, line := range r.Header.Values("Accept") {
		for kind := range strings.SplitSeq(line, ",") {
			kind, _, _ = strings.Cut(kind, ";")
			switch strings.ToLower(strings.TrimSpace(kind)) {
			case "text/event-stream":
				stream = true
			case "application/json":
				return false
			}
		}
	}
	return stream
}

// refuseCaller answers who could not be signed in.
func (c *call) refuseCaller(err error) {
	var refused *auth.Error
	if errors.As(err, &refused) {
		refused.SetHeader(c.w.Header())
	}
	c.fail(err)
}

func (c *call) forbid(scope auth.Scope) error {
	c.w.Header().Add("WWW-Authenticate", `Bearer error="insufficient_scope", scope="`+string(scope)+`"`)
	return a2a.Errorf(a2a.CodeForbidden, "the credentials lack the scope %s", scope)
}

// readBody reads a request whole, within the limits.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, a2a.Errorf(a2a.CodeMediaType, "Content-Encoding %q is not supported", clip(enc))
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" && kind != "application/a2a+json" {
		return nil, a2a.Errorf(a2a.CodeMediaType, "the Content-Type must be application/json")
	}
	if r.ContentLength > s.cfg.MaxBody {
		return nil, s.tooLarge()
	}
	var buf bytes.Buffer
	if r.ContentLength > 0 {
		buf.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	_, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, s.cfg.MaxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, s.tooLarge()
	case err != nil:
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			w.Header().Set("Connection", "close")
		}
		return nil, a2a.Error{Code: a2a.CodeParse, Message: "the body could not be read"}.With(err)
	}
	return buf.Bytes(), nil
}

func (s *Server) tooLarge() error {
	return a2a.Errorf(a2a.CodeTooLarge, "the body is larger than %d bytes", s.cfg.MaxBody)
}

// writePlainError answers what is no JSON-RPC request.
func (s *Server) writePlainError(w http.ResponseWriter, status int) {
	body := `{"error":{"code":` + strconv.Itoa(status) + `,"message":"` + http.StatusText(status) + `"}}`
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	io.WriteString(w, body) //nolint:errcheck // the client is gone
}
