package encode

import (
	"maps"
	"slices"
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// Card appends a comma and the members of an AgentCard that all generations write alike.
// requirements writes a comma and the security requirements of a skill.
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

// Capabilities appends the members of "capabilities" that all generations have. The caller appends
// what follows.
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

// Flag appends key and value, unless the value is false and the card is sparse.
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

// skill appends an AgentSkill without its closing brace. Tags are required and 1.0 wants at least
// one, so a skill without tags gets its id as one.
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

// Security appends the member "securitySchemes", whose values scheme writes, and then one
// requirement for each scheme, because any one of them is enough. A card without schemes has
// neither.
func Security(dst []byte, schemes []a2a.SecurityScheme, scheme func([]byte, *a2a.SecurityScheme) []byte,
	requirements func([]byte, []a2a.Requirement) []byte) []byte {
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

// RequirementForm is how a generation writes a list of security requirements.
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

// OAuth2 appends the members of an OAuth 2.0 scheme. pkce says whether the generation has that
// member.
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

// Union appends an object with the members of two objects. If both have a member the first one
// counts, unless both values are objects, which are united too.
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
