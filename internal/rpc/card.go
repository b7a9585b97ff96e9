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

func newCard(body []byte) card {
	sum := sha256.Sum256(body)
	return card{body: body, etag: `"` + hex.EncodeToString(sum[:16]) + `"`}
}

// cards are the views of one card: of each generation, and of all together for clients that
// do not say which they speak.
type cards struct {
	of  map[*generation]card
	all card
}

// renderCards fills in what the server knows and the author of the agent does not.
func (s *Server) renderCards(sv *served, root bool) {
	c := sv.agent.Card
	base := s.cfg.PublicURL + "/agents/" + sv.agent.Name
	url := base
	if root {
		base, url = s.cfg.PublicURL, s.cfg.PublicURL+"/"
	}
	c.Interfaces = nil
	for i := len(s.generations) - 1; i >= 0; i-- { // the newest is preferred
		v := s.generations[i].Version()
		c.Interfaces = append(c.Interfaces, a2a.Interface{URL: url, Binding: "JSONRPC", Version: v}, a2a.Interface{URL: base, Binding: "HTTP+JSON", Version: v})
		c.Interfaces = append(c.Interfaces, s.grpcInterfaces(sv, root, v)...)
	}
	c.Streaming, c.Push, c.ExtendedCard = true, s.cfg.Engine != nil && s.cfg.Engine.Pushes(sv.agent), false
	c.Security = s.cfg.Authenticator.Schemes()
	c.Extensions = append(c.Extensions[:len(c.Extensions):len(c.Extensions)], a2a.Extension{
		URI: ResumeExtension, Description: "Streams carry event ids and resume behind Last-Event-ID.",
	})
	if params := skillSchemas(c.Skills); params != nil {
		c.Extensions = append(c.Extensions, a2a.Extension{
			URI: SchemaExtension, Params: params,
			Description: "JSON Schemas of skills. A data part is for the skill that its metadata, or that of its message, names under skillId.",
		})
	}
	sv.extensions = c.Extensions
	sv.cards.of = make(map[*generation]card, len(s.generations))
	var all []byte
	for _, g := range s.generations {
		body := g.AppendCard(nil, &c)
		sv.cards.of[g] = newCard(body)
		if all == nil || s.cfg.PureCard {
			all = body
		} else {
			all = appendUnion(nil, body, all)
		}
	}
	sv.cards.all = newCard(all)
}

// grpcInterfaces returns where an agent answers on gRPC, if it does. Its address is that of the
// server: 1.0 names an agent by the tenant, and 0.3 has only the one that answers at /.
func (s *Server) grpcInterfaces(sv *served, root bool, version string) []a2a.Interface {
	at := a2a.Interface{URL: s.cfg.GRPCAddress, Binding: "GRPC", Version: version}
	switch {
	case at.URL == "", !root && version == "0.3":
		return nil
	case !root:
		at.Tenant = sv.agent.Name
	}
	return []a2a.Interface{at}
}

// skillSchemas returns the params of SchemaExtension, or nil if no skill has a schema.
func skillSchemas(skills []a2a.Skill) a2a.Raw {
	var dst []byte
	for i := range skills {
		s := &skills[i]
		if s.InputSchema == nil && s.OutputSchema == nil {
			continue
		}
		if dst == nil {
			dst = append(dst, `{"skillSchemas":{`...)
		} else {
			dst = append(dst, ',')
		}
		dst = append(rawjson.AppendString(dst, s.ID), ":{"...)
		if s.InputSchema != nil {
			dst = append(append(dst, `"inputSchema":`...), s.InputSchema...)
		}
		if s.OutputSchema != nil {
			if s.InputSchema != nil {
				dst = append(dst, ',')
			}
			dst = append(append(dst, `"outputSchema":`...), s.OutputSchema...)
		}
		dst = append(dst, '}')
	}
	if dst == nil {
		return nil
	}
	return append(dst, "}}"...)
}

// appendUnion appends an object with the members of two. Where both have one that of the
// first counts, unless both are objects: then it has the members of both.
func appendUnion(dst, first, second []byte) []byte {
	dst = append(dst, '{')
	for key, v := range rawjson.Members(first) {
		dst = append(rawjson.AppendString(dst, string(key)), ':')
		other := rawjson.Get(second, string(key))
		if rawjson.KindOf(v) == rawjson.KindObject && rawjson.KindOf(other) == rawjson.KindObject {
			dst = appendUnion(dst, v, other)
		} else {
			dst = append(dst, v...)
		}
		dst = append(dst, ',')
	}
	for key, v := range rawjson.Members(second) {
		if rawjson.Get(first, string(key)) == nil {
			dst = append(append(rawjson.AppendString(dst, string(key)), ':'), v...)
			dst = append(dst, ',')
		}
	}
	if dst[len(dst)-1] == ',' {
		dst = dst[:len(dst)-1]
	}
	return append(dst, '}')
}

// serveCard answers a GET or HEAD of an agent's card, which needs no credentials. A version
// that the server does not speak is told what it does.
func (s *Server) serveCard(w http.ResponseWriter, r *http.Request, agent *served) {
	recordOf(r.Context()).route = "/.well-known/agent-card.json"
	if agent.removed {
		s.writePlainError(w, http.StatusNotFound)
		return
	}
	view := agent.cards.all
	if g, err := s.asked(r.Header, r.URL.RawQuery); err == nil && g != nil {
		view = agent.cards.of[g]
	}
	h := w.Header()
	h.Set("ETag", view.etag)
	h.Set("Cache-Control", "public, max-age=300")
	h.Set("Vary", versionName)
	if match := r.Header.Get("If-None-Match"); match == "*" || strings.Contains(match, view.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(view.body)))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		w.Write(view.body) //nolint:errcheck // the client is gone
	}
}

// serveJWKS answers with the keys that tokens and signatures of ours verify by. Receivers may
// keep them for an hour: a key is published for longer than that before it signs.
func (s *Server) serveJWKS(w http.ResponseWriter, r *http.Request) {
	recordOf(r.Context()).route = "/.well-known/jwks.json"
	body := s.cfg.JWKS()
	h := w.Header()
	h.Set("Content-Type", "application/jwk-set+json")
	h.Set("Cache-Control", "public, max-age=3600")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	w.Write(body) //nolint:errcheck // the client is gone
}
