package script

import (
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
)

// byPrefix returns what the conformance kits of a2aproject/a2a-tck expect for a message with this id, and for any
// other id the op that ends the turn in input-required. Branch 0.3.x needs the latter: its tests continue and cancel
// tasks that they did not mark, so none may end by itself. Branch 1.0-dev has the table in
// scenarios/core_operations.feature and reuses ids, also within one task.
//
//	tck-complete-task            completed, with the message "Hello from TCK"
//	tck-delayed-complete         working, a wait, completed with the message "Done after delay"
//	tck-artifact-text            artifact "Generated text content", completed
//	tck-artifact-file            artifact with the file output.txt, completed
//	tck-artifact-file-url        artifact with https://example.com/output.txt, completed
//	tck-artifact-data            artifact {"key":"value","count":42}, completed
//	tck-message-response         the message "Direct message response" instead of a task
//	tck-input-required           input-required
//	tck-reject-task              rejected, with the message "rejected"
//	tck-stream-001               working, artifact "Stream hello from TCK", completed
//	tck-stream-002               completed
//	tck-stream-003               working, artifact "Stream task lifecycle", completed
//	tck-stream-ordering-001      working, artifact "Ordered output", completed
//	tck-stream-artifact-text     working, artifact "Streamed text content", completed
//	tck-stream-artifact-file     working, artifact with the file output.txt, completed
//	tck-stream-artifact-chunked  working, "chunk-1 " and "chunk-2" of one artifact, completed
//	test-resubscribe-message-id  working, a long wait, completed
func (e *Executor) byPrefix(id string) []op {
	for _, row := range e.prefixes {
		if strings.HasPrefix(id, row.prefix) {
			return row.ops
		}
	}
	const text = `Send a data part {"script":[…]}, or anything else for another turn.`
	return []op{{kind: opStatus, state: a2a.StateInputRequired, text: text}}
}

type prefixRow struct {
	prefix string
	ops    []op
}

// prefixes returns the rows in the order in which they are compared: a prefix of another prefix comes after it.
func prefixes(c Config) []prefixRow {
	text := func(s string) a2a.Part { return a2a.Part{Kind: a2a.PartText, Text: s} }
	file := a2a.Part{Kind: a2a.PartFile, Text: "dGNr", MediaType: "text/plain", Filename: "output.txt"}
	link := a2a.Part{
		Kind: a2a.PartURL, Text: "https://example.com/output.txt", MediaType: "text/plain", Filename: "output.txt",
	}
	data := a2a.Part{Kind: a2a.PartData, Data: a2a.Raw(`{"key":"value","count":42}`)}

	says := func(s a2a.State, text string) op { return op{kind: opStatus, state: s, text: text} }
	artifact := func(parts ...a2a.Part) op { return op{kind: opArtifact, id: "output", n: len(parts), parts: parts} }
	working, completed := says(a2a.StateWorking, ""), says(a2a.StateCompleted, "")
	return []prefixRow{
		{"tck-complete-task", []op{says(a2a.StateCompleted, "Hello from TCK")}},
		{"tck-delayed-complete", []op{
			working, {kind: opSleep, wait: c.Delay}, says(a2a.StateCompleted, "Done after delay"),
		}},
		{"tck-artifact-text", []op{artifact(text("Generated text content")), completed}},
		{"tck-artifact-file-url", []op{artifact(link), completed}},
		{"tck-artifact-file", []op{artifact(file), completed}},
		{"tck-artifact-data", []op{artifact(data), completed}},
		{"tck-message-response", []op{{kind: opReply, state: a2a.StateCompleted, text: "Direct message response"}}},
		{"tck-input-required", []op{says(a2a.StateInputRequired, "")}},
		{"tck-reject-task", []op{says(a2a.StateRejected, "rejected")}},
		{"tck-stream-001", []op{working, artifact(text("Stream hello from TCK")), completed}},
		{"tck-stream-002", []op{completed}},
		{"tck-stream-003", []op{working, artifact(text("Stream task lifecycle")), completed}},
		{"tck-stream-ordering-001", []op{working, artifact(text("Ordered output")), completed}},
		{"tck-stream-artifact-text", []op{working, artifact(text("Streamed text content")), completed}},
		{"tck-stream-artifact-file", []op{working, artifact(file), completed}},
		{"tck-stream-artifact-chunked", []op{working, artifact(text("chunk-1 "), text("chunk-2")), completed}},
		{"test-resubscribe-message-id", []op{working, {kind: opSleep, wait: c.Resubscribe}, completed}},
	}
}
