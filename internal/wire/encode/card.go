package encode

import (
	"maps"
	"slices"
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// Card appends the members of an AgentCard that every generation has and writes the same,
// behind a comma.
// requirements writes those of a skill, as a member behind a comma.
func Card(dst []byte, c *a2a.Card, requirements func([]byte, []a2a.Requirement) []byte) []byte {
	dst = rawjson.AppendString(append(dst, `,"name":`...), c.Name)
	dst = rawjson.AppendString(append(dst, `,"description":`...), c.Description)
	dst = rawjson.AppendString(append(dst, `,"version":`...), c.Version)
	if c.Provider != nil {
		dst = rawjson.AppendString(append(dst, `,"provider":{"organization":`...), c.Provider.Organization)
		dst = append(rawjson.AppendString(append(dst, `,"url":`...), c.Provider.URL), '}')
	}
	dst = Text(dst, `,"iconUrl":`, c.IconURL)
	dst = Text(dst, `,"documentationUrl":`, c.DocumentationURL)
	dst = List(append(dst, `,"defaultInputModes":`...), c.InputModes)
	dst = List(append(dst, `,"defaultOutputModes":`...), c.OutputModes)
	dst = append(dst, `,"skills":[`...)
	for i := range c.Skills {
		dst = append(requirements(skill(Comma(dst, i), &c.Skills[i]), c.Skills[i].Security), '}')
	}
	return append(dst, ']')
}

// Capabilities appends the members of "capabilities" that every generation has, up to a
// comma or the brace that the caller appends.
func Capabilities(dst []byte, c *a2a.Card) []byte {
	dst = strconv.AppendBool(append(dst, `,"capabilities":{"streaming":`...), c.Streaming)
	dst = Flag(dst, `,"pushNotifications":`, c.Push, c.Sparse)
	if len(c.Extensions) == 0 {
		return dst
	}
	dst = append(dst, `,"extensions":[`...)
	for i := range c.Extensions {
		dst = extension(Comma(dst, i), &c.Extensions[i], c.Sparse)
	}
	return append(dst, ']')
}

// Flag appends key and value, unless it is false and the card is to be sparse.
func Flag(dst []byte, key string, v, sparse bool) []byte {
	if sparse && !v {
		return dst
	}
	return strconv.AppendBool(append(dst, key...), v)
}

func extension(dst []byte, e *a2a.Extension, sparse bool) []byte {
	dst = rawjson.AppendString(append(dst, `{"uri":`...), e.URI)
	dst = Text(dst, `,"description":`, e.Description)
	dst = Flag(dst, `,"required":`, e.Required, sparse)
	dst = Raw(dst, `,"params":`, e.Params)
	return append(dst, '}')
}

// skill appends an AgentSkill up to its brace. Tags are required and 1.0 wants at least one, so a skill
// without any has its id for a tag.
func skill(dst []byte, s *a2a.Skill) []byte {
	dst = rawjson.AppendString(append(dst, `{"id":`...), s.ID)
	dst = rawjson.AppendString(append(dst, `,"name":`...), s.Name)
	dst = rawjson.AppendString(append(dst, `,"description":`...), s.Description)
	tags := s.Tags
	if len(tags) == 0 {
		tags = []string{s.ID}
	}
	dst = Strings(dst, `,"tags":`, tags)
	dst = Strings(dst, `,"examples":`, s.Examples)
	dst = Strings(dst, `,"inputModes":`, s.InputModes)
	return Strings(dst, `,"outputModes":`, s.OutputModes)
}

// Security appends the member "securitySchemes", whose values scheme writes, and behind it one
// requirement for each scheme, as any one of them is enough. A card without schemes has neither.
func Security(dst []byte, schemes []a2a.SecurityScheme, scheme func([]byte, *a2a.SecurityScheme) []byte, requirements func([]byte, []a2a.Requirement) []byte) []byte {
	if len(schemes) == 0 {
		return dst
	}
	all := make([]a2a.Requirement, len(schemes))
	dst = append(dst, `,"securitySchemes":{`...)
	for i := range schemes {
		dst = append(rawjson.AppendString(Comma(dst, i), schemes[i].Name), ':')
		dst = scheme(dst, &schemes[i])
		all[i] = a2a.Requirement{{Name: schemes[i].Name, Scopes: schemes[i].Scopes}}
	}
	return requirements(append(dst, '}'), all)
}

// RequirementForm is how a version of the protocol writes a list of security requirements.
type RequirementForm struct {
	Key                     string // of the list
	Open, Close             string // around the schemes of one requirement
	ScopesOpen, ScopesClose string // around the scopes of one scheme
}

// Append appends a comma and the list, or nothing if the list is empty.
func (f *RequirementForm) Append(dst []byte, all []a2a.Requirement) []byte {
	if len(all) == 0 {
		return dst
	}
	dst = append(append(append(dst, `,"`...), f.Key...), `":[`...)
	for i, r := range all {
		dst = append(Comma(dst, i), f.Open...)
		for j := range r {
			dst = append(rawjson.AppendString(Comma(dst, j), r[j].Name), f.ScopesOpen...)
			dst = append(List(dst, r[j].Scopes), f.ScopesClose...)
		}
		dst = append(dst, f.Close...)
	}
	return append(dst, ']')
}

// OAuth2 appends the members of a scheme that gets tokens by OAuth 2.0. The switch pkce is for
// generations that have the member.
func OAuth2(dst []byte, o *a2a.OAuth2, pkce bool) []byte {
	dst = append(append(append(dst, `"flows":{"`...), o.Flow...), `":{`...)
	switch o.Flow {
	case "authorizationCode", "implicit":
		dst = append(rawjson.AppendString(append(dst, `"authorizationUrl":`...), o.AuthorizationURL), ',')
	case "deviceCode":
		dst = append(rawjson.AppendString(append(dst, `"deviceAuthorizationUrl":`...), o.DeviceURL), ',')
	}
	if o.Flow != "implicit" {
		dst = append(rawjson.AppendString(append(dst, `"tokenUrl":`...), o.TokenURL), ',')
	}
	if o.RefreshURL != "" {
		dst = append(rawjson.AppendString(append(dst, `"refreshUrl":`...), o.RefreshURL), ',')
	}
	dst = append(dst, `"scopes":{`...)
	for i, name := range slices.Sorted(maps.Keys(o.Scopes)) {
		dst = append(rawjson.AppendString(Comma(dst, i), name), ':')
		dst = rawjson.AppendString(dst, o.Scopes[name])
	}
	dst = append(dst, '}')
	if pkce && o.PKCE {
		dst = append(dst, `,"pkceRequired":true`...)
	}
	dst = append(dst, "}}"...)
	return Text(dst, `,"oauth2MetadataUrl":`, o.MetadataURL)
}

// Union appends an object with the members of two. Where both have one that of the first counts,
// unless both are objects: then it has the members of both.
func Union(dst, first, second []byte) []byte {
	dst = append(dst, '{')
	for key, v := range rawjson.Members(first) {
		dst = append(rawjson.AppendString(dst, string(key)), ':')
		other := rawjson.Get(second, string(key))
		if rawjson.KindOf(v) == rawjson.KindObject && rawjson.KindOf(other) == rawjson.KindObject {
			dst = Union(dst, v, other)
		} else {
			dst = append(dst, v...)
		}
		dst = append(dst, ',')
	}
	for key, v := range rawjson.Members(second) {
		if rawjson.Get(first, string(key)) == nil {
			dst = append(append(rawjson.AppendString(dst, string(key)), ':'), v...)
			dst = append(dst, ',')
		}
	}
	if dst[len(dst)-1] == ',' {
		dst = dst[:len(dst)-1]
	}
	return append(dst, '}')
}
