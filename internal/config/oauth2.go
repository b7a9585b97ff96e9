package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"slices"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// OAuth2 says in agent cards how clients get tokens. It may be nil.
type OAuth2 struct{ *a2a.OAuth2 }

// oauth2Form is the JSON of an OAuth2, as in a card.
type oauth2Form struct {
	Flows       map[string]oauth2Flow `json:"flows"`
	MetadataURL string                `json:"oauth2MetadataUrl,omitempty"`
}

type oauth2Flow struct {
	AuthorizationURL string            `json:"authorizationUrl,omitempty"`
	DeviceURL        string            `json:"deviceAuthorizationUrl,omitempty"`
	TokenURL         string            `json:"tokenUrl,omitempty"`
	RefreshURL       string            `json:"refreshUrl,omitempty"`
	Scopes           map[string]string `json:"scopes"`
	PKCE             bool              `json:"pkceRequired,omitempty"`
}

// oauth2URLs says which URLs a flow has: for authorization, for devices, for tokens.
var oauth2URLs = map[string][3]bool{
	"authorizationCode": {true, false, true},
	"clientCredentials": {false, false, true},
	"deviceCode":        {false, true, true},
	"implicit":          {true, false, false},
	"password":          {false, false, true},
}

const maxOAuth2Depth = 8

var (
	oauth2Names     = []string{"flows", "oauth2MetadataUrl"}
	oauth2FlowNames = []string{
		"authorizationUrl", "deviceAuthorizationUrl", "tokenUrl", "refreshUrl", "scopes", "pkceRequired",
	}
)

// exactOAuth2 reports whether the members have exactly the right names: encoding/json also reads
// TOKENURL as tokenUrl.
func exactOAuth2(text []byte) bool {
	only := func(object []byte, names []string) bool {
		for name := range rawjson.Members(object) {
			if !slices.Contains(names, string(name)) {
				return false
			}
		}
		return true
	}
	if rawjson.KindOf(rawjson.Trim(text)) != rawjson.KindObject || !only(rawjson.Trim(text), oauth2Names) {
		return false
	}
	for name, flows := range rawjson.Members(rawjson.Trim(text)) {
		if string(name) != "flows" || rawjson.KindOf(flows) != rawjson.KindObject {
			continue
		}
		for _, flow := range rawjson.Members(flows) {
			if rawjson.KindOf(flow) != rawjson.KindObject || !only(flow, oauth2FlowNames) {
				return false
			}
		}
	}
	return true
}

// UnmarshalText reads JSON.
func (o *OAuth2) UnmarshalText(text []byte) error {
	var form oauth2Form
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if rawjson.Check(text, maxOAuth2Depth) != nil || !exactOAuth2(text) || d.Decode(&form) != nil || d.More() {
		return errors.New(
			`not of the form {"flows": {"clientCredentials": ` +
				`{"tokenUrl": "https://…", "scopes": {"tasks:read": "…"}}}}`)
	}
	if len(form.Flows) != 1 {
		return errors.New("flows must have one flow: an A2A 1.0 card cannot name more")
	}
	for name, f := range form.Flows {
		if err := f.check(name); err != nil {
			return err
		}
		if !httpsOrNone(form.MetadataURL) {
			return errNotHTTPS
		}
		o.OAuth2 = &a2a.OAuth2{
			Flow: name, AuthorizationURL: f.AuthorizationURL, DeviceURL: f.DeviceURL, TokenURL: f.TokenURL,
			RefreshURL: f.RefreshURL, MetadataURL: form.MetadataURL, PKCE: f.PKCE, Scopes: f.Scopes,
		}
	}
	return nil
}

var errNotHTTPS = errors.New("the URLs of a flow must be absolute and begin with https://")

// check reports what is wrong with the flow of a name.
func (f *oauth2Flow) check(name string) error {
	want, ok := oauth2URLs[name]
	if !ok {
		return errors.New("the flow must be authorizationCode, clientCredentials, deviceCode, implicit or password")
	}
	has := [3]bool{f.AuthorizationURL != "", f.DeviceURL != "", f.TokenURL != ""}
	if f.Scopes == nil || has != want || f.PKCE && name != "authorizationCode" {
		return errors.New("the flow " + name + " has scopes and those URLs of authorizationUrl, " +
			"deviceAuthorizationUrl and tokenUrl that it needs, and no others")
	}
	for _, u := range []string{f.AuthorizationURL, f.DeviceURL, f.TokenURL, f.RefreshURL} {
		if !httpsOrNone(u) {
			return errNotHTTPS
		}
	}
	return nil
}

func httpsOrNone(text string) bool {
	u, err := url.Parse(text)
	return text == "" || err == nil && u.Scheme == "https" && u.Host != ""
}

// MarshalText returns what UnmarshalText reads.
func (o OAuth2) MarshalText() ([]byte, error) {
	if o.OAuth2 == nil {
		return nil, nil
	}
	flow := oauth2Flow{
		AuthorizationURL: o.AuthorizationURL, DeviceURL: o.DeviceURL, TokenURL: o.TokenURL, RefreshURL: o.RefreshURL,
		Scopes: o.Scopes, PKCE: o.PKCE,
	}
	return json.Marshal(oauth2Form{MetadataURL: o.MetadataURL, Flows: map[string]oauth2Flow{o.Flow: flow}})
}
