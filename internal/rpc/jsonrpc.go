package rpc

import (
	"errors"
	"iter"
	"net/http"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/jsonrpc"
	"github.com/a2ad/a2ad/internal/sse"
)

// rpcFront answers one JSON-RPC request.
type rpcFront struct {
	exchange
	c  *call
	id []byte // of the request, as sent; nil is written as null
}

// serveRPC answers a POST. It authenticates the caller before it reads the body.
func (s *Server) serveRPC(w http.ResponseWriter, r *http.Request, agent *served) {
	rec := recordOf(r.Context())
	if rec.route = routeRPC; len(r.URL.Path) > 1 {
		rec.route = routeNamed
	}
	c := &call{s: s, rec: rec, agent: agent, gen: s.generations[0], header: r.Header, reply: w.Header()}
	f := &rpcFront{exchange: exchange{s, w, r, rec}, c: c}
	c.front = f
	defer c.end()
	if op, err := f.read(); err != nil {
		c.fail(r.Context(), err)
	} else {
		c.serve(r.Context(), op)
	}
}

// read authenticates the caller and decodes the operation.
func (f *rpcFront) read() (a2a.Op, error) {
	c := f.c
	asked, unspoken := f.s.asked(f.r.Header, f.r.URL.RawQuery)
	if asked != nil {
		c.gen = asked
	}
	if err := c.signIn(f.r); err != nil {
		return nil, err
	}
	if err := f.checkType(); err != nil {
		return nil, err
	}
	body, err := f.readBody()
	if err == nil {
		err = c.work(f.r.Context(), body)
	}
	if err != nil {
		return nil, err
	}
	req, fault := jsonrpc.Parse(body, f.s.cfg.MaxDepth)
	if fault != nil {
		f.id = fault.ID
		code := a2a.CodeInvalidRequest
		if fault.Kind == jsonrpc.ParseError {
			code = a2a.CodeParse
		}
		return nil, a2a.Errorf(code, "%s", fault.Text)
	}
	f.id, f.rec.method = req.ID, req.Method
	if unspoken != nil {
		return nil, unspoken
	}
	if c.gen, err = f.s.route(asked, req.Method); err != nil {
		return nil, err
	}
	f.rec.version = c.gen.Version()
	op, err := c.gen.Decode(req.Method, req.Params)
	if err != nil {
		return nil, err
	}
	// Where the path names no agent the params may, as the tenant of 1.0 does.
	if strings.Trim(f.r.URL.Path, "/") == "" {
		if name := c.gen.Tenant(req.Params); name != "" {
			err = c.chooseAgent(name)
		}
	}
	return op, err
}

func (f *rpcFront) answer(result []byte) {
	f.write(http.StatusOK, jsonType, jsonrpc.AppendResult(make([]byte, 0, len(result)+len(f.id)+48), f.id, result))
}

func (f *rpcFront) splice(result iter.Seq[[]byte]) {
	f.writePieces(http.StatusOK, jsonType, func(yield func([]byte) bool) {
		if !yield(jsonrpc.AppendResultPrefix(nil, f.id)) {
			return
		}
		for p := range result {
			if !yield(p) {
				return
			}
		}
		yield([]byte(jsonrpc.ResultSuffix))
	})
}

func (f *rpcFront) open() (items, error) {
	return f.stream(jsonrpc.AppendResultPrefix(nil, f.id), []byte(jsonrpc.ResultSuffix), func(e *a2a.Error) []byte {
		return jsonrpc.AppendError(nil, f.id, f.c.gen.AppendError(nil, e, f.rec.id))
	})
}

// fail answers with an error object. The HTTP status is 200, except for errors of HTTP itself.
func (f *rpcFront) fail(e *a2a.Error) {
	status := http.StatusOK
	switch e.Code {
	case a2a.CodeTooLarge:
		status = http.StatusRequestEntityTooLarge
	case a2a.CodeMediaType:
		status = http.StatusUnsupportedMediaType
	case a2a.CodeUnauthenticated:
		status = http.StatusUnauthorized
	case a2a.CodeForbidden:
		status = http.StatusForbidden
	case a2a.CodeRateLimited:
		status = http.StatusTooManyRequests
	case a2a.CodeUnavailable:
		status = http.StatusServiceUnavailable
	}
	body := jsonrpc.AppendError(nil, f.id, f.c.gen.AppendError(nil, e, f.rec.id))
	if status == http.StatusOK && wantsStream(f.r) {
		if err := sse.NewWriter(f.w, f.s.cfg.SSEWriteTimeout).Event("", body); err != nil {
			f.rec.err = errors.Join(f.rec.err, err) // the client disconnected
		}
		return
	}
	f.write(status, jsonType, body)
}
