package transcode

import (
	"encoding/base64"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/a2ad/a2ad/internal/rawjson"
)

// results03 says how what the codec of 0.3 writes becomes ProtoJSON, by the message it is for.
var results03 = map[protoreflect.Name]func([]byte) []byte{
	"Task":                                   func(v []byte) []byte { return appendProto(nil, v) },
	"SendMessageResponse":                    wrap,
	"StreamResponse":                         wrap,
	"ListTasksResponse":                      page,
	"TaskPushNotificationConfig":             func(v []byte) []byte { return appendPush(nil, v) },
	"ListTaskPushNotificationConfigResponse": pushes,
	"Empty":                                  func([]byte) []byte { return []byte("{}") },
	"AgentCard":                              card,
}

const statePrefix = "TASK_STATE_"

// wrap names an item by its kind, which is where 0.3 says what it is.
func wrap(v []byte) []byte {
	kind, _ := rawjson.String(rawjson.Get(v, "kind"))
	switch kind {
	case "status-update":
		kind = "statusUpdate"
	case "artifact-update":
		kind = "artifactUpdate"
	}
	out := append(rawjson.AppendString([]byte{'{'}, kind), ':')
	return append(appendProto(out, v), '}')
}

func page(v []byte) []byte {
	out := appendProto([]byte(`{"tasks":`), rawjson.Get(v, "tasks"))
	out = append(append(out, `,"totalSize":`...), rawjson.Get(v, "totalSize")...)
	out = append(append(out, `,"nextPageToken":`...), rawjson.Get(v, "nextPageToken")...)
	return append(out, '}')
}

// appendPush appends a webhook, which has a name in place of two ids.
func appendPush(dst, v []byte) []byte {
	config := rawjson.Get(v, "pushNotificationConfig")
	task, _ := rawjson.String(rawjson.Get(v, "taskId"))
	id, _ := rawjson.String(rawjson.Get(config, "id"))
	dst = rawjson.AppendString(append(dst, `{"name":`...), "tasks/"+task+"/pushNotificationConfigs/"+id)
	return append(append(append(dst, `,"pushNotificationConfig":`...), config...), '}')
}

func pushes(v []byte) []byte {
	out := []byte(`{"configs":[`)
	for e := range rawjson.Elements(v) {
		out = append(appendPush(out, e), ',')
	}
	return append(closeList(out), '}')
}

// closeList ends a list whose elements each have a comma behind them.
func closeList(out []byte) []byte {
	if out[len(out)-1] == ',' {
		out = out[:len(out)-1]
	}
	return append(out, ']')
}

// closeObject ends an object whose members each have a comma behind them.
func closeObject(out []byte) []byte {
	if out[len(out)-1] == ',' {
		out = out[:len(out)-1]
	}
	return append(out, '}')
}

// appendProto appends a task, an event or what they consist of: words of enumerations become
// their names, parts say by a member what they are, and the rest stays as it is.
func appendProto(dst, v []byte) []byte {
	switch rawjson.KindOf(v) {
	case rawjson.KindArray:
		dst = append(dst, '[')
		for e := range rawjson.Elements(v) {
			dst = append(appendProto(dst, e), ',')
		}
		return closeList(dst)
	case rawjson.KindObject:
	default:
		return append(dst, v...)
	}
	dst = append(dst, '{')
	for key, member := range rawjson.Members(v) {
		name := string(key)
		if name == "kind" {
			continue
		}
		dst = append(rawjson.AppendString(dst, name), ':')
		switch name {
		case "role":
			dst = append(appendName(dst, "ROLE_", member), ',')
		case "state":
			dst = append(appendName(dst, statePrefix, member), ',')
		case "metadata":
			dst = append(append(dst, member...), ',')
		case "parts":
			dst = append(dst, '[')
			for part := range rawjson.Elements(member) {
				dst = append(appendPart(dst, part), ',')
			}
			dst = append(closeList(dst), ',')
		default:
			dst = append(appendProto(dst, member), ',')
		}
	}
	return closeObject(dst)
}

// appendName appends the name in an enumeration of a word of 0.3.
func appendName(dst []byte, prefix string, v []byte) []byte {
	word, _ := rawjson.String(v)
	switch word {
	case "canceled":
		word = "cancelled" // as the definitions of 0.3 spell it
	case "unknown":
		word = "unspecified"
	}
	return rawjson.AppendString(dst, prefix+strings.ToUpper(strings.ReplaceAll(word, "-", "_")))
}

var fileNames = map[string]string{"bytes": "fileWithBytes", "uri": "fileWithUri"}

func appendPart(dst, v []byte) []byte {
	dst = append(dst, '{')
	for key, member := range rawjson.Members(v) {
		name := string(key)
		if name == "kind" {
			continue
		}
		dst = append(rawjson.AppendString(dst, name), ':')
		switch name {
		case "data":
			dst = append(append(append(dst, `{"data":`...), member...), '}')
		case "file":
			dst = append(dst, '{')
			for key, member := range rawjson.Members(member) {
				field, ok := fileNames[string(key)]
				if !ok {
					field = string(key)
				}
				dst = append(append(rawjson.AppendString(dst, field), ':'), member...)
				dst = append(dst, ',')
			}
			dst = closeObject(dst)
		default:
			dst = append(dst, member...)
		}
		dst = append(dst, ',')
	}
	return closeObject(dst)
}

// schemes03 has the members that hold a security scheme, by its type.
var schemes03 = map[string]string{
	"apiKey": "apiKeySecurityScheme", "http": "httpAuthSecurityScheme", "oauth2": "oauth2SecurityScheme",
	"openIdConnect": "openIdConnectSecurityScheme", "mutualTLS": "mtlsSecurityScheme",
}

// card rewrites the ways to sign in; the rest of a card is the same.
func card(v []byte) []byte {
	out := []byte{'{'}
	for key, member := range rawjson.Members(v) {
		out = append(rawjson.AppendString(out, string(key)), ':')
		switch string(key) {
		case "securitySchemes":
			out = append(out, '{')
			for name, s := range rawjson.Members(member) {
				kind, _ := rawjson.String(rawjson.Get(s, "type"))
				out = append(append(rawjson.AppendString(out, string(name)), `:{"`+schemes03[kind]+`":`...), rename(rawjson.Without(s, "type"), "in", "location")...)
				out = append(out, "},"...)
			}
			out = closeObject(out)
		case "security":
			out = append(out, '[')
			for s := range rawjson.Elements(member) {
				out = append(out, `{"schemes":{`...)
				for name, scopes := range rawjson.Members(s) {
					out = append(append(rawjson.AppendString(out, string(name)), `:{"list":`...), scopes...)
					out = append(out, "},"...)
				}
				out = append(closeObject(out), "},"...)
			}
			out = closeList(out)
		default:
			out = append(out, member...)
		}
		out = append(out, ',')
	}
	return closeObject(out)
}

func rename(obj []byte, from, to string) []byte {
	out := []byte{'{'}
	for key, member := range rawjson.Members(obj) {
		name := string(key)
		if name == from {
			name = to
		}
		out = append(append(append(rawjson.AppendString(out, name), ':'), member...), ',')
	}
	return closeObject(out)
}

func appendBase64(dst, b []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), b), '"')
}
