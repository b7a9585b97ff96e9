package rpc

import (
	"net/http"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// ResumeExtension is the URI of the extension that makes streams resumable: events have ids, the
// server honors Last-Event-ID, and the metadata of the Task marks a gap.
const ResumeExtension = "https://a2ad.dev/extensions/resume/v1"

// SchemaExtension is the URI of the extension with which a card publishes the JSON Schemas of its
// skills (L-18 in docs/reference/protocol.md). It is only data: there is nothing to activate.
const SchemaExtension = "https://a2ad.dev/extensions/skill-schemas/v1"

// extensionHeaders are the headers in which clients ask for extensions, in 1.0 and in 0.3. Both
// work in any version, and the answer uses the same name.
var extensionHeaders = [...]string{"A2A-Extensions", "X-A2A-Extensions"}

// maxExtensions bounds how many names of a header are checked. No real client sends as many.
const maxExtensions = 64

// wants reports whether a header of the given name asks for an extension.
func wants(h http.Header, name, uri string) bool {
	for i, line := range h.Values(name) {
		for j, asked := range strings.SplitN(line, ",", maxExtensions) {
			if i+j < maxExtensions && strings.TrimSpace(asked) == uri {
				return true
			}
		}
	}
	return false
}

// wantsExtension reports whether a request asks for an extension.
func wantsExtension(h http.Header, uri string) bool {
	for _, name := range extensionHeaders {
		if wants(h, name, uri) {
			return true
		}
	}
	return false
}

// agreeExtensions refuses a request without an extension that the agent requires. Otherwise it
// tells the client which of the requested extensions are active, and ignores unknown ones.
func (c *call) agreeExtensions() error {
	declared := c.agent.extensions
	for _, e := range declared {
		if e.Required && !wantsExtension(c.header, e.URI) {
			return a2a.Errorf(a2a.CodeExtensionRequired, "the agent requires the extension %s: name it in %s", e.URI,
				extensionHeaders[0])
		}
	}
	for _, name := range extensionHeaders {
		if len(c.header.Values(name)) == 0 {
			continue
		}
		var active []string
		for _, e := range declared {
			if wants(c.header, name, e.URI) {
				active = append(active, e.URI)
			}
		}
		if len(active) > 0 {
			c.reply.Set(name, strings.Join(active, ", "))
		}
	}
	return nil
}

// activated returns the requested extensions that the agent itself declares. It leaves out those of
// the server, which do not concern the agent.
func (c *call) activated() (uris []string) {
	for _, e := range c.agent.agent.Card.Extensions {
		if wantsExtension(c.header, e.URI) {
			uris = append(uris, e.URI)
		}
	}
	return uris
}

// markGap marks in a Task that events before it are missing from the stream.
func markGap(t *a2a.Task) {
	mark := append(rawjson.AppendString(nil, ResumeExtension), `:{"gap":true}`...)
	if len(t.Metadata) == 0 {
		t.Metadata = append(append(a2a.Raw{'{'}, mark...), '}')
		return
	}
	merged := append(a2a.Raw{'{'}, mark...)
	for k, v := range rawjson.Members(t.Metadata) {
		if string(k) != ResumeExtension {
			merged = append(append(rawjson.AppendString(append(merged, ','), string(k)), ':'), v...)
		}
	}
	t.Metadata = append(merged, '}')
}
