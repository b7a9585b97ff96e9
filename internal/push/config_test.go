package push

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
)

func TestAcceptedConfigs(t *testing.T) {
	t.Parallel()
	for _, c := range []a2a.PushConfig{
		{URL: "https://example.com/hook"},
		{URL: "https://example.com/hook", Token: a2a.Secret(strings.Repeat("t", 4<<10)), Schemes: []string{"Bearer"},
			Credentials: a2a.Secret(strings.Repeat("c", 4<<10))},
		{URL: "https://example.com/" + strings.Repeat("a", 2<<10-20), Schemes: []string{"Basic", "Bearer"},
			Token: "a b\tc é"},
	} {
		if err := CheckConfig(&c, Policy{}, Limits{}); err != nil {
			t.Errorf("%.60s: %v", c.URL, err)
		}
	}
}

func TestRefusedConfigs(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for name, tt := range map[string]struct {
		field  string
		change func(*a2a.PushConfig)
	}{
		"no URL":                 {"url", func(c *a2a.PushConfig) { c.URL = "" }},
		"http":                   {"url", func(c *a2a.PushConfig) { c.URL = "http://example.com/" }},
		"user info":              {"url", func(c *a2a.PushConfig) { c.URL = "https://u:" + secret + "@example.com/" }},
		"loopback":               {"url", func(c *a2a.PushConfig) { c.URL = "https://127.0.0.1/" }},
		"long URL":               {"url", func(c *a2a.PushConfig) { c.URL += strings.Repeat("a", 2<<10) }},
		"CR LF in the token":     {"token", func(c *a2a.PushConfig) { c.Token = secret + "\r\nX: y" }},
		"LF in the token":        {"token", func(c *a2a.PushConfig) { c.Token = secret + "\nX: y" }},
		"NUL in the token":       {"token", func(c *a2a.PushConfig) { c.Token = secret + "\x00" }},
		"space before the token": {"token", func(c *a2a.PushConfig) { c.Token = " " + secret }},
		"long token": {"token",
			func(c *a2a.PushConfig) { c.Token = a2a.Secret(strings.Repeat("t", 4<<10+1)) }},
		"CR in credentials": {"authentication.credentials",
			func(c *a2a.PushConfig) { c.Credentials = secret + "\r" }},
		"NUL in credentials": {"authentication.credentials",
			func(c *a2a.PushConfig) { c.Credentials = "\x00" + secret }},
		"DEL in credentials": {"authentication.credentials",
			func(c *a2a.PushConfig) { c.Credentials = "\x7f" + secret }},
		"tab after credentials": {"authentication.credentials",
			func(c *a2a.PushConfig) { c.Credentials = secret + "\t" }},
		"long credentials": {"authentication.credentials",
			func(c *a2a.PushConfig) { c.Credentials = a2a.Secret(strings.Repeat("t", 4<<10+1)) }},
		"empty scheme": {"authentication.schemes", func(c *a2a.PushConfig) { c.Schemes = []string{""} }},
		"space in a scheme": {"authentication.schemes",
			func(c *a2a.PushConfig) { c.Schemes = []string{"Bearer", "Bearer " + secret} }},
		"CR LF in a scheme": {"authentication.schemes",
			func(c *a2a.PushConfig) { c.Schemes = []string{"Bearer\r\n"} }},
		"NUL in a scheme":    {"authentication.schemes", func(c *a2a.PushConfig) { c.Schemes = []string{"a\x00"} }},
		"colon in a scheme":  {"authentication.schemes", func(c *a2a.PushConfig) { c.Schemes = []string{"a:b"} }},
		"letter in a scheme": {"authentication.schemes", func(c *a2a.PushConfig) { c.Schemes = []string{"bé"} }},
		"long scheme": {"authentication.schemes",
			func(c *a2a.PushConfig) { c.Schemes = []string{strings.Repeat("a", 65)} }},
		"many schemes": {"authentication.schemes",
			func(c *a2a.PushConfig) { c.Schemes = slices.Repeat([]string{"a"}, 9) }},
		"no scheme": {"authentication.schemes", func(c *a2a.PushConfig) { c.Schemes = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := a2a.PushConfig{URL: "https://example.com/", Token: "t", Schemes: []string{"Bearer"}, Credentials: "c"}
			tt.change(&c)
			err := CheckConfig(&c, Policy{}, Limits{})
			var e *a2a.Error
			if !errors.As(err, &e) || e.Code != a2a.CodeInvalidParams || e.Field != tt.field ||
				strings.Contains(e.Message, secret) {
				t.Errorf("got %v, want one about %s", err, tt.field)
			}
		})
	}
}

func TestLimitsCanBeSet(t *testing.T) {
	t.Parallel()
	c := a2a.PushConfig{URL: "https://example.com/", Token: "12345", Schemes: []string{"a", "b"}}
	for _, limits := range []Limits{{URL: 19}, {Secret: 4}, {Schemes: 1}} {
		if err := CheckConfig(&c, Policy{}, limits); err == nil {
			t.Errorf("%+v is ignored", limits)
		}
	}
	if err := CheckConfig(&c, Policy{MaxURL: 5}, Limits{URL: 20, Secret: 5, Schemes: 2}); err != nil {
		t.Error(err)
	}
}

// TestAcceptedSecretsArrive: accepted values can be sent, and the receiver gets the same bytes.
func TestAcceptedSecretsArrive(t *testing.T) {
	t.Parallel()
	s := newSink(t, ok)
	client := newClient(t, ClientConfig{Policy: dev})
	rapid.Check(t, func(t *rapid.T) {
		c := a2a.PushConfig{
			URL: s.URL, Token: a2a.Secret(rapid.String().Draw(t,
				"token")), Schemes: []string{rapid.StringMatching(`[A-Za-z0-9!#$%&'*+.^_|~-]{1,20}`).Draw(t, "scheme")},
			Credentials: a2a.Secret(rapid.String().Draw(t, "credentials")),
		}
		if CheckConfig(&c, dev, Limits{}) != nil {
			t.SkipNow()
		}
		r := request(c.URL)
		r.Token, r.Schemes, r.Credentials = c.Token, c.Schemes, c.Credentials
		if res := client.Attempt(t.Context(), r); res.Class != ClassDelivered {
			t.Fatalf("got %+v", res)
		}
		all := s.requests()
		got := all[len(all)-1].header
		want := c.Schemes[0] + " " + string(c.Credentials)
		if c.Credentials == "" {
			want = ""
		}
		if got.Get("X-A2A-Notification-Token") != string(c.Token) ||
			got.Get("A2A-Notification-Token") != string(c.Token) || got.Get("Authorization") != want {
			t.Fatalf("got %v for %+v", got, c)
		}
	})
}
