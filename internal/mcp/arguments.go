package mcp

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/schema"
)

// arguments checks and reads the arguments of a tool. JSON for agents stays as it was sent: numbers keep their digits.
type arguments struct{ schema *schema.Schema }

func newArguments(text []byte) (*arguments, error) {
	compiled, err := schema.Compile(text)
	if err != nil {
		return nil, err
	}
	return &arguments{compiled}, nil
}

// input holds the arguments of all tools. Each tool has some of them.
type input struct {
	Agent          string          `json:"agent"`
	TaskID         string          `json:"taskId"`
	ContextID      string          `json:"contextId"`
	Message        string          `json:"message"`
	Data           json.RawMessage `json:"data"`
	Skill          string          `json:"skill"`
	IdempotencyKey string          `json:"idempotencyKey"`
	WaitSeconds    *float64        `json:"waitSeconds"`
	State          string          `json:"state"`
	PageSize       int             `json:"pageSize"`
	PageToken      string          `json:"pageToken"`
}

const maxDepth = 64 // of the data for agents

// read returns the arguments, or an error for the model that wrote them.
func (a *arguments) read(raw json.RawMessage) (input, error) {
	if len(raw) == 0 || string(raw) == "null" {
		raw = json.RawMessage("{}")
	}
	var in input
	if err := rawjson.Check(raw, maxDepth); err != nil {
		return in, fmt.Errorf("invalid arguments: %w", err)
	}
	if where, mismatch := a.schema.Check(raw); mismatch != "" {
		return in, fmt.Errorf("invalid arguments: arguments%s: %s", where, mismatch)
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return in, fmt.Errorf("invalid arguments: %w", err)
	}
	return in, nil
}

// wait returns how long the call waits.
func (in *input) wait(usual time.Duration) time.Duration {
	if in.WaitSeconds == nil {
		return usual
	}
	return time.Duration(*in.WaitSeconds * float64(time.Second))
}

// object returns a JSON Schema of an object that has some properties and no others.
func object(properties map[string]any, required ...string) map[string]any {
	o := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		o["required"] = required
	}
	return o
}

func property(kind, description string) map[string]any {
	return map[string]any{"type": kind, "description": description}
}

// addWaiting adds the properties of tools that send a message and wait for the task.
func addWaiting(properties map[string]any) {
	properties["waitSeconds"] = waitProperty()
	properties["idempotencyKey"] = property("string",
		"Makes it safe to repeat the call: with the same key, the message is accepted once.")
}

func waitProperty() map[string]any {
	p := property("number", "How long to wait for the task; 0 only starts it.")
	p["minimum"], p["maximum"] = 0, MaxWait.Seconds()
	return p
}

const stateHelp = "submitted and working: the task continues. input-required and auth-required: it waits. " +
	"completed, failed, canceled and rejected: it has ended."

// taskOutput is the schema of the structured result of tools that return a task.
var taskOutput = json.RawMessage(`{"type":"object","required":["agent","state"],"properties":{
"agent":{"type":"string"},
"taskId":{"type":"string","description":"Missing if the agent answered without a task."},
"contextId":{"type":"string"},
"state":{"type":"string","description":"` + stateHelp + `"},
"message":{"type":"string","description":"What the agent said last: an answer, a question or a reason."},
"data":{"type":"array","description":"Structured parts of that message."},
"expects":{"type":"object","description":"What the answer to the question must look like."},
"artifacts":{"type":"array","items":{"type":"object","required":["artifactId"],"properties":{
"artifactId":{"type":"string"},"name":{"type":"string"},"text":{"type":"string"},"data":{"type":"array"}}}}}}`)

// listOutput is the schema of the structured result of list_tasks.
var listOutput = json.RawMessage(`{"type":"object","required":["tasks"],"properties":{
"tasks":{"type":"array","items":{"type":"object","required":["taskId","state"],"properties":{
"taskId":{"type":"string"},"contextId":{"type":"string"},"state":{"type":"string"},"updatedAt":{"type":"string"}}}},
"nextPageToken":{"type":"string"}}}`)
