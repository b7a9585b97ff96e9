package e2e_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/a2ad/a2ad/internal/seal"
)

// The client's trace context reaches the agent unchanged, and the webhook as a span of its own.
func TestClientTraceReachesAgentAndWebhook(t *testing.T) {
	t.Parallel()
	const trace, parent = "00-0af7651916cd43dd8448eb211c80319c-", "b7ad6b7169203331"
	c := newCluster(t)
	a := c.start("a", hooking("")...)
	sink := newHookSink(t, nil)
	body := func(method, role, text, config string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"message":{"messageId":"m","role":"` +
			role + `","parts":[` + text + `]},"configuration":` + config + `}}`
	}
	old := func(hook string) string {
		return body("message/send", "user", `{"kind":"text","text":"x"}`,
			`{"blocking":true,"pushNotificationConfig":{"url":"`+hook+`"}}`)
	}
	current := func(hook string) string {
		return body("SendMessage", "ROLE_USER", `{"text":"x"}`, `{"taskPushNotificationConfig":{"url":"`+hook+`"}}`)
	}
	rest := func(hook string) string {
		return `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]},` +
			`"configuration":{"taskPushNotificationConfig":{"url":"` + hook + `"}}}`
	}
	for i, tt := range []struct {
		to     string
		body   func(hook string) string
		header []string
		want   string
	}{
		{"", old, []string{"traceparent", trace + parent + "-01"}, trace + parent + "-01"},
		{"", current, []string{"A2A-Version", "1.0", "traceparent", trace + parent + "-00"}, trace + parent + "-00"},
		{"/message:send", rest, []string{"A2A-Version", "1.0", "traceparent", trace + parent + "-01"},
			trace + parent + "-01"},
		{"", old, []string{"traceparent", trace + strings.ToUpper(parent) + "-01"}, ""}, // not valid
		{"", old, []string{"traceparent", trace + parent + "-01", "traceparent", trace + parent + "-01"}, ""},
		{"", old, nil, ""},
	} {
		path := "/" + itoa(i)
		if got := c.post(a, "/agents/traced"+tt.to, tt.body(sink.URL+path), tt.header...); got.code != 0 ||
			!strings.Contains(string(got.body), "<"+tt.want+">") {
			t.Errorf("%v: %s, want an agent that says <%s>", tt.header, got.body, tt.want)
		}
		c.awaitDelivered()
		came := 0
		for _, h := range sink.all() {
			if h.path != path {
				continue
			}
			came++
			got := h.header.Get("Traceparent")
			if tt.want == "" && got == "" {
				continue
			}
			if tt.want == "" || !strings.HasPrefix(got, trace) || !strings.HasSuffix(got, tt.want[len(tt.want)-3:]) ||
				len(got) != len(tt.want) || got == tt.want {
				t.Errorf("%v: the webhook has traceparent %q", tt.header, got)
			}
		}
		if came == 0 {
			t.Errorf("%v: no webhook arrived", tt.header)
		}
	}
}

// Receivers verify webhooks with a secret by the library of Standard Webhooks, and with the keys that the server
// publishes.
func TestReceiversVerifyWebhooks(t *testing.T) {
	t.Parallel()
	const current, old = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
		"whsec_ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="
	c := newCluster(t)
	a := c.start("a", append(hooking(seal.Generate("k1")), "A2AD_PUSH_SIGNING_SECRETS="+current+","+old)...)
	sink := newHookSink(t, nil)
	task := c.sendHooked(a, `{"url":"`+sink.URL+`/x","authentication":{"schemes":["Bearer"]}}`, `{"op":"complete"}`)
	c.awaitDelivered()
	got := sink.all()
	if len(got) == 0 {
		t.Fatal("nothing was delivered")
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(c.do(a, http.MethodGet, "/.well-known/jwks.json", nil).body, &set); err != nil {
		t.Fatal(err)
	}
	for _, h := range got {
		for _, secret := range []string{current, old} { // during a rotation each receiver has one of them
			hook, err := standardwebhooks.NewWebhook(secret)
			if err != nil {
				t.Fatal(err)
			}
			if err := hook.Verify([]byte(h.body), h.header); err != nil {
				t.Errorf("%s: %v", h.id, err)
			}
			if err := hook.Verify([]byte(h.body+" "), h.header); err == nil {
				t.Errorf("%s verifies with another body", h.id)
			}
		}
		signed := []byte(h.id + "." + h.header.Get("Webhook-Timestamp") + "." + h.body)
		if !slices.ContainsFunc(strings.Fields(h.header.Get("Webhook-Signature")), func(s string) bool {
			raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s, "v1a,"))
			return err == nil && slices.ContainsFunc(set.Keys, func(k jose.JSONWebKey) bool {
				key, ok := k.Key.(ed25519.PublicKey)
				return ok && ed25519.Verify(key, signed, raw)
			})
		}) {
			t.Errorf("%s: no published key fits %q", h.id, h.header.Get("Webhook-Signature"))
		}
		token, err := jwt.ParseSigned(strings.TrimPrefix(h.header.Get("Authorization"), "Bearer "),
			[]jose.SignatureAlgorithm{jose.EdDSA})
		if err != nil {
			t.Fatal(err)
		}
		var claims struct {
			jwt.Claims
			TaskID string `json:"taskId"`
			Body   string `json:"request_body_sha256"`
		}
		if err := token.Claims(set, &claims); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256([]byte(h.body))
		if err := claims.Validate(jwt.Expected{Issuer: a.base, AnyAudience: jwt.Audience{sink.URL}, Subject: task,
			ID: h.id, Time: time.Now()}); err != nil ||
			claims.TaskID != task || claims.Body != hex.EncodeToString(sum[:]) {
			t.Errorf("claims %+v: %v", claims, err)
		}
	}
}

func TestServerWithoutKeysRefusesSecrets(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", hooking("")...)
	sink := newHookSink(t, nil)
	send := func(hook string) httpAnswer {
		return c.rpc(a, "echo", "message/send", `{
			"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]},
			"configuration":{"pushNotificationConfig":`+hook+`}}`)
	}
	if got := send(`{"url":"` + sink.URL + `","token":"x"}`); got.code != -32602 {
		t.Errorf("with a token: %s", got.body)
	}
	if got := send(`{"url":"` + sink.URL + `"}`); got.code != 0 {
		t.Errorf("without secrets: %s", got.body)
	}
	c.awaitDelivered()
	if len(sink.all()) == 0 {
		t.Error("nothing was delivered")
	}
}
