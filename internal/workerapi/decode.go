package workerapi

import (
	"fmt"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/httpbody"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// Limits of one request, as in openapi.json.
const (
	maxName       = 128 // bytes of a worker's name, a batchId
	maxAgents     = 100
	maxRuns       = 100
	maxWait       = 60 * time.Second
	maxEvents     = 1000
	maxRetryAfter = 7 * 24 * time.Hour
)

// workFactor is how much memory decoding and storing a request takes, in multiples of its size.
const workFactor = 3

type claimRequest struct {
	worker string
	agents []string
	max    int
	wait   time.Duration
}

type eventsRequest struct {
	events     [][]byte // parts of the body
	checkpoint a2a.Raw
	batchID    string
}

type finishRequest struct {
	outcome    string
	text       string
	retryAfter time.Duration
}

// readBody reads the body of a request and checks that it is JSON. It turns an empty body, or one
// that is null, into an empty object: some clients send null where they have nothing to say.
func (a *API) readBody(r *request) ([]byte, error) {
	if err := httpbody.CheckEncoding(r.Header); err != nil {
		return nil, err
	}
	if err := httpbody.CheckType(r.Header, "application/json"); err != nil && r.ContentLength != 0 {
		return nil, err
	}
	body, err := httpbody.Read(r.w, r.Request, r.mem, a.cfg.MaxBody)
	if err != nil {
		return nil, err
	}
	if err := r.mem.Grow(r.Context(), workFactor*int64(len(body))); err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return []byte("{}"), nil
	}
	// An event may be as deep here as elsewhere, and stands two levels down.
	if err := rawjson.Check(body, a.cfg.MaxDepth+2); err != nil {
		return nil, a2a.Errorf(a2a.CodeParse, "the body is not valid JSON: %w", err)
	}
	if body = rawjson.Trim(body); rawjson.KindOf(body) == rawjson.KindNull {
		return []byte("{}"), nil
	}
	return body, nil
}

// fields reads the members of a request and keeps the first error.
type fields struct{ err error }

func (f *fields) fail(path, format string, args ...any) {
	if f.err == nil {
		e := a2a.Errorf(a2a.CodeInvalidRequest, path+": "+format, args...)
		e.Field = path
		f.err = e
	}
}

// each calls one with every member that is not null. one reports whether it knows the key. An
// unknown member is an error, because a misspelled one would be lost without notice.
func (f *fields) each(body []byte, one func(key string, v []byte) bool) {
	if rawjson.KindOf(body) != rawjson.KindObject {
		f.fail("body", "must be an object")
		return
	}
	for k, v := range rawjson.Members(body) {
		key := string(k)
		if rawjson.KindOf(v) != rawjson.KindNull && !one(key, v) {
			f.fail(fmt.Sprintf("%.64q", key), "is unknown")
		}
	}
}

func (f *fields) name(path string, v []byte) string {
	s, ok := rawjson.String(v)
	if !ok || s == "" || len(s) > maxName || strings.ContainsFunc(s, func(r rune) bool {
		return r < 0x21 || r > 0x7e
	}) {
		f.fail(path, "must be 1 to %d printable ASCII characters without spaces", maxName)
	}
	return s
}

func (f *fields) int(path string, v []byte, least, most int64) int {
	n, ok := rawjson.Int(v)
	if !ok || n < least || n > most {
		f.fail(path, "must be a whole number from %d to %d", least, most)
		return 0
	}
	return int(n)
}

func decodeClaim(body []byte) (claimRequest, error) {
	var f fields
	req := claimRequest{max: 1}
	f.each(body, func(key string, v []byte) bool {
		switch key {
		case "worker":
			req.worker = f.name(key, v)
		case "agents":
			req.agents = f.names(key, v)
		case "max":
			req.max = f.int(key, v, 1, maxRuns)
		case "waitSeconds":
			req.wait = time.Duration(f.int(key, v, 0, int64(maxWait/time.Second))) * time.Second
		default:
			return false
		}
		return true
	})
	if req.worker == "" {
		f.fail("worker", "is required")
	}
	if len(req.agents) == 0 {
		f.fail("agents", "is required, with at least one agent")
	}
	return req, f.err
}

func (f *fields) names(path string, v []byte) (names []string) {
	if rawjson.KindOf(v) != rawjson.KindArray {
		f.fail(path, "must be an array of strings")
		return nil
	}
	for e := range rawjson.Elements(v) {
		if len(names) == maxAgents {
			f.fail(path, "has more than %d elements", maxAgents)
			return nil
		}
		names = append(names, f.name(fmt.Sprintf("%s[%d]", path, len(names)), e))
	}
	return names
}

func decodeEvents(body []byte) (eventsRequest, error) {
	var f fields
	var req eventsRequest
	given := false
	f.each(body, func(key string, v []byte) bool {
		switch key {
		case "events":
			given = true
			if rawjson.KindOf(v) != rawjson.KindArray {
				f.fail(key, "must be an array")
			}
			for e := range rawjson.Elements(v) {
				if len(req.events) == maxEvents {
					f.fail(key, "has more than %d elements", maxEvents)
					break
				}
				req.events = append(req.events, e)
			}
		case "checkpoint":
			req.checkpoint = v
		case "batchId":
			req.batchID = f.name(key, v)
		default:
			return false
		}
		return true
	})
	if !given {
		f.fail("events", "is required")
	}
	return req, f.err
}

func decodeHeartbeat(body []byte) error {
	var f fields
	f.each(body, func(string, []byte) bool { return false })
	return f.err
}

// Outcomes with which a worker finishes a run.
const (
	outcomeDone    = "done"
	outcomeRetry   = "retry"
	outcomeFail    = "fail"
	outcomeRelease = "release"
)

func decodeFinish(body []byte) (finishRequest, error) {
	var f fields
	var req finishRequest
	f.each(body, func(key string, v []byte) bool {
		switch key {
		case "outcome":
			req.outcome, _ = rawjson.String(v)
			switch req.outcome {
			case outcomeDone, outcomeRetry, outcomeFail, outcomeRelease:
			default:
				f.fail(key, "must be done, retry, fail or release")
			}
		case "error":
			var ok bool
			if req.text, ok = rawjson.String(v); !ok {
				f.fail(key, "must be a string")
			}
		case "retryAfterSeconds":
			req.retryAfter = time.Duration(f.int(key, v, 0, int64(maxRetryAfter/time.Second))) * time.Second
		default:
			return false
		}
		return true
	})
	if req.outcome == "" {
		f.fail("outcome", "is required")
	}
	if req.retryAfter > 0 && req.outcome != outcomeRetry {
		f.fail("retryAfterSeconds", "is for the outcome retry")
	}
	return req, f.err
}
