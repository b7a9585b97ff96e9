package v03

import (
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/encode"
)

// AppendCard appends an AgentCard. The first interface of version 0.3 is the main one. A card
// without such an interface has an empty url, and should not be served.
func (k Codec) AppendCard(dst []byte, c *a2a.Card) []byte {
	if k.WorkshopCard {
		plain := k
		plain.WorkshopCard = false
		body := plain.AppendCard(nil, c)
		return encode.Union(dst, appendWorkshop(nil, c, body), body)
	}
	dst = append(dst, `{"protocolVersion":"0.3.0"`...)
	dst = appendInterfaces(dst, c.Interfaces)
	dst = encode.Card(dst, c, appendRequirements)
	dst = encode.Capabilities(dst, c)
	dst = append(dst, `,"stateTransitionHistory":false}`...)
	dst = encode.Security(dst, c.Security, appendScheme, appendRequirements)
	dst = strconv.AppendBool(append(dst, `,"supportsAuthenticatedExtendedCard":`...), c.ExtendedCard)
	return append(dst, '}')
}

// appendInterfaces appends url, preferredTransport and additionalInterfaces. The last one includes
// the main interface too, as the specification recommends.
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
		dst = rawjson.AppendString(append(encode.Comma(dst, n), `{"url":`...), i.URL)
		dst = rawjson.AppendString(append(dst, `,"transport":`...), i.Binding)
		dst = append(encode.Text(dst, `,"tenant":`, i.Tenant), '}')
	}
	return append(dst, ']')
}

func appendRequirements(dst []byte, all []a2a.Requirement) []byte {
	form := encode.RequirementForm{Key: "security", Open: "{", Close: "}", ScopesOpen: ":"}
	return form.Append(dst, all)
}

// appendWorkshop appends members that workshop material expects and 0.3 does not define (L-15 to
// L-18 in docs/reference/protocol.md). The schema of 0.3 allows members of any name.
func appendWorkshop(dst []byte, c *a2a.Card, body []byte) []byte {
	dst = append(dst, `{"capabilities":{"stateManagement":true},"authentication":{"type":`...)
	switch kind, name := firstScheme(c.Security); kind {
	case a2a.SecurityBearer:
		dst = append(dst, `"bearer","scheme":"Bearer"`...)
	case a2a.SecurityAPIKey:
		dst = rawjson.AppendString(append(dst, `"api_key","scheme":`...), name)
	case a2a.SecurityOIDC, a2a.SecurityOAuth2:
		dst = append(dst, `"oauth2","scheme":"Bearer"`...)
	default:
		dst = append(dst, `"none"`...)
	}
	dst = append(dst, '}')
	if c.Provider != nil {
		dst = append(rawjson.AppendString(append(dst, `,"provider":{"name":`...), c.Provider.Organization), '}')
	}
	dst = append(dst, `,"skills":[`...)
	n := 0
	for skill := range rawjson.Elements(rawjson.Get(body, "skills")) {
		s := &c.Skills[n]
		schemas := encode.Raw(encode.Raw(nil, `,"inputSchema":`, s.InputSchema), `,"outputSchema":`, s.OutputSchema)
		dst = append(append(encode.Comma(dst, n), skill[:len(skill)-1]...), append(schemas, '}')...)
		n++
	}
	return append(dst, "]}"...)
}

// firstScheme returns the first sign-in scheme for which the workshop material has a word.
func firstScheme(all []a2a.SecurityScheme) (kind a2a.SecurityKind, header string) {
	for _, s := range all {
		if s.Kind != a2a.SecurityMTLS {
			return s.Kind, s.Header
		}
	}
	return 0, ""
}

func appendScheme(dst []byte, s *a2a.SecurityScheme) []byte {
	kind := s.Kind
	if kind == a2a.SecurityOAuth2 && s.OAuth2.Flow == "deviceCode" {
		// 0.3 has no such flow, and its clients do not read a scheme without a flow. So the card only says how
		// to send the token.
		kind = a2a.SecurityBearer
	}
	switch kind {
	case a2a.SecurityAPIKey:
		dst = rawjson.AppendString(append(dst, `{"type":"apiKey","in":"header","name":`...), s.Header)
	case a2a.SecurityBearer:
		dst = append(dst, `{"type":"http","scheme":"bearer"`...)
		dst = encode.Text(dst, `,"bearerFormat":`, s.Format)
	case a2a.SecurityOAuth2:
		dst = encode.OAuth2(append(dst, `{"type":"oauth2",`...), s.OAuth2, false)
	case a2a.SecurityOIDC:
		dst = rawjson.AppendString(append(dst, `{"type":"openIdConnect","openIdConnectUrl":`...), s.URL)
	default:
		dst = append(dst, `{"type":"mutualTLS"`...)
	}
	dst = encode.Text(dst, `,"description":`, s.Description)
	return append(dst, '}')
}

// SignsCards returns false: 0.3 has signatures but does not define what they sign.
func (Codec) SignsCards() bool { return false }
