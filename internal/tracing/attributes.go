package tracing

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/a2ad/a2ad/internal/a2a"
)

// Attribute is a name and a value of a span. This file has all names: there is no released
// convention for A2A, and these follow what is proposed for one.
type Attribute = attribute.KeyValue

const (
	methodName      = attribute.Key("a2a.method.name")
	protocolVersion = attribute.Key("a2a.protocol.version")
	protocolBinding = attribute.Key("a2a.protocol.binding")
	taskID          = attribute.Key("a2a.task.id")
	taskState       = attribute.Key("a2a.task.state")
	contextID       = attribute.Key("gen_ai.conversation.id")
	agentName       = attribute.Key("gen_ai.agent.name")
	statusCode      = attribute.Key("http.response.status_code")
	rpcStatus       = attribute.Key("rpc.grpc.status")
	httpRoute       = attribute.Key("http.route")
	attempt         = attribute.Key("a2ad.attempt")
	epoch           = attribute.Key("a2ad.epoch")
	outcome         = attribute.Key("a2ad.outcome")
	pushID          = attribute.Key("a2ad.push.id")
	pushSeq         = attribute.Key("a2ad.push.seq")
)

// Method is what a request asks for, by its name in A2A 1.0.
func Method(name string) Attribute { return methodName.String(name) }

// Version is that of the protocol that a client speaks.
func Version(v string) Attribute { return protocolVersion.String(v) }

// Binding is the one a request came over: JSONRPC, HTTP+JSON or GRPC.
func Binding(name string) Attribute { return protocolBinding.String(name) }

// Task is the id of the task that a span is about.
func Task(id string) Attribute { return taskID.String(id) }

// State is the one the task came into.
func State(s a2a.State) Attribute { return taskState.String(s.String()) }

// Context is the id of the task's context.
func Context(id string) Attribute { return contextID.String(id) }

// Agent is the one whose task it is.
func Agent(name string) Attribute { return agentName.String(name) }

// Status is that of an answer over HTTP.
func Status(code int) Attribute { return statusCode.Int(code) }

// RPCStatus is that of an answer over gRPC.
func RPCStatus(code string) Attribute { return rpcStatus.String(code) }

// Route is the path of a request without what is in it.
func Route(r string) Attribute { return httpRoute.String(r) }

// Attempt is the number of a try.
func Attempt(n int) Attribute { return attempt.Int(n) }

// Epoch is that of a lease.
func Epoch(n int64) Attribute { return epoch.Int64(n) }

// Outcome is what became of a run or of a webhook, in the word of the log.
func Outcome(word string) Attribute { return outcome.String(word) }

// Push is the internal id of a webhook, as the log and the ledger have it.
func Push(id string) Attribute { return pushID.String(id) }

// Seq is the event up to which a webhook tells of the task.
func Seq(n int64) Attribute { return pushSeq.Int64(n) }
