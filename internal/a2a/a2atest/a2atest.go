// Package a2atest generates values of the domain for property tests. It generates only values that the server
// can store: ids and names fit their columns, texts have any content, and free-form JSON uses every spelling
// that RFC 8259 allows.
package a2atest

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// ID makes task ids and event uids.
func ID() *rapid.Generator[a2a.ID] {
	return rapid.Custom(func(t *rapid.T) a2a.ID {
		id := a2a.ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		id[0] |= 1 // never the zero id
		return id
	})
}

// Text makes texts with any content, including U+0000.
func Text() *rapid.Generator[string] {
	return rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		"", "hello", "\x00", "a\r\n\ndata: x\n\n", "\u2028\u2029", "\"\\/\b\f\n\r\t", "\u202egnp.exe",
		"😀\U0010FFFF\uFFFE", "\x1b[31m",
		strings.Repeat("e\u0301\u0323", 40), strings.Repeat("0123456789", 30), "\x7f</script>", "ﬀﬁſK", "",
	}))
}

// Name makes ids, names and other strings that go to a column of type text: not
// empty, no U+0000, at most 256 bytes.
func Name() *rapid.Generator[string] {
	return rapid.Map(Text(), func(s string) string {
		s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "0")[:min(len(s), 250)], "")
		if s == "" {
			return "n"
		}
		return s
	})
}

func maybe[T any](t *rapid.T, g *rapid.Generator[T], label string) T {
	if rapid.Bool().Draw(t, "has "+label) {
		return g.Draw(t, label)
	}
	var none T
	return none
}

// Value makes any JSON value.
func Value() *rapid.Generator[a2a.Raw] {
	return rapid.Custom(func(t *rapid.T) a2a.Raw { return appendValue(t, nil, 3) })
}

// Object makes JSON objects with any content, including empty ones.
func Object() *rapid.Generator[a2a.Raw] {
	return rapid.Custom(func(t *rapid.T) a2a.Raw { return appendObject(t, nil, 3) })
}

var (
	spaces  = rapid.SampledFrom([]string{"", "", "", " ", "\n", "\t\r\n  "})
	numbers = rapid.SampledFrom([]string{
		"0", "-0", "1", "1.0", "0.1", "1E+2", "1e400", "1e-400", "9007199254740993", "12345678901234567890", "-1.50",
		"1e131071",
		strings.Repeat("7", 500),
	})
	quoted = rapid.OneOf(
		rapid.Map(Text(), func(s string) string { return string(rawjson.AppendString(nil, s)) }),
		rapid.SampledFrom([]string{`"\u0000"`, `"\/"`, `"\u00e9"`, `"\uD83D\uDE00"`, `"\\u0000"`, `"\""`, `"]}"`}),
	)
)

func appendValue(t *rapid.T, dst []byte, depth int) []byte {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return append(dst, quoted.Draw(t, "string")...)
	case 1:
		return append(dst, numbers.Draw(t, "number")...)
	case 2:
		return strconv.AppendBool(dst, rapid.Bool().Draw(t, "bool"))
	case 3:
		return append(dst, "null"...)
	case 4:
		return appendObject(t, dst, depth)
	}
	dst = append(dst, '[')
	for i := range rapid.IntRange(0, 3).Draw(t, "elements") {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, spaces.Draw(t, "space")...)
		dst = appendValue(t, dst, depth-1)
		dst = append(dst, spaces.Draw(t, "space")...)
	}
	return append(dst, ']')
}

func appendObject(t *rapid.T, dst []byte, depth int) []byte {
	dst = append(append(dst, '{'), spaces.Draw(t, "space")...)
	seen := map[string]bool{}
	for range rapid.IntRange(0, 3).Draw(t, "members") {
		key := quoted.Draw(t, "key")
		name, _ := rawjson.String([]byte(key))
		if seen[name] {
			continue
		}
		if len(seen) > 0 {
			dst = append(append(dst, ','), spaces.Draw(t, "space")...)
		}
		seen[name] = true
		dst = append(append(dst, key...), spaces.Draw(t, "space")...)
		dst = append(append(dst, ':'), spaces.Draw(t, "space")...)
		dst = append(appendValue(t, dst, depth-1), spaces.Draw(t, "space")...)
	}
	return append(dst, '}')
}

// Part makes parts of every kind.
func Part() *rapid.Generator[a2a.Part] {
	return rapid.Custom(func(t *rapid.T) a2a.Part {
		p := a2a.Part{
			Kind:      a2a.PartKind(rapid.IntRange(int(a2a.PartText), int(a2a.PartData)).Draw(t, "kind")),
			MediaType: maybe(t, Name(), "media type"),
			Filename:  maybe(t, Name(), "filename"),
			Metadata:  maybe(t, Object(), "metadata"),
		}
		switch p.Kind {
		case a2a.PartText:
			p.Text = Text().Draw(t, "text")
		case a2a.PartFile:
			p.Text = base64.StdEncoding.EncodeToString(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "bytes"))
		case a2a.PartURL:
			p.Text = "https://" + Name().Draw(t, "url")
		case a2a.PartData:
			p.Data = Value().Draw(t, "data")
		}
		return p
	})
}

// Parts makes lists of one to four parts.
func Parts() *rapid.Generator[[]a2a.Part] { return rapid.SliceOfN(Part(), 1, 4) }

// Message makes messages of both roles.
func Message() *rapid.Generator[a2a.Message] {
	return rapid.Custom(func(t *rapid.T) a2a.Message {
		return a2a.Message{
			ID:               Name().Draw(t, "message id"),
			Role:             rapid.SampledFrom([]a2a.Role{a2a.RoleUser, a2a.RoleAgent}).Draw(t, "role"),
			Parts:            Parts().Draw(t, "parts"),
			ContextID:        maybe(t, Name(), "context id"),
			TaskID:           maybe(t, Name(), "task id"),
			ReferenceTaskIDs: maybe(t, rapid.SliceOfN(Name(), 1, 3), "references"),
			Extensions:       maybe(t, rapid.SliceOfN(Name(), 1, 3), "extensions"),
			Metadata:         maybe(t, Object(), "metadata"),
		}
	})
}

// Artifact makes artifacts, and chunks of them.
func Artifact() *rapid.Generator[a2a.Artifact] {
	return rapid.Custom(func(t *rapid.T) a2a.Artifact {
		return a2a.Artifact{
			ID:          Name().Draw(t, "artifact id"),
			Name:        maybe(t, Name(), "name"),
			Description: maybe(t, Name(), "description"),
			Parts:       Parts().Draw(t, "parts"),
			Extensions:  maybe(t, rapid.SliceOfN(Name(), 1, 3), "extensions"),
			Metadata:    maybe(t, Object(), "metadata"),
		}
	})
}

// State makes the eight states of a task.
func State() *rapid.Generator[a2a.State] {
	return rapid.SampledFrom([]a2a.State{
		a2a.StateSubmitted, a2a.StateWorking, a2a.StateInputRequired, a2a.StateAuthRequired,
		a2a.StateCompleted, a2a.StateFailed, a2a.StateCanceled, a2a.StateRejected,
	})
}

// Time makes times like the database's clock: UTC, whole milliseconds.
func Time() *rapid.Generator[time.Time] {
	return rapid.Map(rapid.Int64Range(0, 4e12), func(ms int64) time.Time { return time.UnixMilli(ms).UTC() })
}

// Status makes statuses with and without a message of the agent.
func Status() *rapid.Generator[a2a.Status] {
	return rapid.Custom(func(t *rapid.T) a2a.Status {
		s := a2a.Status{State: State().Draw(t, "state"), Time: Time().Draw(t, "time")}
		if rapid.Bool().Draw(t, "has message") {
			m := Message().Draw(t, "message")
			m.Role = a2a.RoleAgent
			s.Message = &m
		}
		return s
	})
}

// Task makes snapshots.
func Task() *rapid.Generator[a2a.Task] {
	return rapid.Custom(func(t *rapid.T) a2a.Task {
		return a2a.Task{
			ID:        ID().Draw(t, "task"),
			Agent:     "agent",
			ContextID: Name().Draw(t, "context id"),
			Status:    Status().Draw(t, "status"),
			Artifacts: rapid.SliceOfN(Artifact(), 0, 2).Draw(t, "artifacts"),
			History:   rapid.SliceOfN(Message(), 0, 2).Draw(t, "history"),
			Metadata:  maybe(t, Object(), "metadata"),
			CreatedAt: Time().Draw(t, "created at"),
			LastSeq:   rapid.Int64Range(1, 1<<40).Draw(t, "last seq"),
			LastUID:   ID().Draw(t, "last uid"),
		}
	})
}

// Event makes the three kinds of event that go on the wire.
func Event() *rapid.Generator[a2a.Event] {
	return rapid.Custom(func(t *rapid.T) a2a.Event {
		switch rapid.IntRange(0, 2).Draw(t, "event") {
		case 0:
			return &a2a.StatusUpdate{Status: Status().Draw(t, "status"), Metadata: maybe(t, Object(), "metadata")}
		case 1:
			return &a2a.ArtifactUpdate{
				Artifact: Artifact().Draw(t, "artifact"), Metadata: maybe(t, Object(), "metadata"),
				Append: rapid.Bool().Draw(t, "append"), LastChunk: rapid.Bool().Draw(t, "last chunk"),
			}
		}
		m := Message().Draw(t, "message")
		m.Role = a2a.RoleAgent
		return &m
	})
}

// Entry makes entries of a log.
func Entry() *rapid.Generator[a2a.Entry] {
	return rapid.Custom(func(t *rapid.T) a2a.Entry {
		return a2a.Entry{
			TaskID: ID().Draw(t, "task"), ContextID: Name().Draw(t, "context id"),
			Seq: rapid.Int64Range(1, 1<<40).Draw(t, "seq"),
			UID: ID().Draw(t, "uid"), Time: Time().Draw(t, "time"), Event: Event().Draw(t, "event"),
		}
	})
}

// PushConfig makes webhooks, with secrets.
func PushConfig() *rapid.Generator[a2a.PushConfig] {
	return rapid.Custom(func(t *rapid.T) a2a.PushConfig {
		return a2a.PushConfig{
			ID: maybe(t, Name(), "id"), URL: "https://" + Name().Draw(t, "url"),
			Token:       a2a.Secret(maybe(t, Name(), "token")),
			Schemes:     maybe(t, rapid.SliceOfN(Name(), 1, 3), "schemes"),
			Credentials: a2a.Secret(maybe(t, Name(), "credentials")),
		}
	})
}

func names() *rapid.Generator[[]string] { return rapid.SliceOfN(Name(), 0, 3) }

func skill() *rapid.Generator[a2a.Skill] {
	requirement := rapid.Custom(func(t *rapid.T) a2a.Requirement {
		r := a2a.Requirement{{Name: "scheme0", Scopes: names().Draw(t, "scopes")}}
		if rapid.Bool().Draw(t, "two") {
			r = append(r, a2a.RequiredScheme{Name: "scheme1"})
		}
		return r
	})
	return rapid.Custom(func(t *rapid.T) a2a.Skill {
		return a2a.Skill{
			Security: rapid.SliceOfN(requirement, 0, 2).Draw(t, "security"),
			ID:       Name().Draw(t, "id"), Name: Name().Draw(t, "name"), Description: Text().Draw(t, "description"),
			Tags:     names().Draw(t, "tags"),
			Examples: names().Draw(t, "examples"), InputModes: names().Draw(t, "input modes"),
			OutputModes: names().Draw(t, "output modes"),
		}
	})
}

func interfaceOf(version string) *rapid.Generator[a2a.Interface] {
	return rapid.Custom(func(t *rapid.T) a2a.Interface {
		return a2a.Interface{
			URL: "https://" + Name().Draw(t, "url"), Version: version,
			Binding: rapid.SampledFrom([]string{"JSONRPC", "HTTP+JSON", "GRPC"}).Draw(t, "binding"),
		}
	})
}

func extension() *rapid.Generator[a2a.Extension] {
	return rapid.Custom(func(t *rapid.T) a2a.Extension {
		return a2a.Extension{
			URI: "https://" + Name().Draw(t, "uri"), Description: maybe(t, Text(), "description"),
			Required: rapid.Bool().Draw(t, "required"), Params: maybe(t, Object(), "params"),
		}
	})
}

func oauth2() *rapid.Generator[*a2a.OAuth2] {
	return rapid.Custom(func(t *rapid.T) *a2a.OAuth2 {
		return &a2a.OAuth2{
			Flow: rapid.SampledFrom([]string{"authorizationCode", "clientCredentials", "deviceCode",
				"implicit", "password"}).Draw(t, "flow"),
			AuthorizationURL: Name().Draw(t, "authorization"), DeviceURL: Name().Draw(t, "device"),
			TokenURL: Name().Draw(t, "token"), RefreshURL: maybe(t, Name(), "refresh"),
			MetadataURL: maybe(t, Name(), "metadata"), Scopes: rapid.MapOfN(Name(), Name(), 1, 2).Draw(t, "scopes"),
		}
	})
}

// Card makes cards with at least one interface of each version.
func Card() *rapid.Generator[a2a.Card] {
	return rapid.Custom(func(t *rapid.T) a2a.Card {
		c := a2a.Card{
			Name: Name().Draw(t, "name"), Description: Text().Draw(t, "description"),
			Version:          Name().Draw(t, "version"),
			DocumentationURL: maybe(t, Name(), "documentation"), IconURL: maybe(t, Name(), "icon"),
			Skills:     rapid.SliceOfN(skill(), 0, 2).Draw(t, "skills"),
			InputModes: names().Draw(t, "input modes"), OutputModes: names().Draw(t, "output modes"),
			Interfaces: append(rapid.SliceOfN(interfaceOf("1.0"), 1, 2).Draw(t, "1.0"),
				rapid.SliceOfN(interfaceOf("0.3"), 1, 2).Draw(t, "0.3")...),
			Streaming: rapid.Bool().Draw(t, "streaming"), Push: rapid.Bool().Draw(t, "push"),
			ExtendedCard: rapid.Bool().Draw(t, "extended"),
			Extensions:   rapid.SliceOfN(extension(), 0, 2).Draw(t, "extensions"),
		}
		if rapid.Bool().Draw(t, "has provider") {
			c.Provider = &a2a.Provider{Organization: Name().Draw(t, "organization"), URL: Name().Draw(t, "url")}
		}
		for i := range rapid.IntRange(0, 5).Draw(t, "schemes") {
			c.Security = append(c.Security, a2a.SecurityScheme{
				Name: "scheme" + strconv.Itoa(i), Kind: a2a.SecurityKind(i + 1),
				Description: maybe(t, Text(), "description"),
				Header:      Name().Draw(t, "header"), Format: maybe(t, Name(), "format"), URL: Name().Draw(t, "url"),
				Scopes: names().Draw(t, "scopes"), OAuth2: oauth2().Draw(t, "oauth2"),
			})
		}
		return c
	})
}
