package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// mcpPeers connects clients of both transports, and of versions of MCP with and without sessions.
func mcpPeers(t *testing.T, users bool, f func(*mcpWorld, *peer)) {
	t.Helper()
	w := newMCPWorld(t)
	url := w.serveHTTP()
	for _, version := range []string{"2025-06-18", "2026-07-28"} {
		for name, transport := range map[string]func() sdk.Transport{
			"stdio": func() sdk.Transport { return w.stdio(w.alice) },
			"http":  func() sdk.Transport { return overHTTP(url, w.alice) },
		} {
			t.Run(name+" "+version, func(t *testing.T) { f(w, dial(t, transport(), version, users)) })
		}
	}
}

func TestMCPSendsToAgents(t *testing.T) {
	t.Parallel()
	mcpPeers(t, false, func(w *mcpWorld, p *peer) {
		tools, err := p.ListTools(p.wait(), nil)
		if err != nil {
			p.Fatal(err)
		}
		var names []string
		for _, tool := range tools.Tools {
			names = append(names, tool.Name)
			if tool.Name == "send_to_clerk" && !strings.Contains(tool.Description,
				"Asks for an answer of a given form.\n\nSkills:\n- ask (Ask): Asks.\n  Example: Ask me.\n"+
					`  Its data must fit this JSON Schema: {"type":"object"}`) {
				p.Errorf("the description is %s", tool.Description)
			}
		}
		if slices.Sort(names); strings.Join(names, " ") != "answer_task cancel_task follow_task get_task list_tasks "+
			"send_to_clerk send_to_echo send_to_script send_to_talker" {
			p.Errorf("the tools are %v", names)
		}

		a := p.call("send_to_echo", "message", "hello", "data", json.RawMessage(`{"n":12345678901234567890.10}`))
		if a.State != "completed" || a.isError || a.TaskID == "" || a.Agent != "echo" || a.ContextID == "" ||
			!strings.HasPrefix(a.text, "hello\n{\"n\":12345678901234567890.10}\nTask "+a.TaskID+" of agent echo is ") ||
			len(a.Artifacts) != 1 || a.Artifacts[0].Text != "hello" {
			p.Errorf("%+v", a)
		}
		if got := w.history(w.alice, "echo", a.TaskID); !strings.Contains(got, "12345678901234567890.10") {
			p.Errorf("the number has lost digits: %s", got)
		}

		same := p.call("send_to_echo", "message", "hello", "idempotencyKey", "k-"+p.Name())
		again := p.call("send_to_echo", "message", "hello", "idempotencyKey", "k-"+p.Name())
		if again.TaskID != same.TaskID {
			p.Errorf("tasks %s and %s for the same key", same.TaskID, again.TaskID)
		}
		next := p.call("send_to_echo", "message", "more", "contextId", a.ContextID)
		if next.ContextID != a.ContextID || next.TaskID == a.TaskID {
			p.Errorf("%+v", next)
		}
		got := p.inState("completed", "get_task", "agent", "echo", "taskId", a.TaskID)
		if got.Artifacts[0].Text != "hello" {
			p.Errorf("%+v", got)
		}
		reply := p.call("send_to_talker", "data", script(op{"op": "reply", "text": "hi"}))
		if reply.TaskID != "" || reply.State != "completed" || reply.text != "hi" {
			p.Errorf("%+v", reply)
		}
		failed := p.call("send_to_script", "data", script(op{"op": "fail", "text": "no paper"}))
		if !failed.isError || failed.State != "failed" || !strings.Contains(failed.text, "no paper") {
			p.Errorf("%+v", failed)
		}
	})
}

// A call that follows a task reports its progress, beginning with its id, and survives the end of its wait.
func TestMCPFollowsTasks(t *testing.T) {
	t.Parallel()
	mcpPeers(t, false, func(_ *mcpWorld, p *peer) {
		g := newGate(p.T)
		a := p.call("send_to_script", "waitSeconds", 0, "data", script(g.op,
			op{"op": "chunk", "id": "out", "n": 3, "bytes": 6, "every_ms": 0}, op{"op": "status", "text": "almost"},
			op{"op": "complete", "text": "done"}))
		if (a.State != "submitted" && a.State != "working") || a.isError ||
			!strings.Contains(a.text, `call follow_task with agent "script" and taskId "`+a.TaskID+`"`) {
			p.Errorf("%+v", a)
		}
		g.waitReached(p.T)
		followed := make(chan answeredCall, 1)
		go func() {
			res, err := p.try(p.Context(), "follow_task", "agent", "script", "taskId", a.TaskID, "waitSeconds", 60)
			if err != nil {
				p.Error(err)
			}
			followed <- res
		}()
		if first := p.awaitProgress("follow_task", "Task "+a.TaskID+" is "); len(first) != 1 {
			p.Errorf("the first progress is %q", first)
		}
		g.open()
		end := <-followed
		if end.State != "completed" || end.Message != "done" || end.Artifacts[0].Text != "out:0:out:1:out:2:" {
			p.Errorf("%+v", end)
		}
		// The chunks arrive in order, however they are put together, and before the status that followed them.
		got := strings.Join(p.awaitProgress("follow_task", "done"), "|")
		if strings.ReplaceAll(got, "|", "") != "out:0:out:1:out:2:almostdone" {
			p.Errorf("the progress is %q", got)
		}
		p.inState("completed", "follow_task", "agent", "script", "taskId", a.TaskID)
	})
}

func TestMCPAnswersQuestionsByTool(t *testing.T) {
	t.Parallel()
	mcpPeers(t, false, func(w *mcpWorld, p *peer) {
		a := p.call("send_to_clerk", "message", "choices")
		if a.State != "input-required" || a.Message != "How?" || string(a.Expects) != `{"choices":["yes","no"]}` ||
			a.isError || !strings.Contains(a.text, `How?`) || !strings.Contains(a.text, `{"choices":["yes","no"]}`) ||
			!strings.Contains(a.text, "call answer_task with agent") {
			p.Errorf("%+v", a)
		}
		sign := p.call("send_to_script", "data", script(op{"op": "auth", "text": "Sign in."}, op{"op": "complete"}))
		if sign.State != "auth-required" || sign.isError || !strings.Contains(sign.text, "Sign in.") {
			p.Errorf("%+v", sign)
		}
		p.inState("completed", "answer_task", "agent", "script", "taskId", sign.TaskID, "message", "I did")
		// A task that waits for its client is not waited for.
		p.inState("input-required", "follow_task", "agent", "clerk", "taskId", a.TaskID, "waitSeconds", 3600)
		if got := p.call("answer_task", "agent", "clerk", "taskId", a.TaskID); !got.isError ||
			!strings.Contains(got.text, "there is no answer: give a message or data") {
			p.Errorf("%+v", got)
		}
		if got := p.call("answer_task", "agent", "clerk", "taskId", a.TaskID, "message", "maybe"); !got.isError ||
			!strings.Contains(got.text, `the task expects one of "yes", "no"`) {
			p.Errorf("%+v", got)
		}
		p.inState("completed", "answer_task", "agent", "clerk", "taskId", a.TaskID, "message", "yes")
		if got := w.history(w.alice, "clerk", a.TaskID); !strings.Contains(got, `"yes"`) {
			p.Errorf("the answer is not in %s", got)
		}
	})
}

func accept(content map[string]any) *sdk.ElicitResult {
	return &sdk.ElicitResult{Action: "accept", Content: content}
}

func TestMCPAsksTheUser(t *testing.T) {
	t.Parallel()
	mcpPeers(t, true, func(w *mcpWorld, p *peer) {
		p.answers <- accept(map[string]any{"answer": "Rome"})
		p.answers <- accept(map[string]any{"answer": "Rome"}) // the same answer to another question
		two := p.call("send_to_script", "data", script(op{"op": "input", "text": "Where?"},
			op{"op": "input", "text": "Really where?"}, op{"op": "complete", "text": "Fine."}))
		if two.State != "completed" || two.Message != "Fine." {
			p.Errorf("%+v", two)
		}
		one, other := p.question(), p.question()
		if !strings.HasPrefix(one, "Where? ") || !strings.HasPrefix(other, "Really where? ") {
			p.Errorf("asked %q, then %q", one, other)
		}
		// The call was repeated for each answer, and yet its message was sent once.
		got := w.history(w.alice, "script", two.TaskID)
		if strings.Count(got, `"Rome"`) != 2 || strings.Count(got, `"script":`) != 1 {
			p.Errorf("the task has other messages: %s", got)
		}

		p.answers <- accept(map[string]any{"answer": "yes"})
		if a := p.call("send_to_clerk", "message", "choices"); a.State != "completed" {
			p.Errorf("%+v", a)
		}
		if q := p.question(); !strings.Contains(q, `"enum":["yes","no"]`) {
			p.Errorf("asked %s", q)
		}
		p.answers <- accept(map[string]any{"days": 3})
		flat := p.call("send_to_clerk", "message", "flat")
		if q := p.question(); flat.State != "completed" || !strings.Contains(q, `"days":{"type":"integer"}`) {
			p.Errorf("asked %s: %+v", q, flat)
		}
		if got := w.history(w.alice, "clerk", flat.TaskID); !strings.Contains(got, `{"days":3}`) {
			p.Errorf("the answer is not in %s", got)
		}
		// MCP has no form for an array.
		if a := p.call("send_to_clerk", "message", "array"); a.State != "input-required" || len(p.asked) != 0 {
			p.Errorf("%+v", a)
		}

		p.answers <- &sdk.ElicitResult{Action: "decline"}
		a := p.call("send_to_clerk", "message", "choices")
		if p.question(); a.State != "input-required" || !strings.Contains(a.text, "The user did not answer") {
			p.Errorf("%+v", a)
		}
		p.answers <- accept(map[string]any{"answer": "no"})
		if a = p.call("answer_task", "agent", "clerk", "taskId", a.TaskID); a.State != "completed" {
			p.Errorf("%+v", a)
		}
		p.question()
	})
}

func TestMCPCancelsAndLists(t *testing.T) {
	t.Parallel()
	mcpPeers(t, false, func(_ *mcpWorld, p *peer) {
		a := p.call("send_to_script", "data", script(op{"op": "input", "text": "Go?"}))
		b := p.call("send_to_script", "contextId", a.ContextID, "data", script(op{"op": "complete"}))
		if got := p.inState("canceled", "cancel_task", "agent", "script", "taskId", a.TaskID); got.isError {
			p.Errorf("%+v", got)
		}
		if got := p.call("cancel_task", "agent", "script", "taskId", b.TaskID); !got.isError ||
			!strings.Contains(got.text, "-32002") {
			p.Errorf("%+v", got)
		}
		page := p.call("list_tasks", "agent", "script", "contextId", a.ContextID, "pageSize", 1)
		if len(page.Tasks) != 1 || page.NextPageToken == "" {
			p.Fatalf("%+v", page)
		}
		rest := p.call("list_tasks", "agent", "script", "contextId", a.ContextID, "pageToken", page.NextPageToken)
		if len(rest.Tasks) != 1 || page.Tasks[0].TaskID == rest.Tasks[0].TaskID {
			p.Errorf("%+v, then %+v", page, rest)
		}
		done := p.call("list_tasks", "agent", "script", "contextId", a.ContextID, "state", "completed")
		if len(done.Tasks) != 1 || done.Tasks[0].TaskID != b.TaskID ||
			!strings.Contains(done.text, b.TaskID+" completed") {
			p.Errorf("%+v", done)
		}
		none := p.call("list_tasks", "agent", "script", "contextId", a.ContextID, "state", "working")
		if none.text != "No tasks." {
			p.Errorf("%+v", none)
		}
	})
}

func TestMCPRefusesBadInput(t *testing.T) {
	t.Parallel()
	const nowhere = "01938c1e-5b7a-7c3e-9d7a-1f2b3c4d5e6f"
	mcpPeers(t, false, func(_ *mcpWorld, p *peer) {
		for _, tt := range []struct {
			want, tool string
			pairs      []any
		}{
			{`there is nothing to send`, "send_to_echo", nil},
			{`arguments.message`, "send_to_echo", []any{"message", 3}},
			{`mesage`, "send_to_echo", []any{"mesage", "x"}},
			{`arguments.waitSeconds`, "send_to_echo", []any{"message", "x", "waitSeconds", 3601}},
			{`arguments.data`, "send_to_clerk", []any{"data", "no object"}},
			{`task "` + nowhere + `" not found`, "send_to_echo", []any{"message", "x", "taskId", nowhere}},
			{`task "` + nowhere + `" not found`, "get_task", []any{"agent", "echo", "taskId", nowhere}},
			{`task "` + nowhere + `" not found`, "follow_task", []any{"agent", "echo", "taskId", nowhere}},
			{`task "` + nowhere + `" not found`, "cancel_task", []any{"agent", "echo", "taskId", nowhere}},
			{`task "` + nowhere + `" not found`, "answer_task",
				[]any{"agent", "echo", "taskId", nowhere, "message", "x"}},
			{`arguments.agent`, "get_task", []any{"agent", "flaky", "taskId", nowhere}},
			{`taskId`, "get_task", []any{"agent", "echo"}},
			{`arguments.state`, "list_tasks", []any{"agent", "echo", "state", "over"}},
		} {
			if got := p.call(tt.tool, tt.pairs...); !got.isError || !strings.Contains(got.text, tt.want) {
				p.Errorf("%s %v: %+v, want %s", tt.tool, tt.pairs, got, tt.want)
			}
		}
		_, err := p.try(p.wait(), "send_to_flaky", "message", "x")
		if err == nil || !strings.Contains(err.Error(), "send_to_flaky") {
			p.Errorf("an unknown tool: %v", err)
		}
	})
}

// A client that goes away in the middle of a call loses no task: another one finds it and its result.
func TestMCPClientThatDisconnectsLosesNothing(t *testing.T) {
	t.Parallel()
	w := newMCPWorld(t)
	url := w.serveHTTP()
	t.Run("stdio, killed", func(t *testing.T) {
		transport := w.stdio(w.alice)
		w.disconnect(t, transport, func(*peer, context.CancelFunc) { kill(t, transport.Command.Process) })
	})
	t.Run("stdio, canceled", func(t *testing.T) {
		w.disconnect(t, w.stdio(w.alice), func(_ *peer, cancel context.CancelFunc) { cancel() })
	})
	t.Run("http, canceled", func(t *testing.T) {
		w.disconnect(t, overHTTP(url, w.alice), func(_ *peer, cancel context.CancelFunc) { cancel() })
	})
}

func kill(t *testing.T, p *os.Process) {
	t.Helper()
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
}

func (w *mcpWorld) disconnect(t *testing.T, transport sdk.Transport, cut func(*peer, context.CancelFunc)) {
	t.Helper()
	g := newGate(t)
	p := dial(t, transport, "", false)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := p.try(ctx, "send_to_script", "waitSeconds", 3600,
			"data", script(g.op, op{"op": "artifact", "id": "a", "text": "kept"}))
		ended <- err
	}()
	first := p.awaitProgress("send_to_script", "Task ")
	id, _, _ := strings.Cut(strings.TrimPrefix(first[0], "Task "), " ")
	g.waitReached(t)
	cut(p, cancel)
	if err := <-ended; err == nil {
		t.Error("the call of the client that went away has a result")
	}

	other := dial(t, w.stdio(w.alice), "", false)
	list := other.call("list_tasks", "agent", "script", "state", "working")
	if len(list.Tasks) != 1 || list.Tasks[0].TaskID != id {
		t.Fatalf("the list is %+v, want task %s", list, id)
	}
	g.open()
	got := other.call("follow_task", "agent", "script", "taskId", id, "waitSeconds", 60)
	if got.State != "completed" || got.Artifacts[0].Text != "kept" {
		t.Errorf("%+v", got)
	}
}

// The program ends with its input, and does not wait for the tasks of calls in progress.
func TestMCPOverStdioEndsWithItsInput(t *testing.T) {
	t.Parallel()
	w := newMCPWorld(t)
	g := newGate(t)
	data, err := json.Marshal(script(g.op))
	if err != nil {
		t.Fatal(err)
	}
	stdin, client := io.Pipe()
	ended := make(chan int)
	go func() {
		env := []string{"A2AD_API_KEY=" + w.alice}
		args := append([]string{"mcp", "--url", w.url}, mcpServes...)
		ended <- run(t.Context(), args, env, stdin, io.Discard, io.Discard)
	}()
	for _, line := range []string{initialize, `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"send_to_script","arguments":` +
			`{"waitSeconds":3600,"data":` + string(data) + `}}}`} {
		if _, err := io.WriteString(client, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	g.waitReached(t)
	client.Close()
	select {
	case code := <-ended:
		if code != exitOK {
			t.Errorf("exit code %d", code)
		}
	case <-time.After(patience):
		t.Error("the program has not ended")
		g.open()
		<-ended
	}
	// It ended because of its input, and not because the task did.
	list := dial(t, w.stdio(w.alice), "", false).call("list_tasks", "agent", "script", "state", "working")
	if len(list.Tasks) != 1 {
		t.Errorf("the working tasks are %+v", list)
	}
}
