package v03_test

import (
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/v03"
	"github.com/a2ad/a2ad/internal/wire/wiretest"
)

func TestAppendCard(t *testing.T) {
	t.Parallel()
	card := &a2a.Card{
		Name: "n", Description: "d", Version: "1.2.3", DocumentationURL: "https://doc", IconURL: "https://icon",
		Provider: &a2a.Provider{Organization: "o", URL: "https://o"},
		Skills: []a2a.Skill{
			{ID: "s", Name: "S", Description: "does", Tags: []string{"t"}, Examples: []string{"e"},
				InputModes: []string{"i"}, OutputModes: []string{"o"}},
			{ID: "untagged", Name: "U", Description: ""},
		},
		InputModes: []string{"text/plain"}, OutputModes: []string{"text/plain", "application/json"},
		Interfaces: []a2a.Interface{
			{URL: "https://h/1", Binding: "JSONRPC", Version: "1.0"},
			{URL: "https://h/", Binding: "JSONRPC", Version: "0.3"},
			{URL: "https://h/rest", Binding: "HTTP+JSON", Version: "0.3"},
		},
		Streaming: true, ExtendedCard: true,
		Security: []a2a.SecurityScheme{
			{Name: "key", Kind: a2a.SecurityAPIKey, Header: "X-API-Key", Description: "k"},
			{Name: "bearer", Kind: a2a.SecurityBearer, Format: "JWT"},
			{Name: "oidc", Kind: a2a.SecurityOIDC, URL: "https://i/.well-known/openid-configuration",
				Scopes: []string{"a", "b"}}, {Name: "mtls", Kind: a2a.SecurityMTLS},
		},
		Extensions: []a2a.Extension{{URI: "https://x", Description: "x", Params: a2a.Raw(`{"p":1}`)},
			{URI: "https://y", Required: true}},
	}
	got := codec.AppendCard(nil, card)
	const want = `{"protocolVersion":"0.3.0","url":"https://h/","preferredTransport":"JSONRPC",` +
		`"additionalInterfaces":[{"url":"https://h/","transport":"JSONRPC"},` +
		`{"url":"https://h/rest","transport":"HTTP+JSON"}],"name":"n","description":"d","version":"1.2.3",` +
		`"provider":{"organization":"o","url":"https://o"},"iconUrl":"https://icon","documentationUrl":"https://doc",` +
		`"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain","application/json"],` +
		`"skills":[{"id":"s","name":"S","description":"does","tags":["t"],"examples":["e"],"inputModes":["i"],` +
		`"outputModes":["o"]},` +
		`{"id":"untagged","name":"U","description":"","tags":["untagged"]}],` +
		`"capabilities":{"streaming":true,"pushNotifications":false,"extensions":[` +
		`{"uri":"https://x","description":"x","required":false,"params":{"p":1}},` +
		`{"uri":"https://y","required":true}],"stateTransitionHistory":false},` +
		`"securitySchemes":{"key":{"type":"apiKey","in":"header","name":"X-API-Key","description":"k"},` +
		`"bearer":{"type":"http","scheme":"bearer","bearerFormat":"JWT"},` +
		`"oidc":{"type":"openIdConnect","openIdConnectUrl":"https://i/.well-known/openid-configuration"},` +
		`"mtls":{"type":"mutualTLS"}},` +
		`"security":[{"key":[]},{"bearer":[]},{"oidc":["a","b"]},{"mtls":[]}],"supportsAuthenticatedExtendedCard":true}`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	wiretest.Valid(t, schema(t, "AgentCard"), got)
	wiretest.Valid(t, schema(t, "AgentCard"), v03.Codec{}.AppendCard(nil, &a2a.Card{}))
}

// The card also has the members that workshop material expects, besides those of 0.3.
func TestWorkshopCard(t *testing.T) {
	t.Parallel()
	card := &a2a.Card{
		Name: "n", Version: "1.0.0", Provider: &a2a.Provider{Organization: "o", URL: "https://o"},
		Skills: []a2a.Skill{{ID: "s", Tags: []string{"t"}, InputSchema: a2a.Raw(`{"type":"object"}`),
			OutputSchema: a2a.Raw(`true`)}, {ID: "u"}},
		Interfaces: []a2a.Interface{{URL: "https://h/", Binding: "JSONRPC", Version: "0.3"}},
		Security: []a2a.SecurityScheme{{Name: "mtls", Kind: a2a.SecurityMTLS},
			{Name: "key", Kind: a2a.SecurityAPIKey, Header: "X-API-Key"}},
	}
	plain := v03.Codec{}.AppendCard(nil, card)
	got := v03.Codec{WorkshopCard: true}.AppendCard(nil, card)
	wiretest.Valid(t, schema(t, "AgentCard"), got)
	for part, want := range map[string][2]string{
		"authentication": {"", `{"type":"api_key","scheme":"X-API-Key"}`},
		"capabilities": {`{"streaming":false,"pushNotifications":false,"stateTransitionHistory":false}`,
			`{"stateManagement":true,"streaming":false,"pushNotifications":false,"stateTransitionHistory":false}`},
		"provider": {`{"organization":"o","url":"https://o"}`,
			`{"name":"o","organization":"o","url":"https://o"}`},
		"skills": {
			`[{"id":"s","name":"","description":"","tags":["t"]},{"id":"u","name":"","description":"","tags":["u"]}]`,
			`[{"id":"s","name":"","description":"","tags":["t"],"inputSchema":{"type":"object"},"outputSchema":true},` +
				`{"id":"u","name":"","description":"","tags":["u"]}]`,
		},
		"url": {`"https://h/"`, `"https://h/"`},
	} {
		if p, g := string(rawjson.Get(plain, part)), string(rawjson.Get(got, part)); p != want[0] || g != want[1] {
			t.Errorf("%s: %s, and with the switch %s, want %s and %s", part, p, g, want[0], want[1])
		}
	}
	if bare := (v03.Codec{WorkshopCard: true}).AppendCard(nil,
		&a2a.Card{}); string(rawjson.Get(bare, "authentication")) != `{"type":"none"}` {
		t.Errorf("without schemes: %s", bare)
	}
}
