package client

import (
	"context"
	"net/url"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// Version is a generation of the protocol.
type Version uint8

// The generations that the client speaks.
const (
	V03 Version = iota
	V10
)

// op is what the client asks for, by its name in 0.3.
type op string

const (
	opSend      op = "message/send"
	opStream    op = "message/stream"
	opGet       op = "tasks/get"
	opList      op = "tasks/list"
	opCancel    op = "tasks/cancel"
	opSubscribe op = "tasks/resubscribe"
)

var methods10 = map[op]string{
	opSend: "SendMessage", opStream: "SendStreamingMessage", opGet: "GetTask", opList: "ListTasks",
	opCancel: "CancelTask", opSubscribe: "SubscribeToTask",
}

func (v Version) method(o op) string {
	if v == V10 {
		return methods10[o]
	}
	return string(o)
}

// Negotiate reads the agent's card, and sets Version and URL to the best JSON-RPC interface: 1.0,
// else 0.3. Without a readable card it assumes 0.3 at the URL, and the next request reports what is
// wrong. Call it before any other use of the client.
func (c *Client) Negotiate(ctx context.Context) error {
	card, err := c.Card(ctx)
	if err != nil && (ctx.Err() != nil || temporary(err)) {
		return err
	}
	if err != nil {
		return nil
	}
	c.Use(card)
	return nil
}

// Use sets Version and URL to the best JSON-RPC interface of a card: 1.0, else 0.3. Call it before
// any other use of the client, except Card.
func (c *Client) Use(card Card) {
	best := -1
	for i, f := range card.Interfaces {
		v, ok := versions[majorMinor(f.Version)]
		if ok && f.Binding == "JSONRPC" && (best < 0 || v > c.Version) {
			best, c.Version = i, v
		}
	}
	if best >= 0 {
		c.URL = sameServer(c.URL, card.Interfaces[best].URL)
	}
}

var versions = map[string]Version{"0.3": V03, "1.0": V10}

func majorMinor(v string) string {
	parts := strings.SplitN(v, ".", 3)
	return strings.Join(parts[:min(len(parts), 2)], ".")
}

// sameServer returns the address of an interface if it is on the server that was asked. The
// credentials are for that server only, whatever a card says.
func sameServer(asked, named string) string {
	a, err := url.Parse(asked)
	if err != nil {
		return asked
	}
	if n, err := url.Parse(named); err == nil && n.Scheme == a.Scheme && n.Host == a.Host {
		return named
	}
	return asked
}

// Interface is one way to reach an agent.
type Interface struct{ URL, Binding, Version string }

// interfaces reads the cards of both generations.
func interfaces(card []byte) []Interface {
	var list []Interface
	for f := range rawjson.Elements(rawjson.Get(card, "supportedInterfaces")) {
		list = append(list, Interface{str(f, "url"), str(f, "protocolBinding"), str(f, "protocolVersion")})
	}
	if u := str(card, "url"); u != "" {
		binding, version := str(card, "preferredTransport"), str(card, "protocolVersion")
		if binding == "" {
			binding = "JSONRPC"
		}
		list = append(list, Interface{u, binding, version})
		for f := range rawjson.Elements(rawjson.Get(card, "additionalInterfaces")) {
			list = append(list, Interface{str(f, "url"), str(f, "transport"), version})
		}
	}
	return list
}

// stateName10 is the name of a state in 1.0.
func stateName10(s a2a.State) string {
	return "TASK_STATE_" + strings.ToUpper(strings.ReplaceAll(s.String(), "-", "_"))
}

// parseState reads a state of either generation.
func parseState(name string) (a2a.State, bool) {
	if rest, ok := strings.CutPrefix(name, "TASK_STATE_"); ok {
		name = strings.ToLower(strings.ReplaceAll(rest, "_", "-"))
	}
	s, ok := a2a.ParseState(name)
	return s, ok || name == "unknown" || name == "unspecified"
}

// wrappers are the members by which 1.0 says what it sends.
var wrappers = []struct {
	key  string
	kind Kind
}{{"task", KindTask}, {"message", KindMessage}, {"statusUpdate", KindStatus}, {"artifactUpdate", KindArtifact}}

// unwrap returns the kind of a result of either generation, and the value itself. A status update
// contains a status with a message, but only a wrapper has one as its only member.
func unwrap(raw []byte) (inner []byte, kind Kind) {
	for _, w := range wrappers {
		if v := rawjson.Get(raw, w.key); rawjson.KindOf(v) == rawjson.KindObject {
			return v, w.kind
		}
	}
	return raw, kindOf(raw)
}
