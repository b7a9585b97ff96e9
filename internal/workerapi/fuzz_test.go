package workerapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// FuzzDecoders gives every decoder what a worker may send. Accepted requests are within the limits,
// and refused ones get an error for the worker.
func FuzzDecoders(f *testing.F) {
	for _, s := range []string{
		`{"worker":"w","agents":["a","b"],"max":3,"waitSeconds":60}`,
		`{"outcome":"retry","error":"x","retryAfterSeconds":3}`, `{}`, ``, `null`, `[`,
		`{"events":[{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED",` +
			`"message":{"parts":[{"text":"x\u0000"}]}}}}],"batchId":"b","checkpoint":{"a":[1]}}`,
		`{"events":[{"artifactUpdate":{"artifact":{"artifactId":"a",` +
			`"parts":[{"data":1e999},{"raw":"AAAA"},{"url":"x"}]},` +
			`"append":true,"lastChunk":true}},{"checkpoint":null}]}`,
		`{"events":[{"message":{"parts":[{"text":"x"}]}},3,"x",{}]}`, `{"outcome":"done","outcome":"fail"}`,
		`{"max":1e1,"worker":"w","agents":["a"]}`,
		`{"events":[{"usage":{"model":"m","inputTokens":12,"outputTokens":34,"requests":1}},{"usage":{}}]}`,
	} {
		f.Add([]byte(s))
	}
	a := New(nil, nil, Config{Limits: a2a.Limits{LeaseTTL: 1, MaxAttempts: 1}, MaxBody: 1 << 16})
	a.bounds = attempt.Bounds{Bytes: 1 << 16, Events: 500}
	told := func(t *testing.T, what string, err error) {
		switch code := a2a.CodeOf(err); code {
		case a2a.CodeParse, a2a.CodeInvalidRequest, a2a.CodeInvalidAgentResponse, a2a.CodeTooLarge, a2a.CodeMediaType:
		default:
			t.Errorf("%s: %v has the code %s", what, err, code.Reason())
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(data)))
		r.Header.Set("Content-Type", "application/json")
		body, err := a.readBody(&request{Request: r, w: httptest.NewRecorder()})
		if err != nil {
			told(t, "body", err)
			return
		}
		if req, err := decodeClaim(body); err != nil {
			told(t, "claim", err)
		} else if req.worker == "" || len(req.worker) > maxName || len(req.agents) == 0 ||
			len(req.agents) > maxAgents || req.max < 1 || req.max > maxRuns || req.wait < 0 || req.wait > maxWait {
			t.Errorf("claim %+v", req)
		}
		if req, err := decodeFinish(body); err != nil {
			told(t, "finish", err)
		} else if req.outcome == "" || req.retryAfter < 0 || req.retryAfter > maxRetryAfter {
			t.Errorf("finish %+v", req)
		}
		if err := decodeHeartbeat(body); err != nil {
			told(t, "heartbeat", err)
		}
		req, err := decodeEvents(body)
		if err != nil {
			told(t, "events", err)
			return
		}
		b, err := a.newBatch(context.Background(), nil, &tasks.RemoteRun{Lease: tasks.Lease{LastSeq: 2}}, &req)
		if err != nil {
			told(t, "events", err)
			return
		}
		if len(b.Events) > maxEvents || len(b.Usage) > maxEvents {
			t.Errorf("%d events and %d reports of usage", len(b.Events), len(b.Usage))
		}
		for i, e := range b.Events {
			if s, ok := e.(*a2a.StatusUpdate); ok && s.Status.State.EndsTurn() && i != len(b.Events)-1 {
				t.Errorf("event %d of %d ends the turn", i, len(b.Events))
			}
		}
	})
}
