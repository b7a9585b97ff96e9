package v1

import (
	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/encode"
)

// AppendCard appends an AgentCard, with the interfaces of all versions.
func (Codec) AppendCard(dst []byte, c *a2a.Card) []byte {
	dst = append(dst, `{"supportedInterfaces":[`...)
	for n, i := range c.Interfaces {
		dst = rawjson.AppendString(append(encode.Comma(dst, n), `{"url":`...), i.URL)
		dst = rawjson.AppendString(append(dst, `,"protocolBinding":`...), i.Binding)
		dst = rawjson.AppendString(append(dst, `,"protocolVersion":`...), i.Version)
		dst = append(encode.Text(dst, `,"tenant":`, i.Tenant), '}')
	}
	dst = encode.Card(append(dst, ']'), c, appendRequirements)
	dst = encode.Capabilities(dst, c)
	dst = append(encode.Flag(dst, `,"extendedAgentCard":`, c.ExtendedCard, c.Sparse), '}')
	dst = encode.Security(dst, c.Security, appendScheme, appendRequirements)
	return append(dst, '}')
}

func appendRequirements(dst []byte, all []a2a.Requirement) []byte {
	form := encode.RequirementForm{
		Key: "securityRequirements", Open: `{"schemes":{`, Close: "}}", ScopesOpen: `:{"list":`, ScopesClose: "}",
	}
	return form.Append(dst, all)
}

func appendScheme(dst []byte, s *a2a.SecurityScheme) []byte {
	switch s.Kind {
	case a2a.SecurityAPIKey:
		dst = rawjson.AppendString(append(dst, `{"apiKeySecurityScheme":{"location":"header","name":`...), s.Header)
	case a2a.SecurityBearer:
		dst = append(dst, `{"httpAuthSecurityScheme":{"scheme":"Bearer"`...)
		dst = encode.Text(dst, `,"bearerFormat":`, s.Format)
	case a2a.SecurityOAuth2:
		dst = encode.OAuth2(append(dst, `{"oauth2SecurityScheme":{`...), s.OAuth2, true)
	case a2a.SecurityOIDC:
		dst = rawjson.AppendString(append(dst, `{"openIdConnectSecurityScheme":{"openIdConnectUrl":`...), s.URL)
	default:
		dst = append(encode.Text(append(dst, `{"mtlsSecurityScheme":{`...), `"description":`, s.Description), "}}"...)
		return dst
	}
	dst = encode.Text(dst, `,"description":`, s.Description)
	return append(dst, "}}"...)
}

// SignsCards returns true: 1.0 signs cards as RFC 8785 defines.
func (Codec) SignsCards() bool { return true }
