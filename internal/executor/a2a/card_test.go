package a2a_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	upstream "github.com/a2ad/a2ad/internal/executor/a2a"
)

func TestRequestsCarryVersionCredentialsAndTenant(t *testing.T) {
	t.Parallel()
	for _, generation := range generations {
		f := newFake(t, generation)
		f.program = [][]a2a.Event{{status(a2a.StateCompleted)}}
		k := newKeeper(t, f, func(c *upstream.Config) {
			c.Header = http.Header{"Authorization": {"Bearer secret"}, "X-Team": {"words"}}
		})
		k.say("go")
		k.finish()
		sent := f.headers[1] // after the card
		if sent.Get("A2A-Version") != generation || sent.Get("Idempotency-Key") != f.messages[0].ID {
			t.Errorf("%s: the header is %v", generation, sent)
		}
		for _, h := range f.headers {
			if h.Get("Authorization") != "Bearer secret" || h.Get("X-Team") != "words" {
				t.Errorf("%s: the header is %v", generation, h)
			}
		}
	}
}

func TestCardChoosesTheVersionAndIsCached(t *testing.T) {
	t.Parallel()
	both := func(base string) string {
		return fmt.Sprintf(`{"name":"x","url":%q,"protocolVersion":"0.3.0","preferredTransport":"JSONRPC",
			"capabilities":{"streaming":true},
			"supportedInterfaces":[{"url":"grpc://x","protocolBinding":"GRPC","protocolVersion":"1.0"},
			{"url":"/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0.0"}]}`, base+"/rpc")
	}
	for version, served := range map[string]string{"": "1.0", "1.0": "1.0", "0.3": "0.3"} {
		f := newFake(t, served)
		f.card = both
		f.program = [][]a2a.Event{{status(a2a.StateCompleted)}}
		k := newKeeper(t, f, func(c *upstream.Config) { c.Version = version })
		for range 3 {
			k.say("go")
			k.finish()
		}
		if f.cards != 1 || len(f.messages) != 3 {
			t.Errorf("version %q: the card was read %d times for %d messages, want once for 3", version, f.cards,
				len(f.messages))
		}
	}
}

// The author of a card must not choose which servers get requests, with or without credentials. The agent file may
// allow another server, which then gets them too.
func TestCardMustNotReferToOtherServers(t *testing.T) {
	t.Parallel()
	secret := http.Header{"Authorization": {"Bearer secret"}}
	for name, header := range map[string]http.Header{"with credentials": secret, "without": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, other := newFake(t, "1.0"), newFake(t, "1.0")
			other.program = [][]a2a.Event{{status(a2a.StateCompleted)}}
			f.card = func(string) string {
				return fmt.Sprintf(`{"name":"x","supportedInterfaces":[{"url":%q,"protocolBinding":"JSONRPC",`+
					`"protocolVersion":"1.0"}]}`, other.url+"/rpc")
			}
			k := newKeeper(t, f, func(c *upstream.Config) { c.Header = header })
			k.say("go")
			if _, err := k.run(bounded(t), nil); !executor.IsPermanent(err) ||
				strings.Contains(err.Error(), "127.0.0.1") {
				t.Errorf("the attempt ends with %v, want a permanent error without an address", err)
			}
			if len(other.headers) > 0 {
				t.Error("the other server was asked")
			}
			k = newKeeper(t, f, func(c *upstream.Config) {
				c.Header, c.AllowOrigins = header, []string{strings.ToUpper(other.url) + "/"}
			})
			k.say("go")
			k.finish()
			if len(other.headers) == 0 || other.headers[0].Get("Authorization") != header.Get("Authorization") {
				t.Errorf("the server that is allowed got %v", other.headers)
			}
		})
	}
}

// The first permitted server is used.
func TestCardMayNameSeveralServers(t *testing.T) {
	t.Parallel()
	f, other := newFake(t, "1.0"), newFake(t, "1.0")
	f.program = [][]a2a.Event{{status(a2a.StateCompleted)}}
	f.card = func(base string) string {
		return fmt.Sprintf(`{"name":"x","supportedInterfaces":[{"url":%q,"protocolBinding":"JSONRPC",`+
			`"protocolVersion":"1.0"},{"url":%q,"protocolBinding":"JSONRPC",`+
			`"protocolVersion":"1.0"}]}`, other.url+"/rpc", base+"/rpc")
	}
	k := newKeeper(t, f)
	k.say("go")
	k.finish()
	if len(other.headers) > 0 || len(f.messages) != 1 {
		t.Errorf("the other server was asked %d times, and that of the card was sent %d messages", len(other.headers),
			len(f.messages))
	}
}
