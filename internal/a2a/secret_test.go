package a2a_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
)

func TestSecretsOfAWebhookAreRedacted(t *testing.T) {
	t.Parallel()
	const token, credentials = "token-canary", "credentials-canary"
	c := a2a.PushConfig{ID: "id", Token: token, Credentials: credentials}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		fmt.Fprintf(&out, verb+verb+verb+"\n", c, &c, c.Token)
		fmt.Fprintln(&out, fmt.Errorf("wrapped: "+verb, []a2a.PushConfig{c}))
	}
	for _, h := range []slog.Handler{slog.NewJSONHandler(&out, nil), slog.NewTextHandler(&out, nil)} {
		slog.New(h).Info("config", "config", c, "token", c.Token, "all", []any{c, c.Credentials})
	}
	text, err := json.Marshal(map[string]any{"c": c, "t": c.Token})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(text)
	for _, secret := range []string{token, credentials, fmt.Sprintf("%x", token), fmt.Sprintf("%X", credentials)} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("%q shows in\n%s", secret, out.String())
		}
	}
	if !strings.Contains(out.String(), "[redacted]") {
		t.Error("nothing says that there is something")
	}
	if string(c.Token) != token {
		t.Error("it is lost")
	}
}
