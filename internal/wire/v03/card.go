package v03

import (
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// AppendCard appends an AgentCard. The first interface of version 0.3 is the main one;
// a card without any has an empty url, and should not be served.
func (Codec) AppendCard(dst []byte, c *a2a.Card) []byte {
	dst = append(dst, `{"protocolVersion":"0.3.0"`...)
	dst = rawjson.AppendString(append(dst, `,"name":`...), c.Name)
	dst = rawjson.AppendString(append(dst, `,"description":`...), c.Description)
	dst = appendInterfaces(dst, c.Interfaces)
	dst = rawjson.AppendString(append(dst, `,"version":`...), c.Version)
	if c.Provider != nil {
		dst = rawjson.AppendString(append(dst, `,"provider":{"organization":`...), c.Provider.Organization)
		dst = append(rawjson.AppendString(append(dst, `,"url":`...), c.Provider.URL), '}')
	}
	if c.IconURL != "" {
		dst = rawjson.AppendString(append(dst, `,"iconUrl":`...), c.IconURL)
	}
	if c.DocumentationURL != "" {
		dst = rawjson.AppendString(append(dst, `,"documentationUrl":`...), c.DocumentationURL)
	}
	dst = appendCapabilities(dst, c)
	dst = appendSecurity(dst, c.Security)
	dst = appendList(append(dst, `,"defaultInputModes":`...), c.InputModes)
	dst = appendList(append(dst, `,"defaultOutputModes":`...), c.OutputModes)
	dst = append(dst, `,"skills":[`...)
	for i := range c.Skills {
		dst = appendSkill(appendComma(dst, i), &c.Skills[i])
	}
	dst = strconv.AppendBool(append(dst, `],"supportsAuthenticatedExtendedCard":`...), c.ExtendedCard)
	return append(dst, '}')
}

// appendInterfaces appends url, preferredTransport and additionalInterfaces. The last
// lists the main interface too, as the specification recommends.
func appendInterfaces(dst []byte, all []a2a.Interface) []byte {
	var mine []a2a.Interface
	for _, i := range all {
		if i.Version == "0.3" {
			mine = append(mine, i)
		}
	}
	if len(mine) == 0 {
		return append(dst, `,"url":""`...)
	}
	dst = rawjson.AppendString(append(dst, `,"url":`...), mine[0].URL)
	dst = rawjson.AppendString(append(dst, `,"preferredTransport":`...), mine[0].Binding)
	dst = append(dst, `,"additionalInterfaces":[`...)
	for n, i := range mine {
		dst = rawjson.AppendString(append(appendComma(dst, n), `{"url":`...), i.URL)
		dst = append(rawjson.AppendString(append(dst, `,"transport":`...), i.Binding), '}')
	}
	return append(dst, ']')
}

func appendCapabilities(dst []byte, c *a2a.Card) []byte {
	dst = strconv.AppendBool(append(dst, `,"capabilities":{"streaming":`...), c.Streaming)
	dst = strconv.AppendBool(append(dst, `,"pushNotifications":`...), c.Push)
	dst = append(dst, `,"stateTransitionHistory":false`...)
	if len(c.Extensions) > 0 {
		dst = append(dst, `,"extensions":[`...)
		for i := range c.Extensions {
			dst = appendExtension(appendComma(dst, i), &c.Extensions[i])
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

func appendExtension(dst []byte, e *a2a.Extension) []byte {
	dst = rawjson.AppendString(append(dst, `{"uri":`...), e.URI)
	if e.Description != "" {
		dst = rawjson.AppendString(append(dst, `,"description":`...), e.Description)
	}
	dst = strconv.AppendBool(append(dst, `,"required":`...), e.Required)
	dst = appendRaw(dst, `,"params":`, e.Params)
	return append(dst, '}')
}

// appendSecurity appends securitySchemes and security: any one scheme is enough.
func appendSecurity(dst []byte, schemes []a2a.SecurityScheme) []byte {
	if len(schemes) == 0 {
		return dst
	}
	dst = append(dst, `,"securitySchemes":{`...)
	for i := range schemes {
		dst = rawjson.AppendString(appendComma(dst, i), schemes[i].Name)
		dst = appendScheme(append(dst, ':'), &schemes[i])
	}
	dst = append(dst, `},"security":[`...)
	for i := range schemes {
		dst = rawjson.AppendString(append(appendComma(dst, i), '{'), schemes[i].Name)
		dst = append(dst, `:[]}`...)
	}
	return append(dst, ']')
}

func appendScheme(dst []byte, s *a2a.SecurityScheme) []byte {
	switch s.Kind {
	case a2a.SecurityAPIKey:
		dst = rawjson.AppendString(append(dst, `{"type":"apiKey","in":"header","name":`...), s.Header)
	case a2a.SecurityBearer:
		dst = append(dst, `{"type":"http","scheme":"bearer"`...)
		if s.Format != "" {
			dst = rawjson.AppendString(append(dst, `,"bearerFormat":`...), s.Format)
		}
	case a2a.SecurityOIDC:
		dst = rawjson.AppendString(append(dst, `{"type":"openIdConnect","openIdConnectUrl":`...), s.URL)
	default:
		dst = append(dst, `{"type":"mutualTLS"`...)
	}
	if s.Description != "" {
		dst = rawjson.AppendString(append(dst, `,"description":`...), s.Description)
	}
	return append(dst, '}')
}

// appendSkill appends an AgentSkill. Tags are required and 1.0 wants at least one, so a
// skill without any has its id for a tag.
func appendSkill(dst []byte, s *a2a.Skill) []byte {
	dst = rawjson.AppendString(append(dst, `{"id":`...), s.ID)
	dst = rawjson.AppendString(append(dst, `,"name":`...), s.Name)
	dst = rawjson.AppendString(append(dst, `,"description":`...), s.Description)
	tags := s.Tags
	if len(tags) == 0 {
		tags = []string{s.ID}
	}
	dst = appendStrings(dst, `,"tags":`, tags)
	dst = appendStrings(dst, `,"examples":`, s.Examples)
	dst = appendStrings(dst, `,"inputModes":`, s.InputModes)
	dst = appendStrings(dst, `,"outputModes":`, s.OutputModes)
	return append(dst, '}')
}
