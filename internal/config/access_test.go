package config

import (
	"strings"
	"testing"
)

// TestConsoleSignInNeedsAnIssuerAndAWayBack: without them, or over plain http, no server starts.
func TestConsoleSignInNeedsAnIssuerAndAWayBack(t *testing.T) {
	t.Parallel()
	good := func() *OIDC { return &OIDC{OIDCIssuer: "https://login.example", ConsoleOIDCClientID: "console"} }
	for name, tc := range map[string]struct {
		change func(*OIDC)
		public BaseURL
		fault  string
	}{
		"good":            {func(*OIDC) {}, "https://a2ad.example", ""},
		"on this machine": {func(*OIDC) {}, "http://127.0.0.1:8080", ""},
		"not set":         {func(o *OIDC) { *o = OIDC{} }, "", ""},
		"no issuer":       {func(o *OIDC) { o.OIDCIssuer = "" }, "https://a2ad.example", "set A2AD_OIDC_ISSUER too"},
		"no public URL":   {func(*OIDC) {}, "", "set A2AD_PUBLIC_URL too"},
		"plain http":      {func(*OIDC) {}, "http://a2ad.example", "must begin with https://"},
		"a secret of no id": {
			func(o *OIDC) { *o = OIDC{ConsoleOIDCClientSecret: NewSecret("s")} }, "", "whose secret this is",
		},
	} {
		o := good()
		tc.change(o)
		f := o.checkConsole(tc.public)
		if len(f) > 1 || (len(f) == 1) != (tc.fault != "") ||
			tc.fault != "" && !strings.Contains(f[0].String(), tc.fault) {
			t.Errorf("%s: %v, want %q", name, f, tc.fault)
		}
	}
}
