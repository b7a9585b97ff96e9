package e2e_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// parkingLimits park a task after two attempts. The operator of the chaos resumes it.
const parkingLimits = "limits: {max_attempts: 2, on_exhausted: park, deadline: 24h, " +
	"backoff: {base: 50ms, max: 200ms}}\n"

// lot draws a number below n for a run.
func (r *agentRun) lot(n uint32) uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, r.TaskID, r.Epoch)
	return h.Sum32() % n
}

// fragile is an agent that counts, if its run does not fail.
func (w *chaosWorld) fragile(out http.ResponseWriter, r *http.Request) {
	var run agentRun
	switch {
	case !w.begin(r, &run):
	case run.lot(5) < 3:
		http.Error(out, "it fails", http.StatusInternalServerError)
	default:
		w.count(out, r, &run)
	}
}

// sleeps is an agent whose tasks end only if they are canceled.
func (w *chaosWorld) sleeps(out http.ResponseWriter, r *http.Request) {
	var run agentRun
	if w.begin(r, &run) {
		out.Header().Set("Content-Type", "application/x-ndjson")
		fmt.Fprintln(out, `{"wait":{"key":"forever","signal":"never"}}`)
	}
}

// calls is an agent. "N MODE DEPTH" makes it call N tasks; with a depth above 0, the first of them does the same. It
// waits for "all" or "any" of them, or "never" ends. In the last two modes one more task is called, which ends only
// with its parent. Some runs break off between two calls.
func (w *chaosWorld) calls(out http.ResponseWriter, r *http.Request) {
	var run agentRun
	if !w.begin(r, &run) {
		return
	}
	var n, depth int
	var mode string
	if _, err := fmt.Sscanf(run.Messages[0].Parts[0].Text, "%d %s %d", &n, &mode, &depth); err != nil {
		w.note("a run of %q: %v", run.Messages[0].Parts[0].Text, err)
	}
	out.Header().Set("Content-Type", "application/x-ndjson")
	if slices.ContainsFunc(run.Steps, func(s agentStep) bool { return s.Result.By == "tasks" }) {
		fmt.Fprintf(out, `{"statusUpdate":{"status":{"state":%q}}}`+"\n", run.judgeCalls(n, mode))
		return
	}
	flush := http.NewResponseController(out)
	keys, wait := "", "any"
	call := func(agent, text string) {
		key := fmt.Sprintf("sub#%d", strings.Count(keys, ","))
		keys += fmt.Sprintf(",%q", key)
		fmt.Fprintf(out, `{"call":{"key":%q,"agent":%q,"message":{"parts":[{"text":%q}]}}}`+"\n", key, agent, text)
		if flush.Flush() != nil || run.lot(4) == 0 {
			panic(http.ErrAbortHandler) // cuts the connection
		}
		pause(r.Context(), time.Duration(run.lot(40))*time.Millisecond)
	}
	for i := range n {
		switch {
		case i == 0 && depth > 0:
			call("calls", fmt.Sprintf("2 all %d", depth-1))
		case i%2 == 0:
			call("counts", fmt.Sprintf("%d %d", 1+i, 10*i))
		default:
			call("fragile", fmt.Sprintf("%d %d", 1+i, 10*i))
		}
	}
	if mode != "all" {
		call("sleeps", "sleep")
	}
	if mode != "any" {
		wait = "all"
	}
	fmt.Fprintf(out, `{"wait":{"key":"ends","mode":%q,"tasks":[%s]}}`+"\n", wait, keys[1:])
}

// judgeCalls returns the state in which a task ends after its wait: it fails if it was woken without the results.
func (r *agentRun) judgeCalls(n int, mode string) string {
	completed := 0
	for _, s := range r.Steps {
		if s.Kind == "call" && s.EndedAt != "" && s.Result.State == "TASK_STATE_COMPLETED" {
			completed++
		}
	}
	if mode != "any" && completed < n || completed == 0 {
		return "TASK_STATE_FAILED"
	}
	return "TASK_STATE_COMPLETED"
}

// family sends a task that calls others. It is canceled, or completes, which it does only with their results.
func (u *chaosClient) family(ctx context.Context) error {
	mode := []string{"all", "any", "never"}[u.draw.IntN(3)]
	plan := fmt.Sprintf("%d %s %d", 1+u.draw.IntN(4), mode, u.draw.IntN(3))
	got, err := u.send(ctx, u.calls, say(plan), u.key, true)
	if err != nil {
		return err
	}
	if mode == "never" || u.draw.IntN(4) == 0 {
		pause(ctx, time.Duration(u.draw.IntN(2000))*time.Millisecond)
		return u.cancelTask(ctx, u.calls, got.TaskID)
	}
	return u.completed(ctx, u.calls, got.TaskID)
}

// startOperator resumes parked tasks from now on, until stopOperator.
func (c *chaos) startOperator() {
	c.t.Helper()
	binary, err := build()
	if err != nil {
		c.t.Fatalf("build a2ad: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	c.stopOperator = func() {
		cancel()
		<-ended
	}
	go func() {
		defer close(ended)
		for ; ctx.Err() == nil; pause(ctx, 500*time.Millisecond) {
			if n, err := query[int](c.cluster, `SELECT count(*) FROM audit.parked`); err != nil || n == 0 {
				continue
			}
			limit, done := context.WithTimeout(ctx, patience)
			cmd := exec.CommandContext(limit, binary, "task", "resume", "--all", "--yes", "--reason", "chaos")
			cmd.Env = []string{"A2AD_DATABASE_URL=" + c.url}
			_ = cmd.Run() // a fault may end it; then the next one resumes
			done()
		}
	}()
}
