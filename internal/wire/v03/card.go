package v03

import (
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/encode"
)

// AppendCard appends an AgentCard. The first interface of version 0.3 is the main one;
// a card without any has an empty url, and should not be served.
func (Codec) AppendCard(dst []byte, c *a2a.Card) []byte {
	dst = append(dst, `{"protocolVersion":"0.3.0"`...)
	dst = appendInterfaces(dst, c.Interfaces)
	dst = encode.Card(dst, c)
	dst = encode.Capabilities(dst, c)
	dst = append(dst, `,"stateTransitionHistory":false}`...)
	dst = encode.Security(dst, c.Security, appendScheme, "security", `{`, `:`, `}`)
	dst = strconv.AppendBool(append(dst, `,"supportsAuthenticatedExtendedCard":`...), c.ExtendedCard)
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
		dst = rawjson.AppendString(append(encode.Comma(dst, n), `{"url":`...), i.URL)
		dst = append(rawjson.AppendString(append(dst, `,"transport":`...), i.Binding), '}')
	}
	return append(dst, ']')
}

func appendScheme(dst []byte, s *a2a.SecurityScheme) []byte {
	switch s.Kind {
	case a2a.SecurityAPIKey:
		dst = rawjson.AppendString(append(dst, `{"type":"apiKey","in":"header","name":`...), s.Header)
	case a2a.SecurityBearer:
		dst = append(dst, `{"type":"http","scheme":"bearer"`...)
		dst = encode.Text(dst, `,"bearerFormat":`, s.Format)
	case a2a.SecurityOIDC:
		dst = rawjson.AppendString(append(dst, `{"type":"openIdConnect","openIdConnectUrl":`...), s.URL)
	default:
		dst = append(dst, `{"type":"mutualTLS"`...)
	}
	dst = encode.Text(dst, `,"description":`, s.Description)
	return append(dst, '}')
}
