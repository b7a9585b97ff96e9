package rpc_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	apb1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/wire/wiretest"
)

// everyWay signs in every caller, and declares every kind of scheme.
type everyWay struct {
	auth.Anonymous
	oauth2 *a2a.OAuth2
}

func (e everyWay) Schemes() []a2a.SecurityScheme {
	scopes := []string{"tasks:read", "tasks:write"}
	return []a2a.SecurityScheme{
		{Name: "apiKey", Kind: a2a.SecurityAPIKey, Header: "X-API-Key", Description: "A key.", Scopes: scopes},
		{Name: "jwt", Kind: a2a.SecurityBearer, Format: "JWT", Description: "A token.", Scopes: scopes},
		{Name: "oidc", Kind: a2a.SecurityOIDC, URL: "https://idp/.well-known/openid-configuration",
			Description: "A token of the identity provider.", Scopes: scopes},
		{Name: "oauth2", Kind: a2a.SecurityOAuth2, OAuth2: e.oauth2, Description: "The same token.", Scopes: scopes},
		{Name: "mtls", Kind: a2a.SecurityMTLS, Description: "A client certificate.", Scopes: scopes},
	}
}

// flows are the flows of OAuth 2.0, each with every field.
func flows() []*a2a.OAuth2 {
	var all []*a2a.OAuth2
	for _, name := range []string{"authorizationCode", "clientCredentials", "deviceCode", "implicit", "password"} {
		all = append(all, &a2a.OAuth2{
			Flow: name, AuthorizationURL: "https://idp/authorize", DeviceURL: "https://idp/device",
			TokenURL: "https://idp/token", RefreshURL: "https://idp/refresh",
			MetadataURL: "https://idp/.well-known/oauth-authorization-server", PKCE: name == "authorizationCode",
			Scopes: map[string]string{"tasks:read": "Read tasks.", "tasks:write": "Make tasks."},
		})
	}
	return all
}

// TestCardsUseEveryField: an agent file and the settings together can set every field of a card, in
// both versions. The exceptions are listed.
func TestCardsUseEveryField(t *testing.T) {
	t.Parallel()
	left, said03 := map[string]bool{}, map[string]bool{}
	fieldsOf((&apb1.AgentCard{}).ProtoReflect().Descriptor(), left)
	for _, flow := range flows() {
		s := newSiteWith(t, func(_ *engine.Config, c *rpc.Config) {
			const security = "      security: [{oidc: [reports], mtls: [reports]}, {apiKey: [reports]}]\n"
			agent := loadAgent(t, strings.NewReplacer("[1, null]", "[1, 2]",
				"      tags: [cooking", security+"      tags: [cooking").Replace(recipes))
			extended := agent.Card
			agent.Extended = &extended
			c.Agents = []*a2a.Agent{agent, {Name: "named", Card: agent.Card}} // gRPC names it by the tenant
			c.Authenticator, c.CardSigner, c.GRPCAddress = everyWay{oauth2: flow}, &turning{}, "grpc.example:443"
		})
		for _, path := range []string{cardPath, "/agents/named" + cardPath} {
			one := send(t, s.Server, http.MethodGet, path, "", http.Header{"A2a-Version": {"1.0"}})
			wiretest.Valid(t, schemas1.Get(t, "AgentCard"), []byte(one.body))
			var card apb1.AgentCard
			if err := protojson.Unmarshal([]byte(one.body), &card); err != nil {
				t.Fatalf("%v: %s", err, one.body)
			}
			said(card.ProtoReflect(), left)
			old := send(t, s.Server, http.MethodGet, path, "", http.Header{"A2a-Version": {"0.3"}})
			wiretest.Valid(t, schemas03.Get(t, "AgentCard"), []byte(old.body))
			var v any
			if err := json.Unmarshal([]byte(old.body), &v); err != nil {
				t.Fatal(err)
			}
			paths("", v, said03)
		}
	}
	delete(left, "AgentCardSignature.header") // all header members are signed
	if len(left) > 0 {
		t.Errorf("no card of 1.0 has %v", slices.Sorted(maps.Keys(left)))
	}
	for _, want := range strings.Fields(
		`protocolVersion name description url preferredTransport additionalInterfaces.url
		additionalInterfaces.transport provider.url provider.organization version documentationUrl
		capabilities.streaming capabilities.pushNotifications capabilities.stateTransitionHistory
		capabilities.extensions.uri capabilities.extensions.description capabilities.extensions.required
		capabilities.extensions.params.a securitySchemes.apiKey.type securitySchemes.apiKey.in
		securitySchemes.apiKey.name securitySchemes.apiKey.description securitySchemes.jwt.type
		securitySchemes.jwt.scheme securitySchemes.jwt.bearerFormat securitySchemes.jwt.description
		securitySchemes.oidc.type securitySchemes.oidc.openIdConnectUrl securitySchemes.oidc.description
		securitySchemes.mtls.type securitySchemes.mtls.description securitySchemes.oauth2.type
		securitySchemes.oauth2.description securitySchemes.oauth2.oauth2MetadataUrl
		securitySchemes.oauth2.flows.authorizationCode.authorizationUrl
		securitySchemes.oauth2.flows.authorizationCode.tokenUrl
		securitySchemes.oauth2.flows.authorizationCode.refreshUrl
		securitySchemes.oauth2.flows.authorizationCode.scopes.tasks:read
		securitySchemes.oauth2.flows.clientCredentials.tokenUrl
		securitySchemes.oauth2.flows.clientCredentials.refreshUrl
		securitySchemes.oauth2.flows.clientCredentials.scopes.tasks:read
		securitySchemes.oauth2.flows.implicit.authorizationUrl
		securitySchemes.oauth2.flows.implicit.refreshUrl
		securitySchemes.oauth2.flows.implicit.scopes.tasks:read
		securitySchemes.oauth2.flows.password.tokenUrl securitySchemes.oauth2.flows.password.refreshUrl
		securitySchemes.oauth2.flows.password.scopes.tasks:read security.apiKey security.oauth2
		security.mtls defaultInputModes defaultOutputModes skills.id skills.name skills.description
		skills.tags skills.examples skills.inputModes skills.outputModes skills.security.oidc
		skills.security.mtls skills.security.apiKey supportsAuthenticatedExtendedCard iconUrl`) {
		if !said03[want] {
			t.Errorf("no card of 0.3 has %s", want)
		}
	}
	// A field that 0.3 lacks does not appear under another name.
	for path := range said03 {
		if strings.Contains(path, "deviceCode") || strings.Contains(path, "pkce") ||
			strings.Contains(path, "signatures") || strings.Contains(path, "device") {
			t.Errorf("a card of 0.3 has %s", path)
		}
	}
}

// fieldsOf adds the fields of a message and of its nested messages, by their JSON names.
func fieldsOf(d protoreflect.MessageDescriptor, all map[string]bool) {
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		name := string(d.Name()) + "." + f.JSONName()
		if all[name] || d.FullName().Parent() == "google.protobuf" {
			continue
		}
		all[name] = true
		if v := f; v.IsMap() {
			v = f.MapValue()
			if v.Message() != nil {
				fieldsOf(v.Message(), all)
			}
		} else if v.Message() != nil {
			fieldsOf(v.Message(), all)
		}
	}
}

// said removes the fields that a message has.
func said(m protoreflect.Message, left map[string]bool) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		delete(left, string(m.Descriptor().Name())+"."+f.JSONName())
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				said(v.Message(), left)
				return true
			})
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				said(v.List().Get(i).Message(), left)
			}
		case f.Message() != nil && !f.IsMap():
			said(v.Message(), left)
		}
		return true
	})
}

// paths adds the names of all members of a value.
func paths(at string, v any, all map[string]bool) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			paths(at, item, all)
		}
	case map[string]any:
		for name, member := range v {
			path := strings.TrimPrefix(at+"."+name, ".")
			all[path] = true
			paths(path, member, all)
		}
	}
}
