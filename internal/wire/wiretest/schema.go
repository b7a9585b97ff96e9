package wiretest

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// SchemasV03 are the definitions of 0.3, from a file in the test data of v03.
func SchemasV03(file string) *Schemas {
	return &Schemas{
		File:      file,
		Resources: func(doc any) map[string]any { return map[string]any{"a2a.json": doc} },
		Address:   func(definition string) string { return "a2a.json#/definitions/" + definition },
	}
}

// SchemasV1 are the definitions of 1.0, from a file in the test data of v1, made as strict as the
// definitions they come from.
func SchemasV1(file string) *Schemas {
	return &Schemas{
		File: file,
		Resources: func(doc any) map[string]any {
			resources := map[string]any{}
			for name, definition := range StrictV1(doc) {
				resources[address(name)] = definition
			}
			return resources
		},
		Address: address,
	}
}

// address is how definitions refer to each other.
func address(definition string) string {
	scope := "lf.a2a.v1."
	if slices.Contains([]string{"Struct", "Timestamp", "Value"}, definition) {
		scope = "google.protobuf."
	}
	return "http://a2a/" + scope + definition + ".jsonschema.json"
}

// required are the members that the definitions mark REQUIRED, and the request members that REST
// has in its paths.
var required = map[string][]string{
	"Task": {"id", "contextId", "status"}, "TaskStatus": {"state"}, "Message": {"messageId", "role", "parts"},
	"Artifact":                {"artifactId", "parts"},
	"TaskStatusUpdateEvent":   {"taskId", "contextId", "status"},
	"TaskArtifactUpdateEvent": {"taskId", "contextId", "artifact"},
	"AgentInterface":          {"url", "protocolBinding", "protocolVersion"}, "AgentProvider": {"url", "organization"},
	"AgentCard": {"name", "description", "supportedInterfaces", "version", "capabilities", "defaultInputModes",
		"defaultOutputModes", "skills"},
	"AgentSkill": {"id", "name", "description", "tags"}, "AuthenticationInfo": {"scheme"},
	"TaskPushNotificationConfig": {"url", "taskId"},
	"APIKeySecurityScheme":       {"location", "name"}, "HTTPAuthSecurityScheme": {"scheme"},
	"OpenIdConnectSecurityScheme":             {"openIdConnectUrl"},
	"ListTasksResponse":                       {"tasks", "nextPageToken", "pageSize", "totalSize"},
	"ListTaskPushNotificationConfigsResponse": {"configs"},
	"SendMessageRequest":                      {"message"}, "GetTaskRequest": {"id"}, "CancelTaskRequest": {"id"},
	"SubscribeToTaskRequest":                  {"id"},
	"GetTaskPushNotificationConfigRequest":    {"taskId", "id"},
	"DeleteTaskPushNotificationConfigRequest": {"taskId", "id"},
	"ListTaskPushNotificationConfigsRequest":  {"taskId"},
}

// oneMember are the definitions whose only member tells what they are.
var oneMember = []string{"SendMessageResponse", "StreamResponse", "SecurityScheme"}

// StrictV1 returns the definitions in the bundle of 1.0 by name, made as strict as the definitions they come
// from. An answer has all required members in camelCase, and exactly one member of a oneof. Enumerations are
// names, numbers are numbers, and times are in UTC with milliseconds.
func StrictV1(doc any) map[string]map[string]any {
	found := map[string]map[string]any{}
	for title, v := range doc.(map[string]any)["definitions"].(map[string]any) {
		name := strings.ReplaceAll(title, " ", "")
		d := maps.Clone(v.(map[string]any))
		delete(d, "patternProperties")
		if r := required[name]; r != nil {
			d["required"] = list(r)
		}
		if slices.Contains(oneMember, name) {
			d["minProperties"], d["maxProperties"] = json.Number("1"), json.Number("1")
		}
		properties, _ := d["properties"].(map[string]any)
		for member, p := range properties {
			properties[member] = one(p.(map[string]any))
		}
		switch name {
		case "Part":
			var contents []any
			for _, member := range []string{"text", "raw", "url", "data"} {
				contents = append(contents, map[string]any{"required": list([]string{member})})
			}
			d["oneOf"] = contents
		case "Timestamp":
			d["pattern"] = `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`
		}
		found[name] = d
	}
	return found
}

// one returns the one form that must be written: for a number the number, and for an enumeration
// the names, including the unspecified one.
func one(property map[string]any) map[string]any {
	alternatives, ok := property["anyOf"].([]any)
	if !ok {
		return property
	}
	first, second := alternatives[0].(map[string]any), alternatives[1].(map[string]any)
	if first["type"] == "integer" {
		return first
	}
	pattern := strings.Trim(first["pattern"].(string), "^$")
	return map[string]any{"type": "string", "enum": append([]any{pattern}, second["enum"].([]any)...)}
}

func list(words []string) (all []any) {
	for _, w := range words {
		all = append(all, w)
	}
	return all
}
