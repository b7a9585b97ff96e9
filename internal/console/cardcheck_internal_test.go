package console

import (
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
)

// goodCard is a card in which no check finds anything.
func goodCard() *a2a.Card {
	return &a2a.Card{
		Name: "Support", Description: "Answers questions.", Version: "1", Streaming: true, Push: true,
		InputModes: []string{"text/plain"}, OutputModes: []string{"application/json; charset=utf-8"},
		Interfaces: []a2a.Interface{
			{URL: "https://a.example/agents/support", Binding: "JSONRPC", Version: "1.0"},
			{URL: "http://127.0.0.1:8080/agents/support", Binding: "HTTP+JSON", Version: "0.3"},
			{URL: "a.example:443", Binding: "GRPC", Version: "1.0"},
		},
		Skills:   []a2a.Skill{{ID: "ask", Name: "Ask", Description: "Ask anything.", Tags: []string{"qa"}}},
		Security: []a2a.SecurityScheme{{Name: "apiKey"}},
	}
}

func TestCardWithoutFaults(t *testing.T) {
	t.Parallel()
	for _, f := range checkCard(goodCard()) {
		if f.Level != levelOK {
			t.Errorf("%s: %s %s", f.Check, f.Level, f.Text)
		}
	}
}

func TestCardFaultsAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change             func(*a2a.Card)
		check, level, text string
	}{
		"no name":        {func(c *a2a.Card) { c.Name = "" }, "required members", levelFault, "name is missing"},
		"no description": {func(c *a2a.Card) { c.Description = "" }, "required members", levelFault, "description"},
		"no version":     {func(c *a2a.Card) { c.Version = "" }, "required members", levelFault, "version is missing"},
		"no interfaces":  {func(c *a2a.Card) { c.Interfaces = nil }, "required members", levelFault, "supportedInterf"},
		"no modes":       {func(c *a2a.Card) { c.InputModes = nil }, "required members", levelFault, "defaultInput"},
		"no output":      {func(c *a2a.Card) { c.OutputModes = nil }, "required members", levelFault, "defaultOutput"},
		"a relative URL": {func(c *a2a.Card) { c.Interfaces[0].URL = "/agents/support" }, "addresses", levelFault,
			`"/agents/support" is no absolute URL`},
		"a script as URL": {func(c *a2a.Card) { c.Interfaces[0].URL = "javascript:alert(1)" }, "addresses", levelFault,
			"is no absolute URL"},
		"plain http": {func(c *a2a.Card) { c.Interfaces[0].URL = "http://a.example" }, "addresses", levelWarning,
			"not encrypted: http://a.example"},
		"host:port without gRPC": {func(c *a2a.Card) { c.Interfaces[2].Binding = "JSONRPC" }, "addresses", levelFault,
			`"a.example:443"`},
		"an interface without a version": {func(c *a2a.Card) { c.Interfaces[0].Version = "" }, "protocol versions",
			levelFault, "no version"},
		"an unknown transport": {func(c *a2a.Card) { c.Interfaces[0].Binding = "SOAP" }, "transports",
			levelFault, "SOAP"},
		"a mode that is none": {func(c *a2a.Card) { c.InputModes = []string{"text"} }, "input modes",
			levelFault, `"text"`},
		"no skills":            {func(c *a2a.Card) { c.Skills = nil }, "skills", levelWarning, "none"},
		"a skill without tags": {func(c *a2a.Card) { c.Skills[0].Tags = nil }, "skills", levelFault, "ask has no tags"},
		"a skill twice": {func(c *a2a.Card) { c.Skills = append(c.Skills, c.Skills[0]) }, "skills", levelFault,
			"several skills have the id ask"},
		"no sign-in": {func(c *a2a.Card) { c.Security = nil }, "sign-in", levelWarning, "none"},
		"an unknown scheme": {func(c *a2a.Card) {
			c.Skills[0].Security = []a2a.Requirement{{{Name: "oauth"}}}
		}, "sign-in", levelFault, "oauth"},
	} {
		card := goodCard()
		c.change(card)
		found := false
		for _, f := range checkCard(card) {
			if f.Check == c.check {
				found = true
				if f.Level != c.level || !strings.Contains(f.Text, c.text) {
					t.Errorf("%s: %s is %s %q, want %s %q", name, f.Check, f.Level, f.Text, c.level, c.text)
				}
			}
		}
		if !found {
			t.Errorf("%s: there is no check %q", name, c.check)
		}
	}
}
