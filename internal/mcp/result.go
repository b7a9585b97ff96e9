package mcp

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// taskResult is the structured result of tools that return a task: taskOutput is its schema.
type taskResult struct {
	Agent     string            `json:"agent"`
	TaskID    string            `json:"taskId,omitempty"`
	ContextID string            `json:"contextId,omitempty"`
	State     string            `json:"state"`
	Message   string            `json:"message,omitempty"`
	Data      []json.RawMessage `json:"data,omitempty"`
	Expects   json.RawMessage   `json:"expects,omitempty"`
	Artifacts []artifactResult  `json:"artifacts,omitempty"`
}

type artifactResult struct {
	ID   string            `json:"artifactId"`
	Name string            `json:"name,omitempty"`
	Text string            `json:"text,omitempty"`
	Data []json.RawMessage `json:"data,omitempty"`
}

// render turns a task, or a reply without a task, into the result of a tool. The text alone says everything, because
// many clients show models nothing else. note is added to it.
func render(agent string, res client.Result, note string) *sdk.CallToolResult {
	question, message := splitExpects(res.Parts)
	out := taskResult{
		Agent: agent, TaskID: res.TaskID, ContextID: res.ContextID, State: res.State.String(),
		Message: textOf(message, lines), Data: dataOf(message), Expects: question,
	}
	reply := res.Kind == client.KindMessage
	if reply {
		out.State = a2a.StateCompleted.String() // the agent has answered, and there is nothing to follow
	}
	var content []sdk.Content
	for _, a := range res.Artifacts {
		out.Artifacts = append(out.Artifacts, artifactResult{a.ID, a.Name, textOf(a.Parts, chunks), dataOf(a.Parts)})
		content = append(content, contents(a.Parts, chunks, fileURI(res.TaskID, "artifacts/"+url.PathEscape(a.ID)))...)
	}
	content = append(content, contents(message, lines, fileURI(res.TaskID, "message"))...)
	if question != nil {
		content = append(content, text("The answer must fit: "+string(question)))
	}
	if !reply {
		content = append(content, text(summary(agent, res)))
	}
	if note != "" {
		content = append(content, text(note))
	}
	return &sdk.CallToolResult{Content: content, StructuredContent: out}
}

// summary names the task and says what can be done about it.
func summary(agent string, res client.Result) string {
	s := fmt.Sprintf("Task %s of agent %s is %s.", res.TaskID, agent, res.State)
	call := fmt.Sprintf(`agent %q and taskId %q`, agent, res.TaskID)
	switch {
	case res.State == a2a.StateInputRequired:
		s += " It waits for an answer: call answer_task with " + call + "."
	case res.State == a2a.StateAuthRequired:
		s += " It waits until the user has signed in as the message says: then call follow_task with " + call + "."
	case !res.State.Terminal():
		s += " It continues by itself: to wait for it, call follow_task with " + call + "."
	}
	return s
}

func text(s string) sdk.Content { return &sdk.TextContent{Text: s} }

// chunks and lines separate the text parts of an artifact, which agents stream in parts that break anywhere, and those
// of a message.
const (
	chunks = ""
	lines  = "\n"
)

// contents turns parts into blocks of content, and text parts that follow each other into one. base is the URI below
// which files are named.
func contents(parts []a2a.Part, separator, base string) (list []sdk.Content) {
	for i := 0; i < len(parts); i++ {
		switch p := parts[i]; p.Kind {
		case a2a.PartText:
			run := []string{p.Text}
			for i+1 < len(parts) && parts[i+1].Kind == a2a.PartText {
				i++
				run = append(run, parts[i].Text)
			}
			list = append(list, text(strings.Join(run, separator)))
		case a2a.PartData:
			list = append(list, text(string(p.Data)))
		case a2a.PartURL:
			name := p.Filename
			if name == "" {
				name = p.Text
			}
			list = append(list, &sdk.ResourceLink{URI: p.Text, Name: name, MIMEType: p.MediaType})
		case a2a.PartFile:
			list = append(list, embed(p, fmt.Sprintf("%s/%d/%s", base, i, url.PathEscape(p.Filename))))
		}
	}
	return list
}

// embed returns the resource with the bytes of a file. Text stays readable.
func embed(p a2a.Part, uri string) sdk.Content {
	data, err := base64.StdEncoding.DecodeString(p.Text)
	if err != nil {
		return text(fmt.Sprintf("The file %q is not valid base64.", p.Filename))
	}
	r := &sdk.ResourceContents{URI: strings.TrimSuffix(uri, "/"), MIMEType: p.MediaType}
	if strings.HasPrefix(p.MediaType, "text/") && utf8.Valid(data) && len(data) > 0 {
		r.Text = string(data)
	} else {
		r.Blob = append([]byte{}, data...) // never nil: an empty file has contents too
	}
	return &sdk.EmbeddedResource{Resource: r}
}

// fileURI names a place in a task. It only tells files apart: it cannot be read.
func fileURI(task, place string) string { return "a2ad:///tasks/" + url.PathEscape(task) + "/" + place }

func textOf(parts []a2a.Part, separator string) string {
	var texts []string
	for _, p := range parts {
		if p.Kind == a2a.PartText {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, separator)
}

func dataOf(parts []a2a.Part) (data []json.RawMessage) {
	for _, p := range parts {
		if p.Kind == a2a.PartData {
			data = append(data, json.RawMessage(p.Data))
		}
	}
	return data
}

// splitExpects returns what the answer to a question must look like, or nil, and the other parts of the question.
func splitExpects(parts []a2a.Part) (expects json.RawMessage, others []a2a.Part) {
	for _, p := range parts {
		if marked, _ := rawjson.Bool(rawjson.Get(p.Metadata, "a2ad/expects")); marked && p.Kind == a2a.PartData {
			expects = json.RawMessage(p.Data)
			continue
		}
		others = append(others, p)
	}
	return expects, others
}

// failed returns the result of a tool that has failed, for the model to read.
func failed(err error) *sdk.CallToolResult {
	res := &sdk.CallToolResult{}
	res.SetError(err)
	return res
}
