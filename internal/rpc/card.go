package rpc

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// card is an agent's card as it is served: rendered once, so that every answer and every
// replica has the same bytes and the same ETag.
type card struct {
	body []byte
	etag string
}

// ResumeExtension is the URI of the extension by which streams can be resumed: events have
// ids, Last-Event-ID is honoured, and a gap is marked in the metadata of the Task.
const ResumeExtension = "https://a2ad.dev/extensions/resume/v1"

// renderCard fills in what the server knows and the author of the agent does not.
func (s *Server) renderCard(agent *a2a.Agent, root bool) card {
	c := agent.Card
	url := s.cfg.PublicURL + "/agents/" + agent.Name
	if root {
		url = s.cfg.PublicURL + "/"
	}
	c.Interfaces = []a2a.Interface{{URL: url, Binding: "JSONRPC", Version: "0.3"}}
	c.Streaming, c.Push, c.ExtendedCard = true, s.cfg.Engine != nil && s.cfg.Engine.Pushes(agent), false
	c.Security = s.cfg.Authenticator.Schemes()
	c.Extensions = append(c.Extensions[:len(c.Extensions):len(c.Extensions)], a2a.Extension{
		URI: ResumeExtension, Description: "Streams carry event ids and resume behind Last-Event-ID.",
	})
	body := s.cfg.V03.AppendCard(nil, &c)
	sum := sha256.Sum256(body)
	return card{body: body, etag: `"` + hex.EncodeToString(sum[:16]) + `"`}
}

// serveCard answers a GET or HEAD of an agent's card, which needs no credentials.
func (s *Server) serveCard(w http.ResponseWriter, r *http.Request, agent *served) {
	h := w.Header()
	h.Set("ETag", agent.card.etag)
	h.Set("Cache-Control", "public, max-age=300")
	h.Set("Vary", "A2A-Version")
	if match := r.Header.Get("If-None-Match"); match == "*" || strings.Contains(match, agent.card.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(agent.card.body)))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		w.Write(agent.card.body) //nolint:errcheck // the client is gone
	}
}

// serveJWKS answers with the keys that tokens and signatures of ours verify by. Receivers may
// keep them for an hour: a key is published for longer than that before it signs.
func (s *Server) serveJWKS(w http.ResponseWriter, _ *http.Request) {
	body := s.cfg.JWKS()
	h := w.Header()
	h.Set("Content-Type", "application/jwk-set+json")
	h.Set("Cache-Control", "public, max-age=3600")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	w.Write(body) //nolint:errcheck // the client is gone
}

const extensionsHeader = "X-A2A-Extensions"

// extensionActive reports whether the request asks for the resume extension. Names of
// others are ignored; so is anything behind the first few, which nobody needs.
func (s *Server) extensionActive(r *http.Request) bool {
	for i, line := range r.Header.Values(extensionsHeader) {
		for j, uri := range strings.SplitN(line, ",", 64) {
			if i+j < 64 && strings.TrimSpace(uri) == ResumeExtension {
				return true
			}
		}
	}
	return false
}

// echoExtensions tells the client which of the extensions it asked for are active.
func (s *Server) echoExtensions(w http.ResponseWriter, r *http.Request) {
	if s.extensionActive(r) {
		w.Header().Set(extensionsHeader, ResumeExtension)
	}
}

// markGap says in a Task that events before it are missing from the stream.
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
