package rpc_test

import (
	"encoding/base64"
	"strings"
	"testing"
)

// words are the names and forms that one dialect uses.
type words uint8

const (
	wordsV1 words = iota
	wordsSchema
	wordsProto
)

// message returns the body of a send.
func (w words) message(op *operation) string {
	part := `{"script":[` + op.script + `],"n":9007199254740993,"null":null}`
	m := `{"messageId":"m",` + [...]string{
		`"role":"ROLE_USER","parts":[{"data":` + part + `},{"raw":"/w==","filename":"f","mediaType":"a/b"}]`,
		`"role":"user","parts":[{"kind":"data","data":` + part +
			`},{"kind":"file","file":{"bytes":"/w==","name":"f","mimeType":"a/b"}}]`,
		`"role":"ROLE_USER","content":[{"data":{"data":` + part +
			`}},{"file":{"fileWithBytes":"L3c9PQ==","name":"f","mimeType":"a/b"}}]`,
	}[w]
	if op.noParts {
		m = `{"messageId":"m",` + [...]string{`"role":"ROLE_USER","parts":[]`, `"role":"user","parts":[]`,
			`"role":"ROLE_USER"`}[w]
	}
	if op.task != "" {
		m += `,"taskId":"` + op.task + `"`
	}
	if op.context != "" {
		m += `,"contextId":"` + op.context + `"`
	}
	if op.refs != "" {
		m += `,"referenceTaskIds":["` + op.refs + `"]`
	}
	if op.hook {
		m += `},"configuration":{` + [...]string{
			`"taskPushNotificationConfig":{"url":"https://h/x"}`, `"pushNotificationConfig":{"url":"https://h/x"}`,
			`"pushNotification":{"url":"https://h/x"}`,
		}[w]
	}
	return `{"message":` + m + `},"metadata":{"k":1}}`
}

// plain returns an answer in the words of 1.0, without times.
func (w words) plain(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = w.plain(v[i])
		}
	case map[string]any:
		for _, name := range []string{"kind", "timestamp", "final", "pageSize", "page_size", "total_size",
			"next_page_token"} {
			delete(v, name)
		}
		for name, member := range v {
			if name != "data" {
				v[name] = w.plain(member)
			}
		}
		w.part(v)
		if content, ok := v["content"]; ok && w == wordsProto {
			v["parts"] = content
			delete(v, "content")
		}
		for _, name := range []string{"state", "role"} {
			switch word, _ := v[name].(string); {
			case modernWords[word] != "":
				v[name] = modernWords[word]
			case word == "TASK_STATE_CANCELLED":
				v[name] = "TASK_STATE_CANCELED"
			}
		}
		for _, flag := range []string{"append", "lastChunk"} {
			if v[flag] == false {
				delete(v, flag)
			}
		}
	}
	return v
}

// part rewrites the content of a part.
func (w words) part(v map[string]any) {
	if wrapped, ok := v["data"].(map[string]any); ok && w == wordsProto {
		v["data"] = wrapped["data"]
	}
	file, ok := v["file"].(map[string]any)
	if !ok {
		return
	}
	delete(v, "file")
	for theirs, ours := range map[string]string{"bytes": "raw", "fileWithBytes": "raw", "uri": "url",
		"fileWithUri": "url", "mimeType": "mediaType", "name": "filename"} {
		if content, ok := file[theirs].(string); ok {
			if theirs == "fileWithBytes" {
				inner, _ := base64.StdEncoding.DecodeString(content)
				content = string(inner)
			}
			v[ours] = content
		}
	}
}

// answer returns a task without a wrapper, and webhooks in the form of 1.0.
func (w words) answer(t *testing.T, name string, result []byte) any {
	t.Helper()
	if name == "DeleteTaskPushNotificationConfig" {
		return "deleted"
	}
	v := w.plain(parse(t, result))
	switch name {
	case "CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig":
		return webhook(object(t, v))
	case "ListTaskPushNotificationConfigs":
		list, bare := v.([]any)
		if !bare {
			list = object(t, v)["configs"].([]any)
		}
		for i := range list {
			list[i] = webhook(object(t, list[i]))
		}
		return list
	}
	for _, member := range []string{"task", "message"} {
		if wrapped, ok := object(t, v)[member]; ok {
			return wrapped
		}
	}
	return v
}

func webhook(v map[string]any) map[string]any {
	if name, ok := v["name"].(string); ok { // tasks/{id}/…
		v["taskId"] = strings.Split(name, "/")[1]
	}
	if inner, ok := v["pushNotificationConfig"].(map[string]any); ok {
		inner["taskId"] = v["taskId"]
		v = inner
	}
	if a, ok := v["authentication"].(map[string]any); ok && a["schemes"] != nil {
		v["authentication"] = map[string]any{"scheme": a["schemes"].([]any)[0]}
	}
	return v
}

// item returns an item of a stream in its wrapper.
func (w words) item(t *testing.T, result []byte) map[string]any {
	t.Helper()
	item := object(t, parse(t, result))
	kind, bare := item["kind"].(string)
	w.plain(item)
	if bare { // 0.3 over JSON-RPC does not wrap items
		item = map[string]any{map[string]string{"task": "task", "message": "message", "status-update": "statusUpdate",
			"artifact-update": "artifactUpdate"}[kind]: item}
	}
	return item
}
