package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/rawjson"
)

const (
	// retryingVersion is the first version of MCP in which a server asks by returning a question: the client asks its
	// user, and repeats the call with the answer. Before it, the server sends a request of its own.
	retryingVersion = "2026-07-28"
	// maxRounds is how many questions one call answers. Clients give up after ten.
	maxRounds = 8
	// answerKey names the question in a repeated call, and the answer in a form with one field.
	answerKey = "answer"
)

// question is a question of an agent that the client can show to its user as a form.
type question struct {
	Task string `json:"task"`
	// At is when the agent asked. With it, an answer that arrives twice is told from the answer to the next question.
	At      string          `json:"at"`
	Rounds  int             `json:"rounds"` // questions that the call has answered before
	Data    bool            `json:"data"`   // the answer is a data part, and not a text
	message string          // for the user
	form    json.RawMessage // the JSON Schema of the answer
}

// ask returns the question of a task, if it has one that the client can show.
func (c *call) ask(res client.Result) (question, bool) {
	if res.State != a2a.StateInputRequired || !c.canAsk() {
		return question{}, false
	}
	expects, message := splitExpects(res.Parts)
	q := question{Task: res.TaskID, At: res.Timestamp, message: client.Text(message)}
	if q.message == "" {
		q.message = fmt.Sprintf("The agent %s needs an answer.", c.agent)
	}
	field := map[string]any{"type": "string", "title": "Answer", "minLength": 1}
	switch schema, choices := rawjson.Get(expects, "schema"), rawjson.Get(expects, "choices"); {
	case schema != nil:
		q.form, q.Data = json.RawMessage(schema), true
		return q, flat(schema)
	case choices != nil:
		field = map[string]any{"type": "string", "title": "Answer", "enum": json.RawMessage(choices)}
	}
	form, err := json.Marshal(object(map[string]any{answerKey: field}, answerKey))
	q.form = form
	return q, err == nil
}

// flat reports whether a schema is one that MCP lets a client show as a form: an object with fields of simple types.
func flat(schema []byte) bool {
	if str(schema, "type") != "object" || !selfContained(schema) {
		return false
	}
	fields := 0
	for _, field := range rawjson.Members(rawjson.Get(schema, "properties")) {
		fields++
		if !slices.Contains([]string{"string", "number", "integer", "boolean"}, str(field, "type")) {
			return false
		}
		if format := str(field, "format"); format != "" &&
			!slices.Contains([]string{"email", "uri", "date", "date-time"}, format) {
			return false
		}
	}
	return fields > 0
}

// canAsk reports whether the client can show a form to its user.
func (c *call) canAsk() bool {
	caps := c.req.ClientCapabilities()
	if caps == nil || caps.Elicitation == nil {
		return false
	}
	return caps.Elicitation.Form != nil || caps.Elicitation.URL == nil // neither means forms
}

// retriesCalls reports whether the client repeats a call with the answers to its questions.
func (c *call) retriesCalls() bool { return c.req.ProtocolVersion() >= retryingVersion }

func (q *question) params() *sdk.ElicitParams {
	return &sdk.ElicitParams{Message: q.message, RequestedSchema: q.form}
}

// elicit asks the user and waits.
func (c *call) elicit(ctx context.Context, q question) (*sdk.ElicitResult, error) {
	return c.req.Session.Elicit(ctx, q.params())
}

// roundTrip returns the result that makes the client ask its user and repeat the call.
func (q *question) roundTrip(rounds int) (*sdk.CallToolResult, error) {
	q.Rounds = rounds
	state, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	return &sdk.CallToolResult{
		InputRequests: sdk.InputRequestMap{answerKey: q.params()}, RequestState: string(state),
	}, nil
}

// answered is a question in a repeated call, and what the user did.
type answered struct {
	question
	reply *sdk.ElicitResult
}

// roundTrip returns the question that a repeated call answers. ok is false if the call is not a repeated one.
//
// The client could have changed the state of the call. That gains it nothing: the server checks that the task belongs
// to the caller, as with answer_task.
func (c *call) roundTrip() (a answered, ok bool, err error) {
	p := c.req.Params
	if p.RequestState == "" && len(p.InputResponses) == 0 {
		return a, false, nil
	}
	if err := json.Unmarshal([]byte(p.RequestState), &a.question); err != nil || a.Task == "" {
		return a, false, errors.New("the requestState of the call is not one of a2ad")
	}
	reply, ok := p.InputResponses[answerKey].(*sdk.ElicitResult)
	if !ok {
		return a, false, fmt.Errorf("inputResponses has no answer to the question of task %s", a.Task)
	}
	a.reply = reply
	return a, true, nil
}

// resume continues a call with the answer to its question. It sends nothing else: the message of the call has been sent
// before.
func (c *call) resume(ctx context.Context, a answered, err error) (*sdk.CallToolResult, error) {
	if err != nil {
		return nil, err
	}
	parts, note := a.parts(a.reply)
	if note != "" {
		res, err := c.read(ctx, a.Task)
		if err != nil {
			return nil, err
		}
		return outcome(c.agent, res, note), nil
	}
	return c.converse(ctx, c.say(a2a.Message{TaskID: a.Task, Parts: parts}, a.key(parts)), a.Rounds)
}

// parts returns the user's answer as a message, or a note that there is none.
func (q *question) parts(reply *sdk.ElicitResult) (parts []a2a.Part, note string) {
	if reply.Action != "accept" {
		return nil, "The user did not answer the question."
	}
	if q.Data {
		data, err := json.Marshal(reply.Content)
		if err != nil {
			return nil, "The answer of the user is not JSON."
		}
		return []a2a.Part{{Kind: a2a.PartData, Data: data}}, ""
	}
	said, _ := reply.Content[answerKey].(string)
	if said == "" {
		return nil, "The user did not answer the question."
	}
	return []a2a.Part{{Kind: a2a.PartText, Text: said}}, ""
}

// key is the idempotency key of an answer: the same for the same answer to the same question.
func (q *question) key(parts []a2a.Part) string {
	sum := sha256.New()
	for _, s := range []string{q.Task, q.At, parts[0].Text, string(parts[0].Data)} {
		fmt.Fprintf(sum, "%d:%s", len(s), s)
	}
	return "mcp-" + hex.EncodeToString(sum.Sum(nil))
}
