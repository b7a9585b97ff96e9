package encode

import (
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// Card appends the members of an AgentCard that every generation has and writes the same,
// behind a comma.
func Card(dst []byte, c *a2a.Card) []byte {
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
		dst = skill(Comma(dst, i), &c.Skills[i])
	}
	return append(dst, ']')
}

// Capabilities appends the members of "capabilities" that every generation has, up to a
// comma or the brace that the caller appends.
func Capabilities(dst []byte, c *a2a.Card) []byte {
	dst = strconv.AppendBool(append(dst, `,"capabilities":{"streaming":`...), c.Streaming)
	dst = strconv.AppendBool(append(dst, `,"pushNotifications":`...), c.Push)
	if len(c.Extensions) == 0 {
		return dst
	}
	dst = append(dst, `,"extensions":[`...)
	for i := range c.Extensions {
		dst = extension(Comma(dst, i), &c.Extensions[i])
	}
	return append(dst, ']')
}

func extension(dst []byte, e *a2a.Extension) []byte {
	dst = rawjson.AppendString(append(dst, `{"uri":`...), e.URI)
	dst = Text(dst, `,"description":`, e.Description)
	dst = strconv.AppendBool(append(dst, `,"required":`...), e.Required)
	dst = Raw(dst, `,"params":`, e.Params)
	return append(dst, '}')
}

// skill appends an AgentSkill. Tags are required and 1.0 wants at least one, so a skill
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
	dst = Strings(dst, `,"outputModes":`, s.OutputModes)
	return append(dst, '}')
}

// Security appends the member "securitySchemes", whose values scheme writes, and behind
// it a list, under key, of one requirement for each scheme, as any one of them is enough:
// what stands around the name of the scheme and its scopes is up to the generation. A card
// without schemes has neither.
func Security(dst []byte, schemes []a2a.SecurityScheme, scheme func([]byte, *a2a.SecurityScheme) []byte, key, before, between, behind string) []byte {
	if len(schemes) == 0 {
		return dst
	}
	dst = append(dst, `,"securitySchemes":{`...)
	for i := range schemes {
		dst = append(rawjson.AppendString(Comma(dst, i), schemes[i].Name), ':')
		dst = scheme(dst, &schemes[i])
	}
	dst = append(append(dst, `},"`...), key...)
	dst = append(dst, `":[`...)
	for i := range schemes {
		dst = rawjson.AppendString(append(Comma(dst, i), before...), schemes[i].Name)
		dst = append(List(append(dst, between...), schemes[i].Scopes), behind...)
	}
	return append(dst, ']')
}
