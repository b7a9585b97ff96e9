package answer

import (
	"strings"

	"github.com/a2ad/a2ad/internal/rawjson"
)

// Card is what a client needs from an agent's card.
type Card struct {
	Name       string
	Streaming  bool
	Interfaces []Interface // in the card's order of preference; those of 1.0 first
}

// Interface is one address of the agent.
type Interface struct {
	URL     string
	Binding string // "JSONRPC", "HTTP+JSON", "GRPC" or another
	Version string // "0.3" or "1.0", without the patch
	Tenant  string // to send with each request of 1.0; "": none
}

// DecodeCard reads the card of an agent, of 0.3, of 1.0 or of both. It fails only if raw is no
// card.
func DecodeCard(raw []byte) (Card, error) {
	var c Card
	var r reader
	if err := rawjson.Check(raw, MaxDepth); err != nil {
		return c, err
	}
	raw = rawjson.Trim(raw)
	var legacy Interface
	legacy.Binding, legacy.Version = "JSONRPC", "0.3"
	var more []Interface
	r.members(raw, "the card", func(key, path string, v []byte) {
		switch key {
		case "name":
			c.Name = r.text(v, path)
		case "url":
			legacy.URL = r.text(v, path)
		case "preferredTransport":
			legacy.Binding = r.text(v, path)
		case "protocolVersion":
			legacy.Version = minor(r.text(v, path))
		case "capabilities":
			if v := member(v, "streaming"); v != nil {
				c.Streaming = r.truth(v, path+".streaming")
			}
		case "supportedInterfaces":
			r.list(v, path, func(path string, v []byte) {
				c.Interfaces = append(c.Interfaces, r.face(v, path, "protocolBinding"))
			})
		case "additionalInterfaces":
			r.list(v, path, func(path string, v []byte) { more = append(more, r.face(v, path, "transport")) })
		}
	})
	if legacy.URL != "" {
		c.Interfaces = append(c.Interfaces, legacy)
		for _, i := range more {
			i.Version = legacy.Version
			c.Interfaces = append(c.Interfaces, i)
		}
	}
	if len(c.Interfaces) == 0 {
		r.fail("the card", "names no interface")
	}
	return c, r.err
}

func (r *reader) face(v []byte, path, binding string) (i Interface) {
	r.members(v, path, func(key, path string, v []byte) {
		switch key {
		case "url":
			i.URL = r.text(v, path)
		case binding:
			i.Binding = r.text(v, path)
		case "protocolVersion":
			i.Version = minor(r.text(v, path))
		case "tenant":
			i.Tenant = r.text(v, path)
		}
	})
	return i
}

// minor shortens a version to what matters on the wire: "0.3.0" becomes "0.3".
func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return version
	}
	return parts[0] + "." + parts[1]
}
