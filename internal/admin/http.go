package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/httpbody"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// request is a request of a signed-in operator.
type request struct {
	*http.Request
	principal auth.Principal
	query     any           // a pointer to what the route reads; nil: it reads no query
	body      any           // the same for the body
	mem       *budget.Lease // memory that the request holds until its answer has been written
}

// handle authenticates the caller before it reads anything else, so that callers without access learn nothing about
// what is wrong with a request.
func (a *API) handle(rt *route) http.HandlerFunc {
	return func(w http.ResponseWriter, hr *http.Request) {
		mem, answer, err := a.answer(rt, w, hr)
		defer mem.Release()
		if err != nil {
			a.refuse(w, hr, err)
			return
		}
		if rt.stream != nil {
			return
		}
		err = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(a.cfg.AnswerTimeout))
		if err != nil && !errors.Is(err, http.ErrNotSupported) {
			a.cfg.Logger.Debug("set a deadline", "err", err)
		}
		write(w, http.StatusOK, answer)
	}
}

// answer returns the answer, and the memory that it holds.
func (a *API) answer(rt *route, w http.ResponseWriter, hr *http.Request) (mem *budget.Lease, _ []byte, err error) {
	p, err := a.cfg.SignIn(hr)
	if err != nil {
		return nil, nil, err
	}
	session := a.cfg.Sessions.Enter(hr, p)
	defer session.Leave()
	ctx, stop := session.Context(hr.Context())
	defer stop()
	if lacks := rt.lacks(&p); lacks != nil {
		w.Header().Add("WWW-Authenticate", `Bearer error="insufficient_scope", scope="`+string(lacks[0])+`"`)
		return nil, nil, a2a.Errorf(a2a.CodeForbidden, "the credentials lack the scope %s", anyOf(lacks))
	}
	if a.cfg.Admit != nil && rt.stream == nil { // a stream counts as one: see Streams.Open
		if err := a.cfg.Admit(p, rt.writes()); err != nil {
			return nil, nil, err
		}
	}
	mem = a.cfg.Budget.Open(budget.Owner{Tenant: p.Tenant, Name: p.Owner})
	r := &request{Request: hr.WithContext(ctx), principal: p, mem: mem}
	if err := a.decode(rt, r, w, mem); err != nil {
		return mem, nil, err
	}
	if rt.stream != nil {
		return mem, nil, orEnded(ctx, rt.stream(a, ctx, r, w))
	}
	var reason string
	if b, ok := r.body.(interface{ why() string }); ok {
		reason = b.why()
	}
	v, err := rt.serve(a, acting(ctx, p, reason), r)
	if err != nil {
		return mem, nil, orEnded(ctx, err)
	}
	var answer bytes.Buffer
	encoder := json.NewEncoder(&answer)
	encoder.SetEscapeHTML(false) // the JSON of clients stays as it is
	if err := encoder.Encode(v); err != nil {
		return mem, nil, err
	}
	return mem, answer.Bytes(), mem.Grow(ctx, int64(answer.Len()))
}

// orEnded returns why a request has failed: its error, or that its credential is no longer good.
func orEnded(ctx context.Context, err error) error {
	if ended := auth.Ended(ctx); err != nil && ended != nil {
		return ended
	}
	return err
}

// decode reads the query and the body.
func (a *API) decode(rt *route, r *request, w http.ResponseWriter, mem *budget.Lease) (err error) {
	// The database cannot store such a name, so there is nothing that has it.
	if path := r.URL.Path; strings.ContainsRune(path, 0) || !utf8.ValidString(path) {
		return refusal{http.StatusNotFound, reasonNotFound, "not found"}
	}
	query := reflect.TypeOf(struct{}{})
	if rt.query != nil {
		query = reflect.TypeOf(rt.query)
	}
	target := reflect.New(query)
	if err := decodeQuery(r.URL.RawQuery, target.Elem()); err != nil {
		return err
	}
	r.query = target.Interface()
	if rt.body == nil {
		return nil
	}
	if err := httpbody.CheckEncoding(r.Header); err != nil {
		return err
	}
	if err := httpbody.CheckType(r.Header, "application/json"); err != nil {
		return err
	}
	body, err := httpbody.Read(w, r.Request, mem, a.cfg.MaxBody)
	if err != nil {
		return err
	}
	r.body = reflect.New(reflect.TypeOf(rt.body)).Interface()
	return decodeBody(body, r.body)
}

func write(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) //nolint:errcheck // the client disconnected
}

// refusal is an error that belongs to this API alone.
type refusal struct {
	status  int
	reason  string
	message string
}

func (e refusal) Error() string { return e.message }

// ReasonNotParked is the reason of a refused resume.
const ReasonNotParked = "NOT_PARKED"

// Other reasons that only this API has.
const (
	reasonNotFound       = "NOT_FOUND"
	reasonAmbiguous      = "AMBIGUOUS_ID"
	reasonNotWaiting     = "NOT_WAITING"
	reasonOtherQuestion  = "OTHER_QUESTION"
	reasonNothingToRetry = "NOTHING_TO_RETRY"
	reasonSearchTooLong  = "SEARCH_TOO_LONG"
)

// Failure is the answer to a request that was refused.
type Failure struct {
	Error FailureDetail `json:"error"`
}

// FailureDetail says why a request was refused.
type FailureDetail struct {
	Reason    string `json:"reason" doc:"A stable word to branch on."`
	Message   string `json:"message" doc:"For people."`
	Field     string `json:"field,omitempty" doc:"The parameter or member that is wrong."`
	RequestID string `json:"requestId,omitempty" doc:"With INTERNAL: names the request in the log of the server."`
}

var statuses = map[a2a.ErrorCode]int{
	a2a.CodeParse:             http.StatusBadRequest,
	a2a.CodeInvalidRequest:    http.StatusBadRequest,
	a2a.CodeInvalidParams:     http.StatusBadRequest,
	a2a.CodeTaskNotFound:      http.StatusNotFound,
	a2a.CodeTaskNotCancelable: http.StatusConflict,
	a2a.CodeTaskTerminal:      http.StatusConflict,
	a2a.CodeUnauthenticated:   http.StatusUnauthorized,
	a2a.CodeForbidden:         http.StatusForbidden,
	a2a.CodeTooLarge:          http.StatusRequestEntityTooLarge,
	a2a.CodeMediaType:         http.StatusUnsupportedMediaType,
	a2a.CodeRateLimited:       http.StatusTooManyRequests,
	a2a.CodeUnavailable:       http.StatusServiceUnavailable,
}

// statusClientGone is the status of a request whose client has disconnected, as proxies log it. Nobody reads it.
const statusClientGone = 499

// describe returns the status and the text of an error. ok is false for one that was not written for callers.
func describe(err error) (status int, d FailureDetail, ok bool) {
	var own refusal
	var e *a2a.Error
	switch {
	case errors.As(err, &own):
		return own.status, FailureDetail{Reason: own.reason, Message: own.message}, true
	case errors.Is(err, operate.ErrSearchTooLong):
		return http.StatusUnprocessableEntity,
			FailureDetail{Reason: reasonSearchTooLong, Message: operate.ErrSearchTooLong.Message}, true
	case errors.Is(err, tasks.ErrNothingToRetry), errors.Is(err, tasks.ErrNothingToSend):
		return http.StatusConflict,
			FailureDetail{Reason: reasonNothingToRetry, Message: err.Error()}, true // it names the state
	case errors.As(err, &e) && statuses[e.Code] != 0:
		return statuses[e.Code], FailureDetail{Reason: e.Code.Reason(), Message: e.Message, Field: e.Field}, true
	}
	return http.StatusInternalServerError,
		FailureDetail{Reason: a2a.CodeInternal.Reason(), Message: "Internal error"}, false
}

// refuse answers with an error. An error that was not written for callers only goes to the log.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status, detail, ok := describe(err)
	h := w.Header()
	switch {
	case ok:
	case r.Context().Err() != nil || errors.Is(err, context.Canceled):
		status = statusClientGone
	default:
		detail.RequestID = h.Get("X-Request-Id")
		a.cfg.Logger.ErrorContext(r.Context(), "internal error",
			"request_id", detail.RequestID, "path", r.Pattern, "err", err)
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	// How to sign in, or when to come back.
	var withHeader interface{ SetHeader(h http.Header) }
	if errors.As(err, &withHeader) {
		withHeader.SetHeader(h)
	}
	detail.Message = strings.ToValidUTF8(detail.Message, "\uFFFD")
	body, _ := json.Marshal(Failure{detail}) // strings cannot fail
	write(w, status, body)
}
