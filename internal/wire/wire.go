// Package wire says what a generation of the A2A protocol is to the rest of the
// server: a codec, bytes to domain values and back.
//
// Codecs are pure functions. They decide nothing about tasks; where generations ask
// for different behaviour the codec says so in the operation it decodes.
package wire

import (
	"cmp"
	"net/url"

	"github.com/a2ad/a2ad/internal/a2a"
)

// Codec is one generation. All methods are safe for concurrent use. The Append
// methods append one JSON value to dst and return the extended slice; they never fail.
type Codec interface {
	// Version is "0.3" or "1.0".
	Version() string

	// Form says which of the forms of a stream's items AppendEvent writes: what one codec has
	// written serves every other of the same form.
	Form() Form

	// Has reports whether method is one of this generation, by its name on the wire.
	Has(method string) bool

	// Tenant returns the agent that the params of a JSON-RPC request name, or "". They are
	// as for Decode, which also says whether they are well-formed.
	Tenant(params []byte) string

	// Decode reads the params of a JSON-RPC request. method is the name on the wire;
	// params is one trimmed value of any kind that has passed rawjson.Check, or nil when
	// absent. Free-form values of the operation are parts of params, which must not change
	// as long as the operation is used. The error is an *a2a.Error: CodeMethodNotFound,
	// CodeInvalidParams, CodeContentTypeNotSupported.
	Decode(method string, params []byte) (a2a.Op, error)

	// Paths returns what the generation has for itself in the paths of HTTP+JSON: the first
	// segment of them all, or "", and the one that the extended card is at.
	Paths() (prefix, card string)
	// REST translates a request over HTTP+JSON into the method and the params of the same
	// request over JSON-RPC, and says which codec, of this generation, decodes them and writes
	// the answer. The error is an *a2a.Error with CodeInvalidParams.
	REST(r *Resource) (method string, params []byte, as Codec, err error)

	// AppendTask appends a task as GetTask and CancelTask answer it.
	AppendTask(dst []byte, t *a2a.Task) []byte
	// AppendSent appends the task as SendMessage answers it, or what was replied directly.
	AppendSent(dst []byte, t *a2a.Task) []byte
	// AppendReply appends a direct reply as SendMessage answers it.
	AppendReply(dst []byte, m *a2a.Message) []byte
	// AppendSnapshot appends a task, or what was replied directly, as an item of a stream.
	AppendSnapshot(dst []byte, t *a2a.Task) []byte
	// AppendEvent appends one event of a log as an item of a stream. last says that the
	// stream ends with it.
	AppendEvent(dst []byte, e *a2a.Entry, last bool) []byte
	// AppendPage appends the answer to ListTasks. Tasks carry artifacts only if they were asked for.
	AppendPage(dst []byte, p *a2a.Page, artifacts bool) []byte
	// AppendPushConfig appends one webhook of a task, without its secrets.
	AppendPushConfig(dst []byte, taskID string, c *a2a.PushConfig) []byte
	// AppendPushConfigs appends the answer to ListPushConfigs.
	AppendPushConfigs(dst []byte, taskID string, p *a2a.PushPage) []byte
	// AppendDeleted appends the answer to DeletePushConfig.
	AppendDeleted(dst []byte) []byte
	// AppendError appends the error member of a JSON-RPC response. requestID is put
	// into its data when the error is CodeInternal and the id is not empty.
	AppendError(dst []byte, err *a2a.Error, requestID string) []byte
	// Status is the HTTP status that goes with an error over HTTP+JSON.
	Status(code a2a.ErrorCode) int
	// AppendStatus appends the body of an error over HTTP+JSON, which goes with an HTTP status.
	// requestID is as for AppendError.
	AppendStatus(dst []byte, status int, err *a2a.Error, requestID string) []byte
	// SignsCards reports whether the version says what of a card is signed.
	SignsCards() bool
	// AppendCard appends the card of an agent.
	AppendCard(dst []byte, c *a2a.Card) []byte
}

// Form is how the items of a stream are written.
type Form uint8

// The forms there are.
const (
	FormV03      Form = iota // bare objects with a kind
	FormV03REST              // the same, each wrapped in a member that names it
	FormV03Proto             // ProtoJSON of a2a.v1
	FormV03Parts             // the same by its later definitions
	FormV1
	Forms = iota // how many there are
)

// Action is an operation as the HTTP+JSON binding names it: by path and HTTP method.
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

// Resource is a request over HTTP+JSON, taken apart. TaskID and ConfigID are those of the
// path, without escapes, and valid UTF-8.
type Resource struct {
	Action   Action
	TaskID   string
	ConfigID string
	Query    url.Values
	Body     []byte // one trimmed JSON value that has passed rawjson.Check; nil without a body
}

// Limits bound what a codec takes from a client. Zero means the default.
type Limits struct {
	Parts     int // per message
	PartBytes int // per part
	IDBytes   int // message ids, context ids and the like
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
