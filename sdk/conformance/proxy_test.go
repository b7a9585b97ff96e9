package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// proxy is between the worker of a case and the server. It causes the faults of the case.
type proxy struct {
	s    *scene
	url  string
	http *http.Client

	mu      sync.Mutex
	left    []*armed        // guarded by mu: faults that may still happen
	seen    map[string]bool // guarded by mu: what requests have reported
	claimed map[string]bool // guarded by mu: workers that have claimed, by name
	log     []string        // guarded by mu: requests and their answers
	acting  int             // guarded by mu: faults that have begun and not ended
}

// armed is a fault that may still happen.
type armed struct {
	fault
	matched  int
	happened int
}

func newProxy(s *scene) *proxy {
	p := &proxy{s: s, http: &http.Client{Transport: s.server.http}}
	p.seen, p.claimed = make(map[string]bool), make(map[string]bool)
	for _, f := range s.Faults {
		f.Nth, f.Times = max(f.Nth, 1), max(f.Times, 1)
		if !knownFaults[f.Do] {
			s.t.Fatalf("there is no fault %q", f.Do)
		}
		p.left = append(p.left, &armed{fault: f})
	}
	srv := httptest.NewServer(p)
	s.t.Cleanup(srv.Close)
	p.url = srv.URL
	return p
}

// knownFaults are the values of fault.Do. They happen before or after the server gets the request.
var knownFaults = map[string]bool{
	"kill worker before": true, "kill worker after": true, "kill server before": true, "kill server after": true,
	"lose request": true, "lose answer": true, "answer 503": true, "answer 429": true, "answer late": true,
	"hang request": true, "hang answer": true, "answer 401": true, "answer 404": true, "answer 408": true,
	"answer other": true, "lose lease": true, "cancel": true,
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the worker was killed
	}
	what := describe(r.Method, r.URL.Path, body)
	if what[0] == "claim" {
		p.noteClaim(body)
	}
	do := p.faultAt(what)
	if do != "" {
		defer p.faultEnds()
		p.note(what, do)
	}
	if do != "" {
		p.s.traffic.reported(r.URL.Path, nil, 0)
	}
	if !p.before(r.Context(), do, w) {
		return
	}
	ctx := r.Context()
	if what[0] != "claim" {
		ctx = context.WithoutCancel(ctx) // what a dead worker has sent arrives
	}
	status, header, answer, err := p.forward(ctx, r, body)
	if err != nil {
		p.note(what, err.Error())
		panic(http.ErrAbortHandler)
	}
	p.note(what, fmt.Sprint(status), reason(status, answer))
	if what[0] == "claim" {
		p.s.claimed(body, answer)
	} else if do == "" {
		p.s.traffic.reported(r.URL.Path, body, status)
	}
	p.after(r.Context(), do)
	w.Header().Set("Content-Type", header.Get("Content-Type"))
	if after := header.Get("Retry-After"); after != "" {
		w.Header().Set("Retry-After", after)
	}
	w.WriteHeader(status)
	_, _ = w.Write(answer) // the worker may have been killed
}

// before applies a fault before the server gets the request, and reports whether to forward the request.
func (p *proxy) before(ctx context.Context, do string, w http.ResponseWriter) bool {
	switch do {
	case "kill worker before":
		p.s.killWorker()
	case "kill server before":
		p.s.server.restart()
	case "lose request":
	case "hang request":
		<-ctx.Done() // the worker gives up
	case "answer 503", "answer 429", "answer 401", "answer 404", "answer 408", "answer other":
		answerWith(w, do)
		return false
	case "answer late":
		pause(p.s.t.Context(), 300*time.Millisecond)
		return true
	case "lose lease":
		p.s.loseLease()
		return true
	case "cancel":
		p.s.cancel()
		return true
	default:
		return true
	}
	panic(http.ErrAbortHandler)
}

// answerWith answers in place of the server.
func answerWith(w http.ResponseWriter, do string) {
	answer := `{"error": {"reason": "TRY_AGAIN", "message": "a fault of the case"}}`
	status := http.StatusOK
	switch do {
	case "answer 503":
		status = http.StatusServiceUnavailable
	case "answer 429":
		status = http.StatusTooManyRequests
		w.Header().Set("Retry-After", "1")
	case "answer 401":
		status, answer = http.StatusUnauthorized, `{"error": {"reason": "UNAUTHENTICATED", "message": "wrong key"}}`
	case "answer 404":
		status, answer = http.StatusNotFound, "<html>default backend</html>"
	case "answer 408":
		status, answer = http.StatusRequestTimeout, "<html>timeout</html>"
	case "answer other":
		answer = `{"status": "maintenance"}`
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, answer) // the worker may have been killed
}

// after applies a fault before the worker gets the answer.
func (p *proxy) after(ctx context.Context, do string) {
	switch do {
	case "kill worker after":
		p.s.killWorker()
	case "kill server after":
		p.s.server.restart()
	case "hang answer":
		<-ctx.Done() // the worker gives up
	case "lose answer":
	default:
		return
	}
	panic(http.ErrAbortHandler)
}

// pause simulates a slow server. It does not wait for an event.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (p *proxy) forward(
	ctx context.Context, r *http.Request, body []byte,
) (status int, header http.Header, answer []byte, err error) {
	url := p.s.server.address() + r.URL.RequestURI()
	req, err := http.NewRequestWithContext(ctx, r.Method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header = r.Header.Clone()
	req.Header.Del("Accept-Encoding")
	resp, err := p.http.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, answer, err
}

// faultAt returns the fault of a request, or "". A fault has then begun: the caller calls faultEnds.
func (p *proxy) faultAt(what []string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	do := p.chooseLocked(what)
	if do != "" {
		p.acting++
	}
	return do
}

func (p *proxy) faultEnds() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acting--
}

// quiet reports whether every fault that has begun has ended.
func (p *proxy) quiet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acting == 0
}

func (p *proxy) chooseLocked(what []string) string {
	all := strings.Join(what, ", ")
	fresh := !p.seen[all]
	p.seen[all] = true
	for _, f := range p.left {
		if f.Each {
			if fresh && what[0] != "claim" && what[0] != "heartbeat" {
				f.happened++
				return f.Do
			}
			continue
		}
		if f.happened == f.Times || !slices.Contains(what, f.At) {
			continue
		}
		if f.matched++; f.matched >= f.Nth {
			f.happened++
			return f.Do
		}
	}
	return ""
}

// missing returns the faults that have not happened.
func (p *proxy) missing() (list []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.left {
		if f.happened < f.Times {
			list = append(list, fmt.Sprintf("%s at %s: %d of %d times", f.Do, f.At, f.happened, f.Times))
		}
	}
	return list
}

func (p *proxy) noteClaim(body []byte) {
	var v struct{ Worker string }
	if json.Unmarshal(body, &v) == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.claimed[v.Worker] = true
	}
}

// hasClaimed reports whether a worker has claimed, so it is ready.
func (p *proxy) hasClaimed(worker string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.claimed[worker]
}

func (p *proxy) note(what []string, more ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, strings.Join(what, ", ")+" → "+strings.Join(slices.DeleteFunc(more, func(s string) bool {
		return s == ""
	}), " "))
}

// refused reports whether the server has refused a request with a reason.
func (p *proxy) refused(reason string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.log, func(line string) bool { return strings.HasSuffix(line, " "+reason) })
}

// answered returns how many requests that report only this were answered with 200.
func (p *proxy) answered(what string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.log {
		if strings.HasPrefix(line, what+" → ") && strings.HasSuffix(line, "200") {
			n++
		}
	}
	return n
}

func (p *proxy) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return "requests:\n  " + strings.Join(p.log[max(0, len(p.log)-60):], "\n  ")
}

func reason(status int, answer []byte) string {
	var v struct{ Error struct{ Reason string } }
	if status == http.StatusOK || json.Unmarshal(answer, &v) != nil {
		return ""
	}
	return v.Error.Reason
}

// describe returns what a request reports, in the notation of cases.
func describe(method, url string, body []byte) []string {
	var v struct {
		Outcome string
		Events  []event
	}
	if method == http.MethodGet {
		return []string{"steps"}
	}
	if json.Unmarshal(body, &v) != nil {
		return []string{"unreadable"}
	}
	if len(v.Events) == 0 {
		return []string{strings.TrimSpace(path.Base(url) + " " + v.Outcome)}
	}
	var list []string
	for i := range v.Events {
		list = append(list, v.Events[i].String())
	}
	return slices.Compact(list)
}

// event is an event that a worker reports.
type event struct {
	StatusUpdate *struct{ Status struct{ State string } }
	Artifact     *struct {
		Artifact struct{ ArtifactID string }
		Append   bool
	} `json:"artifactUpdate"`
	Step *struct {
		Key, Artifact, NextAt string
		Error                 json.RawMessage
	}
	Wait, Call *struct{ Key string }
	Checkpoint json.RawMessage
	Usage      json.RawMessage
}

func (e *event) String() string {
	switch {
	case e.StatusUpdate != nil:
		return "status " + stateName(e.StatusUpdate.Status.State)
	case e.Artifact != nil && e.Artifact.Append:
		return "text " + e.Artifact.Artifact.ArtifactID
	case e.Artifact != nil:
		return "artifact " + e.Artifact.Artifact.ArtifactID
	case e.Step != nil && e.Step.Artifact != "":
		return "begin " + e.Step.Key
	case e.Step != nil && e.Step.NextAt != "":
		return "retry " + e.Step.Key
	case e.Step != nil && e.Step.Error != nil:
		return "fail " + e.Step.Key
	case e.Step != nil:
		return "step " + e.Step.Key
	case e.Wait != nil:
		return "wait " + e.Wait.Key
	case e.Call != nil:
		return "call " + e.Call.Key
	case e.Usage != nil:
		return "usage"
	}
	return "checkpoint"
}

func stateName(wire string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(wire, "TASK_STATE_")), "_", "-")
}
