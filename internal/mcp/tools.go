package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// taskTool is a tool about tasks of any agent.
type taskTool struct {
	tool       sdk.Tool
	properties map[string]any // in addition to the agent
	required   []string
	run        func(*call, context.Context) (*sdk.CallToolResult, error)
}

func taskTools() []taskTool {
	taskID := map[string]any{"taskId": property("string", "The id of the task.")}
	with := func(more map[string]any) map[string]any {
		all := maps.Clone(taskID)
		maps.Copy(all, more)
		return all
	}
	answer := with(map[string]any{
		"message": property("string", "The answer. Without it and without data, the user is asked."),
		"data":    map[string]any{"description": "A structured answer: any JSON value that the question expects."},
	})
	addWaiting(answer)
	page := property("integer", "The largest number of tasks in the result; default 20.")
	page["minimum"], page["maximum"] = 1, 100
	list := map[string]any{
		"state":     map[string]any{"type": "string", "enum": states(), "description": "Only tasks in this state."},
		"contextId": property("string", "Only tasks of this conversation."),
		"pageSize":  page,
		"pageToken": property("string", "The nextPageToken of an earlier result."),
	}
	reads := &sdk.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true}
	return []taskTool{
		{sdk.Tool{
			Name: "get_task", OutputSchema: taskOutput, Annotations: reads,
			Description: "Look at a task: its state, what the agent said last, and its artifacts.",
		}, with(nil), []string{"taskId"}, (*call).get},
		{sdk.Tool{
			Name: "follow_task", OutputSchema: taskOutput, Annotations: &sdk.ToolAnnotations{},
			Description: "Wait for a task. Reports its progress, and returns when it has ended, needs an answer, " +
				"or the wait is over. The task continues in any case.",
		}, with(map[string]any{"waitSeconds": waitProperty()}), []string{"taskId"}, (*call).follow},
		{sdk.Tool{
			Name: "answer_task", OutputSchema: taskOutput, Annotations: &sdk.ToolAnnotations{},
			Description: "Answer the question of a task that is input-required, and wait for it.",
		}, answer, []string{"taskId"}, (*call).answer},
		{sdk.Tool{
			Name: "cancel_task", OutputSchema: taskOutput, Annotations: &sdk.ToolAnnotations{IdempotentHint: true},
			Description: "End a task that has not ended. This cannot be undone.",
		}, with(nil), []string{"taskId"}, (*call).cancel},
		{sdk.Tool{
			Name: "list_tasks", OutputSchema: listOutput, Annotations: reads,
			Description: "List the caller's tasks of an agent, newest first.",
		}, list, nil, (*call).list},
	}
}

func states() (names []string) {
	for _, s := range []a2a.State{a2a.StateSubmitted, a2a.StateWorking, a2a.StateInputRequired, a2a.StateAuthRequired,
		a2a.StateCompleted, a2a.StateFailed, a2a.StateCanceled, a2a.StateRejected} {
		names = append(names, s.String())
	}
	return names
}

// addTaskTools adds the tools that work for every agent.
func (s *Server) addTaskTools() error {
	for _, t := range taskTools() {
		t.properties["agent"] = map[string]any{
			"type": "string", "enum": s.cfg.Agents, "description": "The agent of the task.",
		}
		schema, err := json.Marshal(object(t.properties, append([]string{"agent"}, t.required...)...))
		if err != nil {
			return err
		}
		arguments, err := newArguments(schema)
		if err != nil {
			return fmt.Errorf("make the input schema of %s: %w", t.tool.Name, err)
		}
		t.tool.InputSchema = json.RawMessage(schema)
		s.mcp.AddTool(&t.tool, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			in, err := arguments.read(req.Params.Arguments)
			if err != nil {
				return failed(err), nil
			}
			c := s.newCall(req, in.Agent, in)
			return c.result(t.run(c, ctx))
		})
	}
	return nil
}

// send is the tool of one agent.
func (s *Server) send(
	ctx context.Context, req *sdk.CallToolRequest, name string, arguments *arguments,
) (*sdk.CallToolResult, error) {
	in, err := arguments.read(req.Params.Arguments)
	if err != nil {
		return failed(err), nil
	}
	c := s.newCall(req, name, in)
	return c.result(c.send(ctx))
}

// call is one call of a tool.
type call struct {
	s      *Server
	req    *sdk.CallToolRequest
	agent  string
	client *client.Client
	in     input
}

func (s *Server) newCall(req *sdk.CallToolRequest, agent string, in input) *call {
	return &call{s: s, req: req, agent: agent, client: s.clientFor(s.agent(agent), req), in: in}
}

// result returns what the tool answers. Errors are for the model too, except that of a caller who has gone.
func (c *call) result(res *sdk.CallToolResult, err error) (*sdk.CallToolResult, error) {
	switch {
	case errors.Is(err, context.Canceled):
		return nil, err
	case err != nil:
		return failed(c.s.explain(c.req, c.agent, c.in.TaskID, err)), nil
	}
	return res, nil
}

func (c *call) get(ctx context.Context) (*sdk.CallToolResult, error) {
	res, err := c.read(ctx, c.in.TaskID)
	if err != nil {
		return nil, err
	}
	return render(c.agent, res, ""), nil
}

// read returns the task as it is now, without its history.
func (c *call) read(ctx context.Context, task string) (client.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.client.Get(ctx, task, 0)
}

func (c *call) cancel(ctx context.Context) (*sdk.CallToolResult, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	res, err := c.client.Cancel(ctx, c.in.TaskID)
	if err != nil {
		return nil, err
	}
	return render(c.agent, res, ""), nil
}

const usualPage = 20

type listedTask struct {
	TaskID    string `json:"taskId"`
	ContextID string `json:"contextId,omitempty"`
	State     string `json:"state"`
	UpdatedAt string `json:"updatedAt,omitempty"`
}

type listResult struct {
	Tasks         []listedTask `json:"tasks"`
	NextPageToken string       `json:"nextPageToken,omitempty"`
}

func (c *call) list(ctx context.Context) (*sdk.CallToolResult, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	params := client.ListParams{ContextID: c.in.ContextID, PageSize: c.in.PageSize, PageToken: c.in.PageToken}
	if params.PageSize == 0 {
		params.PageSize = usualPage
	}
	params.State, _ = a2a.ParseState(c.in.State) // the schema has checked it; none selects all
	page, err := c.client.List(ctx, params)
	if err != nil {
		return nil, err
	}
	out := listResult{Tasks: []listedTask{}, NextPageToken: page.NextToken}
	var b strings.Builder
	for _, t := range page.Tasks {
		out.Tasks = append(out.Tasks, listedTask{t.TaskID, t.ContextID, t.State.String(), t.Timestamp})
		fmt.Fprintf(&b, "%s %s, since %s\n", t.TaskID, t.State, t.Timestamp)
	}
	switch {
	case len(page.Tasks) == 0:
		b.WriteString("No tasks.")
	case page.NextToken != "":
		fmt.Fprintf(&b, "There are more: call list_tasks with pageToken %q.", page.NextToken)
	}
	return &sdk.CallToolResult{
		Content: []sdk.Content{text(strings.TrimSuffix(b.String(), "\n"))}, StructuredContent: out,
	}, nil
}

func (c *call) send(ctx context.Context) (*sdk.CallToolResult, error) {
	if retry, ok, err := c.roundTrip(); ok || err != nil {
		return c.resume(ctx, retry, err)
	}
	parts := c.in.parts()
	if len(parts) == 0 {
		return nil, errors.New("there is nothing to send: give a message or data")
	}
	message := a2a.Message{TaskID: c.in.TaskID, ContextID: c.in.ContextID, Parts: parts}
	if c.in.Skill != "" {
		skill, err := json.Marshal(map[string]string{"skillId": c.in.Skill})
		if err != nil {
			return nil, err
		}
		message.Metadata = skill
	}
	return c.converse(ctx, c.say(message, c.in.IdempotencyKey), 0)
}

func (c *call) answer(ctx context.Context) (*sdk.CallToolResult, error) {
	if retry, ok, err := c.roundTrip(); ok || err != nil {
		return c.resume(ctx, retry, err)
	}
	if parts := c.in.parts(); len(parts) > 0 {
		message := a2a.Message{TaskID: c.in.TaskID, Parts: parts}
		return c.converse(ctx, c.say(message, c.in.IdempotencyKey), 0)
	}
	if !c.canAsk() {
		return nil, errors.New("there is no answer: give a message or data. This client cannot ask the user")
	}
	return c.converse(ctx, source{task: c.in.TaskID}, 0)
}

func (c *call) follow(ctx context.Context) (*sdk.CallToolResult, error) {
	if retry, ok, err := c.roundTrip(); ok || err != nil {
		return c.resume(ctx, retry, err)
	}
	return c.converse(ctx, source{task: c.in.TaskID}, 0)
}

// parts returns the message of the caller.
func (in *input) parts() (parts []a2a.Part) {
	if in.Message != "" {
		parts = append(parts, a2a.Part{Kind: a2a.PartText, Text: in.Message})
	}
	if in.Data != nil {
		parts = append(parts, a2a.Part{Kind: a2a.PartData, Data: a2a.Raw(in.Data)})
	}
	return parts
}

func (c *call) wait() time.Duration { return c.in.wait(c.s.cfg.Wait) }
