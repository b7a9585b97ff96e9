package rpc

import (
	"errors"
	"iter"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire"
)

// orREST answers the paths of the HTTP+JSON binding, and passes all other requests to next.
func (s *Server) orREST(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		console := s.cfg.Console != nil && strings.HasPrefix(r.URL.Path, "/console/")
		if len(r.URL.Path) > 1 && !console { // else "console" would be read as a tenant
			if p := s.restPath(r.URL.EscapedPath()); p != nil {
				s.serveREST(w, r, p)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// restFront answers one request over HTTP+JSON.
type restFront struct {
	exchange
	c      *call
	kind   string // media type of the answer
	status int    // of an error of HTTP itself; 0: the code decides
}

// serveREST answers a request for a path of the binding. It authenticates the caller before it
// reads the query or the body.
func (s *Server) serveREST(w http.ResponseWriter, r *http.Request, p *restPath) {
	rec := recordOf(r.Context())
	rec.route, rec.version = p.route, p.gen.Version()
	c := &call{s: s, rec: rec, agent: p.agent, gen: p.gen, header: r.Header, reply: w.Header()}
	if c.agent == nil {
		c.agent = s.root()
	}
	f := &restFront{exchange: exchange{s, w, r, rec}, c: c, kind: jsonType}
	c.front = f
	defer c.end()
	w.Header().Set("Cache-Control", "no-store")
	if op, err := f.read(p); err != nil {
		c.fail(r.Context(), err)
	} else {
		c.serve(r.Context(), op)
	}
}

// read authenticates the caller and decodes the operation.
func (f *restFront) read(p *restPath) (a2a.Op, error) {
	c := f.c
	action := p.actions[f.r.Method]
	if action == 0 {
		f.status = http.StatusMethodNotAllowed
		c.reply.Set("Allow", p.actions.allow())
		return nil, a2a.Errorf(a2a.CodeMethodNotFound, "%s is not a method of %s", clip(f.r.Method), p.route)
	}
	asked, unspoken := f.s.asked(f.r.Header, f.r.URL.RawQuery)
	if err := c.signIn(f.r); err != nil {
		return nil, err
	}
	if unspoken != nil {
		return nil, unspoken
	}
	if err := f.s.agree(asked, p.gen, p.route); err != nil {
		return nil, err
	}
	if f.kind = answerType(f.r.Header); f.kind == "" {
		f.kind, f.status = jsonType, http.StatusNotAcceptable
		return nil, a2a.Errorf(a2a.CodeMediaType,
			"not acceptable: the supported media types are application/json, application/a2a+json and, "+
				"for streams, text/event-stream")
	}
	res := wire.Resource{Action: action, TaskID: p.taskID, ConfigID: p.configID}
	var err error
	if res.Query, err = url.ParseQuery(f.r.URL.RawQuery); err != nil {
		return nil, a2a.Errorf(a2a.CodeInvalidParams, "the query is malformed")
	}
	if f.r.Method == http.MethodPost {
		if res.Body, err = f.document(action == wire.ActionCancel || action == wire.ActionSubscribe); err != nil {
			return nil, err
		}
	}
	method, params, as, err := p.gen.REST(&res)
	if err != nil {
		return nil, err
	}
	c.gen, f.rec.method = &generation{Codec: as}, method
	op, err := as.Decode(method, params)
	if err != nil {
		return nil, err
	}
	if p.agent == nil {
		if name := as.Tenant(params); name != "" {
			err = c.chooseAgent(name)
		}
	}
	return op, err
}

// document reads the body as one JSON value, without surrounding white space.
func (f *restFront) document(optional bool) ([]byte, error) {
	if optional && f.r.ContentLength == 0 {
		return nil, nil
	}
	unsure := optional && f.r.ContentLength < 0 // whether there is a body
	if !unsure {
		if err := f.checkType(); err != nil {
			return nil, err
		}
	}
	body, err := f.readBody()
	if err == nil {
		err = f.c.work(f.r.Context(), body)
	}
	if err != nil || unsure && len(body) == 0 {
		return nil, err
	}
	if unsure {
		if err := f.checkType(); err != nil {
			return nil, err
		}
	}
	err = rawjson.Check(body, f.s.cfg.MaxDepth)
	body = rawjson.Trim(body)
	var malformed *rawjson.Error
	switch {
	case err == nil:
		return body, nil
	case errors.As(err, &malformed) && malformed.Fault == rawjson.FaultDuplicate:
		return nil, a2a.Errorf(a2a.CodeInvalidRequest, "the body is ambiguous: %s", err.Error())
	case len(body) == 0:
		return nil, a2a.Errorf(a2a.CodeParse, "the body is empty")
	}
	return nil, a2a.Errorf(a2a.CodeParse, "the body is not valid JSON: %s", err.Error())
}

func (f *restFront) answer(result []byte) { f.write(http.StatusOK, f.kind, result) }

func (f *restFront) open() (items, error) {
	return f.stream(nil, nil, func(e *a2a.Error) []byte {
		return f.c.gen.AppendStatus(nil, f.c.gen.Status(e.Code), e, f.rec.id)
	})
}

func (f *restFront) splice(result iter.Seq[[]byte]) { f.writePieces(http.StatusOK, f.kind, result) }

// fail answers with the HTTP status of the error.
func (f *restFront) fail(e *a2a.Error) {
	status := f.status
	if status == 0 {
		status = f.c.gen.Status(e.Code)
	}
	f.write(status, f.kind, f.c.gen.AppendStatus(nil, status, e, f.rec.id))
}

// answerType returns the media type of the answer. It is JSON, unless the request has A2A's own
// media type, or asks for that and not for JSON. It is empty if the client accepts none of the
// supported types.
func answerType(h http.Header) string {
	plain, own, other, given := false, false, false, false
	for _, line := range h.Values("Accept") {
		for item := range strings.SplitSeq(line, ",") {
			if item = strings.TrimSpace(item); item == "" {
				continue
			}
			given = true
			kind, params, err := mime.ParseMediaType(item)
			if err != nil {
				other = true // unreadable, so it may have meant anything
				continue
			}
			if q, err := strconv.ParseFloat(params["q"], 64); err == nil && q == 0 {
				continue
			}
			switch kind {
			case jsonType:
				plain = true
			case a2aType:
				own = true
			case "text/event-stream", "*/*", "application/*", "text/*":
				other = true
			}
		}
	}
	sent, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	switch {
	case own && !plain, !plain && sent == a2aType && (other || !given):
		return a2aType
	case given && !plain && !other:
		return ""
	}
	return jsonType
}
