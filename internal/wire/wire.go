// Package wire defines what a generation of the A2A protocol is to the rest of the server: a codec
// between bytes and domain values.
//
// Codecs are pure functions and decide nothing about tasks. Where generations require different
// behavior, the codec says so in the operation that it decodes.
package wire

import (
	"cmp"
	"net/url"

	"github.com/a2ad/a2ad/internal/a2a"
)

// Codec is one generation. All methods are safe for concurrent use. The Append methods append one
// JSON value to dst and return the extended slice. They never fail.
type Codec interface {
	// Version is "0.3" or "1.0".
	Version() string

	// Form is the form of stream items that AppendEvent writes. Codecs of the same form share
	// encoded items.
	Form() Form

	// Has reports whether the generation has a method, by its name on the wire.
	Has(method string) bool

	// Tenant returns the agent that the params of a JSON-RPC request name, or "". params are as for
	// Decode, which also checks their form.
	Tenant(params []byte) string

	// Decode reads the params of a JSON-RPC request. method is the name on the wire. params is any
	// trimmed value that has passed rawjson.Check, or nil when absent.
	// Free-form values of the operation are parts of params, so params must not change while the
	// operation is used. The error is an *a2a.Error: CodeMethodNotFound, CodeInvalidParams or
	// CodeContentTypeNotSupported.
	Decode(method string, params []byte) (a2a.Op, error)

	// Paths returns the first segment of all HTTP+JSON paths of the generation, or "", and the path
	// segment of the extended card.
	Paths() (prefix, card string)
	// REST translates a request over HTTP+JSON into the method and the params of the same request
	// over JSON-RPC. It also returns the codec of this generation that decodes them and writes the
	// answer. The error is an *a2a.Error with CodeInvalidParams.
	REST(r *Resource) (method string, params []byte, as Codec, err error)

	// AppendTask appends a task as the result of GetTask and CancelTask.
	AppendTask(dst []byte, t *a2a.Task) []byte
	// AppendSent appends a task, or a direct reply, as the result of SendMessage.
	AppendSent(dst []byte, t *a2a.Task) []byte
	// AppendReply appends a direct reply as the result of SendMessage.
	AppendReply(dst []byte, m *a2a.Message) []byte
	// AppendSnapshot appends a task, or a direct reply, as an item of a stream.
	AppendSnapshot(dst []byte, t *a2a.Task) []byte
	// AppendEvent appends one event of a log as an item of a stream. last says that the stream ends
	// with it.
	AppendEvent(dst []byte, e *a2a.Entry, last bool) []byte
	// AppendPage appends the result of ListTasks. Tasks contain artifacts only if these were
	// requested.
	AppendPage(dst []byte, p *a2a.Page, artifacts bool) []byte
	// AppendPushConfig appends one webhook of a task, without its secrets.
	AppendPushConfig(dst []byte, taskID string, c *a2a.PushConfig) []byte
	// AppendPushConfigs appends the answer to ListPushConfigs.
	AppendPushConfigs(dst []byte, taskID string, p *a2a.PushPage) []byte
	// AppendDeleted appends the answer to DeletePushConfig.
	AppendDeleted(dst []byte) []byte
	// AppendError appends the error member of a JSON-RPC response. It adds requestID, if not empty,
	// to the data of a CodeInternal error.
	AppendError(dst []byte, err *a2a.Error, requestID string) []byte
	// Status is the HTTP status of an error over HTTP+JSON.
	Status(code a2a.ErrorCode) int
	// AppendStatus appends the body of an error over HTTP+JSON with an HTTP status. requestID is as
	// for AppendError.
	AppendStatus(dst []byte, status int, err *a2a.Error, requestID string) []byte
	// SignsCards reports whether the version defines what to sign of a card.
	SignsCards() bool
	// AppendCard appends the card of an agent.
	AppendCard(dst []byte, c *a2a.Card) []byte
}

// Form is a form of the items of a stream.
type Form uint8

// The forms.
const (
	FormV03      Form = iota // bare objects with a kind
	FormV03REST              // as FormV03, each wrapped in a member that names its kind
	FormV03Proto             // ProtoJSON of a2a.v1
	FormV03Parts             // ProtoJSON of a2a.v1, with the member names of its later definitions
	FormV1
	Forms = iota // number of forms
)

// Action is an operation of the HTTP+JSON binding: a path and an HTTP method.
type Action uint8

// The actions of the binding, in both generations.
const (
	ActionSend Action = iota + 1
	ActionStream
	ActionGet
	ActionList
	ActionCancel
	ActionSubscribe
	ActionSetPush
	ActionGetPush
	ActionListPushes
	ActionDeletePush
	ActionExtendedCard
)

// Resource is a parsed request over HTTP+JSON. TaskID and ConfigID are from the path, without
// escapes, and valid UTF-8.
type Resource struct {
	Action   Action
	TaskID   string
	ConfigID string
	Query    url.Values
	Body     []byte // one trimmed JSON value that has passed rawjson.Check; nil without a body
}

// Limits limits the input that a codec accepts. Zero means the default.
type Limits struct {
	Parts     int // per message
	PartBytes int // per part
	IDBytes   int // message ids, context ids and others
	URLBytes  int // push URLs
	TokenSize int // push token or credentials
}

// DefaultLimits are those of docs/reference/configuration.md.
var DefaultLimits = Limits{Parts: 100, PartBytes: 1 << 20, IDBytes: 256, URLBytes: 2 << 10, TokenSize: 4 << 10}

// OrDefault returns l with the default for every limit that is zero.
func (l Limits) OrDefault() Limits {
	return Limits{
		Parts:     cmp.Or(l.Parts, DefaultLimits.Parts),
		PartBytes: cmp.Or(l.PartBytes, DefaultLimits.PartBytes),
		IDBytes:   cmp.Or(l.IDBytes, DefaultLimits.IDBytes),
		URLBytes:  cmp.Or(l.URLBytes, DefaultLimits.URLBytes),
		TokenSize: cmp.Or(l.TokenSize, DefaultLimits.TokenSize),
	}
}
