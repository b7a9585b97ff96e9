package push

import (
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/a2ad/a2ad/internal/a2a"
)

// Limits bound the configuration of a webhook. If a field is 0, its default applies.
type Limits struct {
	URL     int // bytes; DefaultMaxURL
	Secret  int // bytes of the token, and of the credentials; DefaultMaxSecret
	Schemes int // DefaultMaxSchemes
}

// The defaults of Limits.
const (
	DefaultMaxSecret  = 4 << 10
	DefaultMaxSchemes = 8
	maxScheme         = 64
)

// CheckConfig checks the configuration of a webhook: whether its URL may be called, and whether its values are valid
// in headers. It returns an *a2a.Error with CodeInvalidParams that names a field and repeats no secret. It resolves
// no names. The caller checks that there are keys to encrypt secrets with, and how many webhooks a task has.
func CheckConfig(c *a2a.PushConfig, policy Policy, limits Limits) error {
	orDefault(&limits.URL, DefaultMaxURL)
	orDefault(&limits.Secret, DefaultMaxSecret)
	orDefault(&limits.Schemes, DefaultMaxSchemes)
	policy.MaxURL = limits.URL
	if c.URL == "" {
		return a2a.InvalidParams("url", "is required")
	}
	if _, err := policy.CheckURL(c.URL); err != nil {
		return a2a.InvalidParams("url", "%w", err)
	}
	if strings.HasSuffix(c.URL, "?"+a2a.RedactedQuery) {
		return a2a.InvalidParams("url", "the query is redacted: give the whole URL")
	}
	if err := checkSecret("token", string(c.Token), limits.Secret); err != nil {
		return err
	}
	if err := checkSecret("authentication.credentials", string(c.Credentials), limits.Secret); err != nil {
		return err
	}
	if len(c.Schemes) > limits.Schemes {
		return a2a.InvalidParams("authentication.schemes", "more than %d", limits.Schemes)
	}
	for _, s := range c.Schemes {
		if len(s) > maxScheme || !httpguts.ValidHeaderFieldName(s) { // both are an HTTP token
			return a2a.InvalidParams("authentication.schemes",
				"must be names of HTTP authentication schemes, like Bearer")
		}
	}
	if c.Credentials != "" && len(c.Schemes) == 0 {
		return a2a.InvalidParams("authentication.schemes", "is required with credentials")
	}
	return nil
}

// checkSecret checks the value of a header. Spaces at its ends would be lost.
func checkSecret(field, text string, limit int) error {
	switch {
	case len(text) > limit:
		return a2a.InvalidParams(field, "longer than %d bytes", limit)
	case !httpguts.ValidHeaderFieldValue(text):
		return a2a.InvalidParams(field, "must not contain control characters: it is sent in an HTTP header")
	case text != strings.Trim(text, " \t"):
		return a2a.InvalidParams(field, "must not begin or end with a space: it is sent in an HTTP header")
	}
	return nil
}
