package config

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	v03 "github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
	"github.com/a2ad/a2ad/internal/wire/wiretest"
)

var (
	cards03 = wiretest.SchemasV03("../../internal/wire/v03/testdata/a2a-0.3.0.schema.json")
	cards1  = wiretest.SchemasV1("../../internal/wire/v1/testdata/a2a-1.0.0.schema.json")
)

// TestOAuth2IsInCardsAsItIsSet checks that the card of 1.0 has the setting unchanged, and that of 0.3 all members that
// 0.3 defines.
func TestOAuth2IsInCardsAsItIsSet(t *testing.T) {
	t.Parallel()
	const scopes = `"refreshUrl":"https://h/r","scopes":{"tasks:read":"Read.","x":""}`
	for flow, old := range map[string]string{ // the flow in the card of 0.3; empty: unchanged
		`{"authorizationCode":{"authorizationUrl":"https://h/a","tokenUrl":"https://h/t",` + scopes +
			`,"pkceRequired":true}}`: `{"authorizationCode":{"authorizationUrl":"https://h/a",` +
			`"tokenUrl":"https://h/t",` + scopes + `}}`,
		`{"authorizationCode":{"authorizationUrl":"https://h/a","tokenUrl":"https://h/t","scopes":{}}}`: "",

		`{"clientCredentials":{"tokenUrl":"https://h/t",` + scopes + `}}`: "",

		`{"deviceCode":{"deviceAuthorizationUrl":"https://h/d","tokenUrl":"https://h/t",` + scopes + `}}`: `null`,

		`{"implicit":{"authorizationUrl":"https://h/a",` + scopes + `}}`: "",
		`{"password":{"tokenUrl":"https://h/t",` + scopes + `}}`:         "",
	} {
		if old == "" {
			old = flow
		}
		set := `{"flows":` + flow + `,"oauth2MetadataUrl":"https://h/.well-known/oauth-authorization-server"}`
		var o OAuth2
		if err := o.UnmarshalText([]byte(set)); err != nil {
			t.Errorf("%s: %v", set, err)
			continue
		}
		again, err := o.MarshalText()
		if err != nil {
			t.Error(err)
		}
		sameJSON(t, "the setting as config shows it", string(again), set)
		card := &a2a.Card{
			Skills: []a2a.Skill{{ID: "s"}}, InputModes: []string{"a/b"}, OutputModes: []string{"a/b"},
			Interfaces: []a2a.Interface{{URL: "https://h/", Binding: "JSONRPC", Version: "1.0"}},
			Security: []a2a.SecurityScheme{{Name: "oauth2", Kind: a2a.SecurityOAuth2, OAuth2: o.OAuth2,
				Scopes: []string{"tasks:read"}}},
		}
		one, zero := v1.Codec{}.AppendCard(nil, card), v03.Codec{}.AppendCard(nil, card)
		wiretest.Valid(t, cards1.Get(t, "AgentCard"), one)
		wiretest.Valid(t, cards03.Get(t, "AgentCard"), zero)
		var in struct {
			SecuritySchemes map[string]map[string]json.RawMessage
		}
		if err := json.Unmarshal(one, &in); err != nil {
			t.Fatal(err)
		}
		sameJSON(t, "in 1.0", string(in.SecuritySchemes["oauth2"]["oauth2SecurityScheme"]), set)
		in.SecuritySchemes = nil
		if err := json.Unmarshal(zero, &in); err != nil {
			t.Fatal(err)
		}
		all, err := json.Marshal(in.SecuritySchemes["oauth2"])
		if err != nil {
			t.Fatal(err)
		}
		want := `{"type":"oauth2","flows":` + old +
			`,"oauth2MetadataUrl":"https://h/.well-known/oauth-authorization-server"}`
		if old == "null" { // clients of 0.3 do not know the device flow
			want = `{"type":"http","scheme":"bearer"}`
		}
		sameJSON(t, "in 0.3", string(all), want)
	}
}

func sameJSON(t *testing.T, what, got, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Errorf("%s: %v: %s", what, err, got)
		return
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w, g); diff != "" {
		t.Errorf("%s: -want +got\n%s", what, diff)
	}
}

func TestInvalidOAuth2IsRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, want string }{
		{`{}`, "must have one flow"},
		{`{"flows":{}}`, "must have one flow"},
		{`x`, "not of the form"},
		{
			`{"flows":{"password":{"tokenUrl":"https://h","scopes":{}},` +
				`"implicit":{"authorizationUrl":"https://h","scopes":{}}}}`,
			"must have one flow",
		},
		{`{"flows":{"magic":{"scopes":{}}}}`, "deviceCode"},
		{`{"flows":{"deviceCode":{"tokenUrl":"https://h","scopes":{}}}}`, "deviceAuthorizationUrl"},
		{`{"flows":{"deviceCode":{"deviceAuthorizationUrl":"https://h","scopes":{}}}}`, "deviceAuthorizationUrl"},
		{
			`{"flows":{"clientCredentials":{"deviceAuthorizationUrl":"https://h","tokenUrl":"https://h","scopes":{}}}}`,
			"no others",
		},
		{`{"flows":{"clientCredentials":{"tokenUrl":"https://h"}}}`, "has scopes"},
		{`{"flows":{"clientCredentials":{"tokenUrl":"https://h","scopes":{},"pkceRequired":true}}}`, "no others"},
		{`{"flows":{"deviceCode":{"deviceAuthorizationUrl":"http://h","tokenUrl":"https://h","scopes":{}}}}`, "https"},
		{`{"flows":{"clientCredentials":{"tokenUrl":"https://h","scopes":{}}},"oauth2MetadataUrl":"/x"}`, "https"},
		{`{"flows":{"clientCredentials":{"tokenUrl":"https://h","scopes":{},"secret":"x"}}}`, "not of the form"},
	} {
		var o OAuth2
		if err := o.UnmarshalText([]byte(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.text, err, tc.want)
		}
	}
}

// Names of members are exact and unique. Another reader of the same setting could read TOKENURL, or the last of two
// equal names, differently.
func TestOAuth2HasExactNames(t *testing.T) {
	t.Parallel()
	for _, set := range []string{
		`{"Flows":{"clientCredentials":{"tokenUrl":"https://h/t","scopes":{}}}}`,
		`{"flows":{"clientCredentials":{"TOKENURL":"https://h/t","scopes":{}}}}`,
		`{"flows":{"clientCredentials":{"tokenUrl":"https://h/t","Scopes":{}}}}`,
		`{"flows":{"ClientCredentials":{"tokenUrl":"https://h/t","scopes":{}}}}`,
		`{"flows":{"clientCredentials":{"tokenUrl":"https://h/t","scopes":{}}},"OAuth2MetadataUrl":"https://h/m"}`,
		`{"flows":{"clientCredentials":{"tokenUrl":"https://h/t","tokenUrl":"https://h/u","scopes":{}}}}`,
		`{"flows":{},"flows":{"clientCredentials":{"tokenUrl":"https://h/t","scopes":{}}}}`,
	} {
		var o OAuth2
		if err := o.UnmarshalText([]byte(set)); err == nil {
			t.Errorf("%s is accepted", set)
		}
	}
}
