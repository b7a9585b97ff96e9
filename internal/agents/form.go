package agents

import _ "embed"

// FormSchema is the JSON Schema of agent files, by which editors complete and check them. It is no
// more strict than Load and knows every key, but Load knows more.
//
//go:embed agent.schema.json
var FormSchema []byte
