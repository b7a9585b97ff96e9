package rpc

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/encode"
)

// card is the card of an agent, rendered once, so that all answers of all replicas have the same
// bytes and the same ETag.
type card struct {
	shown
	canonical []byte                 // the bytes to sign; nil: the card is not signed
	signed    atomic.Pointer[signed] // the signed card that was served last
}

// shown holds the bytes of a card, and the values by which clients check whether theirs are
// current.
type shown struct {
	body     []byte
	etag     string
	modified time.Time // whole seconds, as in HTTP dates
}

func newCard(body []byte) *card { return &card{shown: newShown(body)} }

func newShown(body []byte) shown {
	sum := sha256.Sum256(body)
	return shown{body: body, etag: `"` + hex.EncodeToString(sum[:16]) + `"`, modified: time.Now().Truncate(time.Second)}
}

// follow says that these bytes replace older ones. It makes them at least a second younger, so that
// their dates differ even if both were made within one second.
func (s *shown) follow(old time.Time) {
	if !s.modified.After(old) {
		s.modified = old.Add(time.Second)
	}
}

// have reports whether the client has these bytes already, by ETag or else by date.
func (s *shown) have(h http.Header) bool {
	if match := h.Get("If-None-Match"); match != "" {
		return match == "*" || strings.Contains(match, s.etag)
	}
	since, err := http.ParseTime(h.Get("If-Modified-Since"))
	return err == nil && !s.modified.After(since)
}

// lastModified returns the date for the header, which is never in the future.
func (s *shown) lastModified() string {
	at := s.modified
	if now := time.Now(); at.After(now) {
		at = now
	}
	return at.UTC().Format(http.TimeFormat)
}

// cards are the forms of one card: one for each version of the protocol, and a combined one for
// clients that name no version.
type cards struct {
	of  map[string]*card
	all *card
}

// keep carries over the cards from before a reload that did not change, with their dates and
// signatures.
func (c *cards) keep(old cards) {
	same := func(now, before *card) *card {
		if before == nil || now == nil {
			return now
		}
		if bytes.Equal(now.body, before.body) {
			return before
		}
		now.follow(before.last())
		return now
	}
	for version, now := range c.of {
		if kept := same(now, old.of[version]); kept != now {
			if c.of[version] = kept; c.all == now {
				c.all = kept
			}
		}
	}
	c.all = same(c.all, old.all)
}

// last returns when the card changed last. A new signing key counts as a change.
func (c *card) last() time.Time {
	if s := c.signed.Load(); s != nil {
		return s.modified
	}
	return c.modified
}

// renderCards adds to the cards of an agent what the server knows and the agent's author does not.
func (s *Server) renderCards(sv *served, root bool) error {
	c := s.complete(sv, root, sv.agent.Card)
	sv.extensions = c.Extensions
	var err error
	if sv.cards, err = s.views(&c); err != nil || sv.agent.Extended == nil {
		return err
	}
	extended := s.complete(sv, root, *sv.agent.Extended)
	sv.extended, err = s.views(&extended)
	return err
}

// views renders a card in all versions.
func (s *Server) views(c *a2a.Card) (cards, error) {
	if err := checkRequirements(c); err != nil {
		return cards{}, err
	}
	v := cards{of: make(map[string]*card, len(s.generations))}
	var all []byte
	var last *card
	for _, g := range s.generations {
		one, body := c, []byte(nil)
		if s.cfg.CardSigner != nil && g.SignsCards() {
			sparse := signable(*c)
			one = &sparse
		}
		body = g.AppendCard(nil, one)
		view := newCard(body)
		if one != c {
			var err error
			if view.canonical, err = canonical(body); err != nil {
				return cards{}, err
			}
		}
		v.of[g.Version()], last = view, view
		if all == nil || s.cfg.PureCard {
			all = body
		} else {
			all = encode.Union(nil, body, all)
		}
	}
	if v.all = newCard(all); s.cfg.PureCard || len(s.generations) == 1 {
		v.all = last
	}
	return v, nil
}

// checkRequirements refuses a card that names sign-in schemes that the server does not have.
func checkRequirements(c *a2a.Card) error {
	var names []string
	for i := range c.Security {
		names = append(names, c.Security[i].Name)
	}
	for i := range c.Skills {
		for _, r := range c.Skills[i].Security {
			for _, scheme := range r {
				if !slices.Contains(names, scheme.Name) {
					return fmt.Errorf("skill %s asks for the security scheme %q, and this server has %s",
						c.Skills[i].ID, scheme.Name, cmp.Or(strings.Join(names, ", "), "none"))
				}
			}
		}
	}
	return nil
}

// complete returns the card of an agent with what the server knows.
func (s *Server) complete(sv *served, root bool, c a2a.Card) a2a.Card {
	base := s.cfg.PublicURL + "/agents/" + sv.agent.Name
	url := base
	if root {
		base, url = s.cfg.PublicURL, s.cfg.PublicURL+"/"
	}
	c.Interfaces = nil
	for i := len(s.generations) - 1; i >= 0; i-- { // the newest version is preferred
		v := s.generations[i].Version()
		c.Interfaces = append(c.Interfaces, a2a.Interface{URL: url, Binding: "JSONRPC", Version: v},
			a2a.Interface{URL: base, Binding: "HTTP+JSON", Version: v})
		c.Interfaces = append(c.Interfaces, s.grpcInterfaces(sv, root, v)...)
	}
	c.Streaming = true
	c.Push = s.cfg.Engine != nil && s.cfg.Engine.Pushes(sv.agent)
	c.ExtendedCard = sv.agent.Extended != nil
	c.Security = s.cfg.Authenticator.Schemes()
	c.Extensions = append(c.Extensions[:len(c.Extensions):len(c.Extensions)], a2a.Extension{
		URI: ResumeExtension, Description: "Streams carry event ids and resume after Last-Event-ID.",
	})
	if params := skillSchemas(c.Skills); params != nil {
		c.Extensions = append(c.Extensions, a2a.Extension{
			URI: SchemaExtension, Params: params,
			Description: "JSON Schemas of skills. " +
				"A data part is for the skill that its metadata, or that of its message, names under skillId.",
		})
	}
	return c
}

// Card returns the public card of an agent, with what the server knows, at the agent's own path.
func (s *Server) Card(agent string) (card a2a.Card, ok bool) {
	sv := s.agent(agent)
	if sv == nil || sv.removed {
		return a2a.Card{}, false
	}
	return s.complete(sv, false, sv.agent.Card), true
}

// grpcInterfaces returns the gRPC interfaces of an agent. All agents share the address of the
// server: 1.0 names an agent by the tenant, and 0.3 reaches only the default agent.
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

// serveCard answers a GET or HEAD of an agent's card, which needs no credentials. For an unknown
// version it names the versions that the server speaks.
func (s *Server) serveCard(w http.ResponseWriter, r *http.Request, agent *served) {
	recordOf(r.Context()).route = "/.well-known/agent-card.json"
	if agent.removed {
		s.writePlainError(w, http.StatusNotFound)
		return
	}
	view := agent.cards.all
	if g, err := s.asked(r.Header, r.URL.RawQuery); err == nil && g != nil {
		view = agent.cards.of[g.Version()]
	}
	now, err := s.current(view)
	if err != nil {
		s.cfg.Logger.ErrorContext(r.Context(), "card", "agent", agent.agent.Name, "err", err)
		s.writePlainError(w, http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("ETag", now.etag)
	h.Set("Last-Modified", now.lastModified())
	h.Set("Cache-Control", "public, max-age=300")
	h.Add("Vary", versionName) // in addition to Origin: see guarded
	if now.have(r.Header) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(now.body)))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		w.Write(now.body) //nolint:errcheck // the client disconnected
	}
}

// extendedCard answers with the card for signed-in callers, in the version of the request. Caches
// must not store it.
func (c *call) extendedCard(op *a2a.GetExtendedCard) error {
	if c.agent.extended.of == nil {
		return a2a.Errorf(op.Undeclared, "there is no extended card")
	}
	c.reply.Set("Cache-Control", "private, no-store")
	card, err := c.s.current(c.agent.extended.of[c.gen.Version()])
	if err != nil {
		return err
	}
	c.front.answer(card.body)
	return nil
}

// serveJWKS answers with the public keys of our tokens and signatures. Receivers may cache them for
// an hour, because a key is published for longer than that before it signs.
func (s *Server) serveJWKS(w http.ResponseWriter, r *http.Request) {
	recordOf(r.Context()).route = "/.well-known/jwks.json"
	body := s.cfg.JWKS()
	h := w.Header()
	h.Set("Content-Type", "application/jwk-set+json")
	h.Set("Cache-Control", "public, max-age=3600")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	w.Write(body) //nolint:errcheck // the client disconnected
}
