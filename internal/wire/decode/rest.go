package decode

import (
	"net/url"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire"
)

// Params puts the params of a request together from what HTTP+JSON has in the path, the query
// and the body. The zero value has no members. What is put together is one JSON object that
// passes rawjson.Check, whatever the client sent; that its values are good is for the codec to
// say, which reads it like any other params.
type Params struct {
	object []byte
	names  []string
}

// Bytes returns the object.
func (p *Params) Bytes() []byte {
	if p.object == nil {
		return []byte("{}")
	}
	return append(p.object, '}')
}

func (p *Params) name(name string) {
	if p.object == nil {
		p.object = append(p.object, '{')
	} else {
		p.object = append(p.object, ',')
	}
	p.object = append(rawjson.AppendString(p.object, name), ':')
	p.names = append(p.names, name)
}

// Text adds a string. It must be valid UTF-8.
func (p *Params) Text(name, value string) {
	p.name(name)
	p.object = rawjson.AppendString(p.object, value)
}

// members adds those members of a body that are not there yet, under the names they have.
func (p *Params) members(body []byte) {
	set := len(p.names)
	for key, v := range rawjson.Members(body) {
		if slices.Contains(p.names[:set], string(CamelCase(key))) {
			continue
		}
		p.name(string(key))
		p.object = append(p.object, v...)
	}
}

// Add adds what a request says beside its path: the members of its body, or its query if it has no body. A body of null or
// without members is no body: clients send any of the three where they have nothing to say. It returns false, and adds
// nothing, if the body is another value than an object, which no method takes.
func (p *Params) Add(r *wire.Resource, known func(name string) (as string, kind Kind)) (bool, error) {
	switch {
	case Absent(r.Body), rawjson.Empty(r.Body):
		return true, p.Query(r.Query, known)
	case rawjson.KindOf(r.Body) == rawjson.KindObject:
		p.members(r.Body)
		return true, nil
	}
	return false, nil
}

// Kind is what a parameter of a query is in JSON.
type Kind uint8

// The kinds of parameter. An integer is one that ProtoJSON may write as a string.
const (
	KindText Kind = iota + 1
	KindInteger
	KindBool
	KindEnum
)

// Query adds those parameters of a query that are known, under their names in camelCase; they
// may also be written in snake_case. An empty one is an absent one.
func (p *Params) Query(query url.Values, known func(name string) (as string, kind Kind)) error {
	keys := make([]string, 0, len(query))
	for key := range query {
		keys = append(keys, key)
	}
	slices.Sort(keys) // the same request makes the same params
	for _, key := range keys {
		name, kind := known(string(CamelCase([]byte(key))))
		if kind == 0 {
			continue
		}
		for _, value := range query[key] {
			if value == "" {
				continue
			}
			if slices.Contains(p.names, name) {
				return a2a.InvalidParams(name, "is given twice")
			}
			if !utf8.ValidString(value) {
				return a2a.InvalidParams(name, "must be UTF-8")
			}
			p.value(name, value, kind)
		}
	}
	return nil
}

// value adds a parameter as JSON has it, and as a string where it is none of its kind, which
// the codec will not take.
func (p *Params) value(name, value string, kind Kind) {
	bare := false
	switch kind {
	case KindBool:
		bare = value == "true" || value == "false"
	case KindEnum:
		n, err := strconv.ParseUint(value, 10, 8)
		bare = err == nil && strconv.FormatUint(n, 10) == value
	}
	if !bare {
		p.Text(name, value)
		return
	}
	p.name(name)
	p.object = append(p.object, value...)
}

// ListParameter says what a parameter of a request for a page of tasks is.
func ListParameter(name string) (as string, kind Kind) {
	switch name {
	case "contextId", "pageToken", "statusTimestampAfter":
		return name, KindText
	case "lastUpdatedAfter", "lastUpdatedTime": // what official clients send, and what a2a.v1 calls it
		return "statusTimestampAfter", KindText
	case "pageSize", "historyLength":
		return name, KindInteger
	case "includeArtifacts":
		return name, KindBool
	case "status":
		return name, KindEnum
	}
	return "", 0
}
