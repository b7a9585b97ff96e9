package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// agent is an agent of the server as its card describes it. It does not change: a new card makes a new agent.
type agent struct {
	url       string
	version   client.Version
	card      []byte
	signIn    bool // it accepts only callers with credentials
	tool      *sdk.Tool
	arguments *arguments
}

// schemaExtension is the extension with which a2ad publishes the JSON Schemas of skills.
const schemaExtension = "https://a2ad.dev/extensions/skill-schemas/v1"

func newAgent(name string, c *client.Client, card client.Card, wait time.Duration) (*agent, error) {
	a := &agent{url: c.URL, version: c.Version, card: card.Raw}
	for _, member := range []string{"security", "securityRequirements"} {
		a.signIn = a.signIn || !rawjson.Empty(rawjson.Get(card.Raw, member))
	}
	skills := readSkills(card.Raw)
	text, err := sendSchema(skills)
	if err != nil {
		return nil, err
	}
	if a.arguments, err = newArguments(text); err != nil {
		return nil, fmt.Errorf("make the input schema: %w", err)
	}
	a.tool = &sdk.Tool{
		Name: "send_to_" + name, Title: card.Name, Description: describe(name, card, skills, wait),
		InputSchema: json.RawMessage(text), OutputSchema: taskOutput,
		Annotations: &sdk.ToolAnnotations{Title: card.Name},
	}
	return a, nil
}

// skill is a skill of a card. schema is of the data that it accepts, or nil.
type skill struct {
	id, name, description string
	examples              []string
	schema                []byte
}

func readSkills(card []byte) []skill {
	schemas := skillSchemas(card)
	var skills []skill
	for raw := range rawjson.Elements(rawjson.Get(card, "skills")) {
		s := skill{id: str(raw, "id"), name: str(raw, "name"), description: str(raw, "description")}
		for example := range rawjson.Elements(rawjson.Get(raw, "examples")) {
			if text, ok := rawjson.String(example); ok {
				s.examples = append(s.examples, text)
			}
		}
		s.schema = rawjson.Get(rawjson.Get(schemas, s.id), "inputSchema")
		skills = append(skills, s)
	}
	return skills
}

// skillSchemas returns the schemas of a card, by the ids of skills.
func skillSchemas(card []byte) []byte {
	for e := range rawjson.Elements(rawjson.Get(rawjson.Get(card, "capabilities"), "extensions")) {
		if schemas := rawjson.Get(rawjson.Get(e, "params"), "skillSchemas"); schemas != nil &&
			str(e, "uri") == schemaExtension {
			return schemas
		}
	}
	return nil
}

// describe tells a model when to use an agent, and what its tool does.
func describe(name string, card client.Card, skills []skill, wait time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Send a message to the agent %s, which starts a task or continues one.", name)
	if card.Description != "" {
		fmt.Fprintf(&b, " The agent: %s", card.Description)
	}
	for i, s := range skills {
		if i == 0 {
			b.WriteString("\n\nSkills:")
		}
		fmt.Fprintf(&b, "\n- %s (%s): %s", s.id, s.name, s.description)
		for _, example := range s.examples {
			fmt.Fprintf(&b, "\n  Example: %s", example)
		}
		if s.schema != nil {
			fmt.Fprintf(&b, "\n  Its data must fit this JSON Schema: %s", compact(s.schema))
		}
	}
	fmt.Fprintf(&b, "\n\nThe call waits up to %s for the task. If the task has not ended by then, it continues, "+
		"and the result has its taskId and state.", wait)
	return b.String()
}

// sendSchema returns the input schema of the tool of an agent.
func sendSchema(skills []skill) ([]byte, error) {
	properties := map[string]any{
		"message": property("string", "What to say to the agent."),
		"taskId":  property("string", "A task of this agent that waits for a message. Without it a new task starts."),
		"contextId": property("string",
			"The conversation of a new task: the contextId of an earlier result. Without it a new one starts."),
		"data": map[string]any{"description": "Structured data for the agent: any JSON value."},
	}
	var ids []string
	for _, s := range skills {
		if s.schema != nil {
			ids = append(ids, s.id)
		}
	}
	switch {
	case len(ids) > 0 && len(skills) > 1:
		properties["skill"] = map[string]any{
			"type": "string", "enum": ids, "description": "The skill that the data is for.",
		}
	case len(ids) == 1 && selfContained(skills[0].schema):
		properties["data"] = json.RawMessage(skills[0].schema)
	}
	addWaiting(properties)
	return json.Marshal(object(properties))
}

// selfContained reports whether a schema means the same as a part of another one: it has no references and no names.
func selfContained(schema []byte) bool {
	return rawjson.KindOf(schema) == rawjson.KindObject && !bytes.Contains(schema, []byte(`"$`))
}

func compact(raw []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

func str(obj []byte, key string) string {
	s, _ := rawjson.String(rawjson.Get(obj, key))
	return s
}
