package console

import (
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/store/operate"
)

// snippet is a program that sends a message and shows the stream.
type snippet struct{ Name, Code string }

// maxSnippet is how large a message a snippet has, in bytes. A larger one is too much to be read.
const maxSnippet = 16 << 10

// snippetsOf returns programs that send a message to an agent. open says that the server has no sign-in.
func snippetsOf(server, agent string, open bool, parts []a2a.Part) []snippet {
	message := requestOf(parts)
	if len(message) > maxSnippet {
		return nil
	}
	address := agentAddress(server, agent)
	return []snippet{
		{"curl", curlOf(address, open, message)},
		{"Python", pythonOf(address, open, message)},
		{"TypeScript", typescriptOf(address, open, message)},
	}
}

// requestOf returns a streaming request of A2A 1.0 over JSON-RPC.
func requestOf(parts []a2a.Part) string {
	out := []byte(`{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":{"message":` +
		`{"messageId":"MESSAGE-ID","role":"ROLE_USER","parts":[`)
	for i := range parts {
		p := &parts[i]
		if i > 0 {
			out = append(out, ',')
		}
		switch p.Kind {
		case a2a.PartText:
			out = rawjson.AppendString(append(out, `{"text":`...), p.Text)
		case a2a.PartData:
			out = append(append(out, `{"data":`...), p.Data...)
		case a2a.PartURL:
			out = rawjson.AppendString(append(out, `{"url":`...), p.Text)
		case a2a.PartFile:
			out = rawjson.AppendString(append(out, `{"raw":`...), p.Text)
		}
		if p.Filename != "" {
			out = rawjson.AppendString(append(out, `,"filename":`...), p.Filename)
		}
		if p.MediaType != "" {
			out = rawjson.AppendString(append(out, `,"mediaType":`...), p.MediaType)
		}
		out = append(out, '}')
	}
	return string(append(out, `]}}}`...))
}

const newID = "MESSAGE-ID"

// quoteShell quotes a text for a POSIX shell: nothing in it is expanded.
func quoteShell(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func curlOf(address string, open bool, message string) string {
	key := ""
	if !open {
		key = "  -H \"Authorization: Bearer $A2AD_API_KEY\" \\\n"
	}
	before, after, _ := strings.Cut(message, newID)
	// Not every machine has uuidgen.
	return "curl -N " + quoteShell(address) + " \\\n" + key +
		"  -H 'Content-Type: application/json' -H 'A2A-Version: 1.0' \\\n" +
		"  -d " + quoteShell(before) + "\"message-$(date +%s)-$$\"" + quoteShell(after) + "\n"
}

// resumeSnippet returns a program that continues the stream of a task after a frame.
func resumeSnippet(server string, t *operate.TaskRow, open bool, lastID string) snippet {
	key := ""
	if !open {
		key = "  -H \"Authorization: Bearer $A2AD_API_KEY\" \\\n"
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"SubscribeToTask","params":{"id":"` + t.ID.String() + `"}}`
	return snippet{"curl, to resume", "curl -N " + quoteShell(agentAddress(server, t.Agent)) + " \\\n" + key +
		"  -H 'Content-Type: application/json' -H 'A2A-Version: 1.0' \\\n" +
		"  -H 'Last-Event-ID: " + lastID + "' \\\n  -d " + quoteShell(body) + "\n"}
}

func agentAddress(server, agent string) string {
	return strings.TrimSuffix(server, "/") + "/agents/" + agent
}

// quoteCode quotes a text for Python and TypeScript: a JSON string is one in both, except for characters that end a
// line in older versions of JavaScript.
func quoteCode(text string) string {
	quoted := string(rawjson.AppendString(nil, text))
	return strings.NewReplacer("\u2028", `\u2028`, "\u2029", `\u2029`).Replace(quoted)
}

func pythonOf(address string, open bool, message string) string {
	headers := `{"Content-Type": "application/json", "A2A-Version": "1.0"}`
	imports := "import json\nimport urllib.request\nimport uuid\n"
	if !open {
		imports = "import json\nimport os\nimport urllib.request\nimport uuid\n"
		headers = "{\n    \"Content-Type\": \"application/json\",\n    \"A2A-Version\": \"1.0\",\n" +
			"    \"Authorization\": \"Bearer \" + os.environ[\"A2AD_API_KEY\"],\n}"
	}
	return imports + "\nbody = json.loads(" + quoteCode(message) + ")\n" +
		"body[\"params\"][\"message\"][\"messageId\"] = str(uuid.uuid4())\n" +
		"headers = " + headers + "\n" +
		"request = urllib.request.Request(" + quoteCode(address) + ", json.dumps(body).encode(), headers)\n" +
		"with urllib.request.urlopen(request) as stream:\n" +
		"    for line in stream:\n" +
		"        if line.startswith(b\"data:\"):\n" +
		"            print(line[5:].decode().strip())\n"
}

func typescriptOf(address string, open bool, message string) string {
	key := ""
	if !open {
		key = "    Authorization: `Bearer ${process.env.A2AD_API_KEY}`,\n"
	}
	return "const body = JSON.parse(" + quoteCode(message) + ");\n" +
		"body.params.message.messageId = crypto.randomUUID();\n" +
		"const answer = await fetch(" + quoteCode(address) + ", {\n" +
		"  method: \"POST\",\n" +
		"  headers: {\n    \"Content-Type\": \"application/json\",\n    \"A2A-Version\": \"1.0\",\n" + key + "  },\n" +
		"  body: JSON.stringify(body),\n});\n" +
		"if (!answer.body) throw new Error(answer.statusText);\n" +
		"let rest = \"\";\n" +
		"for await (const chunk of answer.body.pipeThrough(new TextDecoderStream())) {\n" +
		"  const lines = (rest + chunk).split(\"\\n\");\n" +
		"  rest = lines.pop() ?? \"\";\n" +
		"  for (const line of lines) {\n" +
		"    if (line.startsWith(\"data:\")) console.log(line.slice(5).trim());\n" +
		"  }\n}\n"
}
