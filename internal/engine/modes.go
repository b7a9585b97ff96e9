package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
)

// checkModes refuses a message with content that the agent does not take, if it insists (T-16 in
// docs/protocol.md).
func checkModes(agent *a2a.Agent, m *a2a.Message) error {
	if !agent.EnforceInputModes {
		return nil
	}
	for i := range m.Parts {
		kind := mediaType(&m.Parts[i])
		if slices.ContainsFunc(agent.Card.InputModes, func(mode string) bool { return takes(mode, kind) }) {
			continue
		}
		field := fmt.Sprintf("message.parts[%d]", i)
		return &a2a.Error{
			Code: a2a.CodeContentTypeNotSupported, Field: field,
			Message: fmt.Sprintf("%s: the agent takes %s, not %.100q", field, strings.Join(agent.Card.InputModes, ", "), kind),
		}
	}
	return nil
}

// mediaType is what a part says it is, else what parts of its kind are.
func mediaType(p *a2a.Part) string {
	if p.MediaType != "" {
		return p.MediaType
	}
	switch p.Kind {
	case a2a.PartText:
		return "text/plain"
	case a2a.PartData:
		return "application/json"
	}
	return "application/octet-stream"
}

// takes reports whether a mode, which may be a range such as text/*, covers a media type.
// Parameters say nothing, and neither does case.
func takes(mode, kind string) bool {
	mode, kind = bare(mode), bare(kind)
	if prefix, ok := strings.CutSuffix(mode, "/*"); ok {
		family, _, _ := strings.Cut(kind, "/")
		return prefix == "*" || prefix == family
	}
	return mode == kind
}

func bare(s string) string {
	s, _, _ = strings.Cut(s, ";")
	return strings.ToLower(strings.TrimSpace(s))
}
