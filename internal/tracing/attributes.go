package tracing

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/a2ad/a2ad/internal/a2a"
)

// Attribute is a name and a value of a span. All names are in this file. There is no released
// convention for A2A, and these follow the proposed one; gen_ai is OpenTelemetry's convention for models and agents.
type Attribute = attribute.KeyValue

const (
	methodName      = attribute.Key("a2a.method.name")
	protocolVersion = attribute.Key("a2a.protocol.version")
	protocolBinding = attribute.Key("a2a.protocol.binding")
	taskID          = attribute.Key("a2a.task.id")
	taskState       = attribute.Key("a2a.task.state")
	contextID       = attribute.Key("gen_ai.conversation.id")
	agentName       = attribute.Key("gen_ai.agent.name")
	operationName   = attribute.Key("gen_ai.operation.name")
	responseModel   = attribute.Key("gen_ai.response.model")
	inputTokens     = attribute.Key("gen_ai.usage.input_tokens")
	outputTokens    = attribute.Key("gen_ai.usage.output_tokens")
	cachedTokens    = attribute.Key("gen_ai.usage.cache_read.input_tokens")
	reasoningTokens = attribute.Key("gen_ai.usage.reasoning.output_tokens")
	statusCode      = attribute.Key("http.response.status_code")
	rpcStatus       = attribute.Key("rpc.grpc.status")
	httpRoute       = attribute.Key("http.route")
	attempt         = attribute.Key("a2ad.attempt")
	epoch           = attribute.Key("a2ad.epoch")
	outcome         = attribute.Key("a2ad.outcome")
	pushID          = attribute.Key("a2ad.push.id")
	pushSeq         = attribute.Key("a2ad.push.seq")
)

// Method is the operation of a request, by its name in A2A 1.0.
func Method(name string) Attribute { return methodName.String(name) }

// Version is the protocol version of a client.
func Version(v string) Attribute { return protocolVersion.String(v) }

// Binding is the binding of a request: JSONRPC, HTTP+JSON or GRPC.
func Binding(name string) Attribute { return protocolBinding.String(name) }

// Task is the id of a task.
func Task(id string) Attribute { return taskID.String(id) }

// State is the new state of a task.
func State(s a2a.State) Attribute { return taskState.String(s.String()) }

// Context is the id of a task's context.
func Context(id string) Attribute { return contextID.String(id) }

// Agent is the name of a task's agent.
func Agent(name string) Attribute { return agentName.String(name) }

// InvokeAgent says that a span is the work of an agent.
func InvokeAgent() Attribute { return operationName.String("invoke_agent") }

// Usage is what a run has used of models. The conventions have one model for a span, so several are not named.
func Usage(used []a2a.Usage) (attributes []Attribute) {
	if len(used) == 0 {
		return nil
	}
	if len(used) == 1 && used[0].Model != "" {
		attributes = append(attributes, responseModel.String(used[0].Model))
	}
	var input, output, cached, reasoning int64
	for _, u := range used {
		input, output = input+u.Input, output+u.Output
		cached, reasoning = cached+u.Cached, reasoning+u.Reasoning
	}
	return append(attributes, inputTokens.Int64(input), outputTokens.Int64(output),
		cachedTokens.Int64(cached), reasoningTokens.Int64(reasoning))
}

// Status is the status of an HTTP answer.
func Status(code int) Attribute { return statusCode.Int(code) }

// RPCStatus is the status of a gRPC answer.
func RPCStatus(code string) Attribute { return rpcStatus.String(code) }

// Route is the path of a request with placeholders.
func Route(r string) Attribute { return httpRoute.String(r) }

// Attempt is the number of an attempt.
func Attempt(n int) Attribute { return attempt.Int(n) }

// Epoch is the epoch of a lease.
func Epoch(n int64) Attribute { return epoch.Int64(n) }

// Outcome is the outcome of a run or a webhook, as in the log.
func Outcome(word string) Attribute { return outcome.String(word) }

// Push is the internal id of a webhook, as in the log and the audit views.
func Push(id string) Attribute { return pushID.String(id) }

// Seq is the event up to which a webhook reports on the task.
func Seq(n int64) Attribute { return pushSeq.Int64(n) }
