package rpc

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/a2ad/a2ad/internal/wire"
)

// restPath is a parsed path of the HTTP+JSON binding.
type restPath struct {
	gen      *generation
	agent    *served // nil: the path does not name it, but the request may
	route    string  // the path with placeholders, for people
	taskID   string
	configID string
	actions  actions
}

// actions maps the HTTP methods of a path to what they do.
type actions map[string]wire.Action

var (
	sendActions      = actions{http.MethodPost: wire.ActionSend}
	streamActions    = actions{http.MethodPost: wire.ActionStream}
	tasksActions     = actions{http.MethodGet: wire.ActionList}
	taskActions      = actions{http.MethodGet: wire.ActionGet}
	cancelActions    = actions{http.MethodPost: wire.ActionCancel}
	subscribeActions = actions{http.MethodGet: wire.ActionSubscribe, http.MethodPost: wire.ActionSubscribe} // T-21
	pushesActions    = actions{http.MethodGet: wire.ActionListPushes, http.MethodPost: wire.ActionSetPush}
	pushActions      = actions{http.MethodGet: wire.ActionGetPush, http.MethodDelete: wire.ActionDeletePush}
	cardActions      = actions{http.MethodGet: wire.ActionExtendedCard}
)

// allow returns the value of the Allow header.
func (a actions) allow() string {
	var methods []string
	for _, m := range [...]string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		if a[m] != 0 {
			methods = append(methods, m)
		}
	}
	return strings.Join(methods, ", ")
}

// restPath parses a path with its escapes: an escaped slash is part of an id, not of the structure
// of the path. It ignores slashes at either end, and returns nil for paths of no binding.
func (s *Server) restPath(escaped string) *restPath {
	segments := strings.Split(strings.Trim(escaped, "/"), "/")
	p := &restPath{}
	if segments[0] == "agents" && len(segments) > 2 {
		if p.agent = s.agent(unescape(segments[1])); p.agent == nil {
			return nil
		}
		segments = segments[2:]
		p.route = "/agents/{agent}"
	}
	for _, g := range s.generations {
		prefix, card := g.Paths()
		rest, route := segments, p.route
		if prefix != "" {
			if segments[0] != prefix {
				continue
			}
			rest, route = segments[1:], route+"/"+prefix
		}
		p.gen = g
		if p.resource(rest, route, card) {
			return p
		}
		// Where paths have no prefix they may begin with a tenant, which names an agent.
		if prefix == "" && p.agent == nil && p.resource(rest[1:], "/{tenant}", card) {
			p.agent = s.agent(unescape(rest[0]))
			if p.agent != nil {
				return p
			}
			return nil
		}
	}
	return nil
}

// resource parses the segments after the prefix.
func (p *restPath) resource(segments []string, route, card string) bool {
	if len(segments) == 0 || len(segments) > 4 {
		return false
	}
	if len(segments) == 1 {
		switch word := unescape(segments[0]); word {
		case "message:send":
			p.actions = sendActions
		case "message:stream":
			p.actions = streamActions
		case "tasks":
			p.actions = tasksActions
		case card:
			p.actions = cardActions
		default:
			return false
		}
		p.route = route + "/" + unescape(segments[0])
		return true
	}
	if segments[0] != "tasks" || segments[1] == "" {
		return false
	}
	route += "/tasks/{id}"
	id := segments[1]
	if len(segments) == 2 {
		p.actions = taskActions
		for verb, can := range map[string]actions{":cancel": cancelActions, ":subscribe": subscribeActions} {
			if before, ok := strings.CutSuffix(id, verb); ok && before != "" {
				id, p.actions, route = before, can, route+verb
				break
			}
		}
		p.taskID, p.route = unescape(id), route
		return true
	}
	if segments[2] != "pushNotificationConfigs" {
		return false
	}
	route += "/pushNotificationConfigs"
	p.taskID, p.actions = unescape(id), pushesActions
	if len(segments) == 4 {
		if segments[3] == "" {
			return false
		}
		p.configID, p.actions = unescape(segments[3]), pushActions
		route += "/{id}"
	}
	p.route = route
	return true
}

// unescape returns a segment without escapes, as valid UTF-8.
func unescape(segment string) string {
	if plain, err := url.PathUnescape(segment); err == nil {
		segment = plain
	}
	return strings.ToValidUTF8(segment, "\uFFFD")
}
