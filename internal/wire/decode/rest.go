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

// Params builds the params of a request over HTTP+JSON from its path, query and body. The zero
// value has no members. The result is one JSON object that passes rawjson.Check, whatever the
// client sent. The codec checks its values as it checks any params.
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

// members adds those members of a body that are not there yet.
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

// Add adds the members of the body, or of the query if there is no body. A body that is null or has
// no members counts as none: clients send any of the three where they have nothing to say. Add
// returns false and adds nothing if the body is no object, which no method accepts.
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

// Kind is the JSON type of a query parameter.
type Kind uint8

// The kinds of parameters. ProtoJSON may write an integer as a string.
const (
	KindText Kind = iota + 1
	KindInteger
	KindBool
	KindEnum
)

// Query adds the known parameters of a query by their names in camelCase, which may be written in
// snake_case. An empty parameter counts as absent.
func (p *Params) Query(query url.Values, known func(name string) (as string, kind Kind)) error {
	keys := make([]string, 0, len(query))
	for key := range query {
		keys = append(keys, key)
	}
	slices.Sort(keys) // equal requests get equal params
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

// value adds a parameter in its JSON type. If it is not valid in that type it is added as a string,
// which the codec refuses.
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

// ListParameter returns the name and the type of a parameter of a request for a page of tasks.
func ListParameter(name string) (as string, kind Kind) {
	switch name {
	case "contextId", "pageToken", "statusTimestampAfter":
		return name, KindText
	case "lastUpdatedAfter", "lastUpdatedTime": // what official clients send, and its name in a2a.v1
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
