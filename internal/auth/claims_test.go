package auth

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// Readers of a token differ in what they read if names differ only by case, a name occurs twice, or a value has
// another type. The issuer has signed all of these tokens.
func TestClaimsHaveExactUniqueNames(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	key := testKey(jose.EdDSA, "d")
	p.publish(key)
	now := p.now().Unix()
	const header = `{"alg":"EdDSA","kid":"d","typ":"JWT"}`
	claims := fmt.Sprintf(`{"iss":%q,"aud":"a2ad","sub":"ann","exp":%d}`, p.URL, now+300)
	with1 := func(part, other string) string {
		if !strings.Contains(claims, part) {
			t.Fatal(part)
		}
		return strings.Replace(claims, part, other, 1)
	}
	encode := base64.RawURLEncoding.EncodeToString
	signed := func(header, claims string) string {
		text := encode([]byte(header)) + "." + encode([]byte(claims))
		return text + "." + encode(ed25519.Sign(testKeys()[jose.EdDSA].(ed25519.PrivateKey), []byte(text)))
	}
	exp := fmt.Sprintf(`"exp":%d`, now+300)
	const other = "token of another issuer or for another audience"
	for name, tc := range map[string]struct{ header, claims, reason string }{
		"as it should be":    {header, claims, ""},
		"exp as a fraction":  {header, with1(exp, exp+".5"), ""},
		"aud as a list":      {header, with1(`"a2ad"`, `["x","a2ad"]`), ""},
		"AUD":                {header, with1(`"aud"`, `"AUD"`), other},
		"Aud beside aud":     {header, with1(`"aud":"a2ad"`, `"aud":"x","Aud":"a2ad"`), other},
		"ISS":                {header, with1(`"iss"`, `"ISS"`), other},
		"EXP":                {header, with1(`"exp"`, `"EXP"`), "expired token"},
		"Exp after exp":      {header, with1(exp, fmt.Sprintf(`"exp":%d,"Exp":%d`, now-300, now+300)), "expired token"},
		"exp in quotes":      {header, with1(exp, fmt.Sprintf(`"exp":"%d"`, now+300)), "malformed token"},
		"exp is null":        {header, with1(exp, `"exp":null`), "malformed token"},
		"exp without an end": {header, with1(exp, `"exp":1e999`), "malformed token"},
		"nbf in quotes":      {header, with1(exp, exp+`,"nbf":"1"`), "malformed token"},
		"aud twice":          {header, with1(`"aud":"a2ad"`, `"aud":"x","aud":"a2ad"`), "malformed token"},
		"aud with a number":  {header, with1(`"a2ad"`, `["a2ad",1]`), "malformed token"},
		"sub twice":          {header, with1(`"sub"`, `"sub":"bob","sub"`), "malformed token"},
		"sub escaped, twice": {header, with1(`"sub"`, `"\u0073ub":"bob","sub"`), "malformed token"},
		"twice, deep inside": {header, with1(exp, exp+`,"x":[{"a":1,"a":2}]`), "malformed token"},
		"text after it":      {header, claims + "{}", "malformed token"},
		"no object":          {header, "[]", "malformed token"},
		"typ is a number":    {`{"alg":"EdDSA","kid":"d","typ":7}`, claims, "another type of token"},
		"typ is null":        {`{"alg":"EdDSA","kid":"d","typ":null}`, claims, "another type of token"},
		"typ twice":          {`{"alg":"EdDSA","kid":"d","typ":"logout+jwt","typ":"JWT"}`, claims, "malformed token"},
		"twice in a header":  {`{"alg":"EdDSA","kid":"d","x":{"a":1,"a":2}}`, claims, "malformed token"},
		"alg twice":          {`{"alg":"EdDSA","alg":"none","kid":"d"}`, claims, "malformed token"},
		"ALG":                {`{"ALG":"EdDSA","kid":"d"}`, claims, "malformed token"},
	} {
		_, err := with(t, p.newJWT(nil), signed(tc.header, tc.claims))
		if tc.reason == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		t.Run(name, func(t *testing.T) { refused(t, err, tc.reason) })
	}
}

// The same rule applies to the documents of the issuer.
func TestKeysOfTheIssuerAreReadByExactNames(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"Keys": `{"Keys":[%s]}`, "keys twice": `{"keys":[],"keys":[%s]}`, "text after it": `{"keys":[%s]}{}`,
		"kty in another case": `{"keys":[%s]}`, "a member twice": `{"keys":[%s]}`,
	} {
		private := testKey(jose.EdDSA, "d")
		public := private.Public()
		key, err := public.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		text := string(key)
		switch name {
		case "kty in another case":
			text = strings.Replace(text, `"kty"`, `"KTY"`, 1)
		case "a member twice":
			text = strings.Replace(text, `"kid"`, `"kid":"x","kid"`, 1)
		}
		if keys, err := parseKeySet(fmt.Appendf(nil, body, text)); err == nil {
			t.Errorf("%s: %d keys", name, len(keys))
		}
	}
	p := newIDP(t)
	key := testKey(jose.EdDSA, "d")
	p.publish(key)
	for name, doc := range map[string]string{
		"Jwks_uri":       `{"issuer":%q,"Jwks_uri":%q}`,
		"ISSUER":         `{"ISSUER":%q,"jwks_uri":%q}`,
		"jwks_uri twice": `{"issuer":%q,"jwks_uri":"https://192.0.2.1/","jwks_uri":%q}`,
	} {
		p.set(func() { p.discovery = fmt.Sprintf(doc, p.URL, p.URL+"/keys") })
		if _, err := with(t, p.newJWT(nil), p.token(key, nil)); err == nil {
			t.Errorf("%s: the keys were found", name)
		}
	}
}
