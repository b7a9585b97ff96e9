package agents

import (
	"fmt"
	"slices"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// skillKey is the metadata member that names the skill a part is for, in the part or else in its
// message.
const skillKey = "skillId"

// CheckInput refuses a message that the agent does not accept: content types missing from its card,
// and data that does not fit the schema of its skill. The error is for the client.
func CheckInput(agent *a2a.Agent, m *a2a.Message) error {
	if len(agent.Inputs) == 0 && accepts(agent.Card.InputModes, anyType) {
		return nil
	}
	for i := range m.Parts {
		p := &m.Parts[i]
		skill, err := skillOf(agent, m, i)
		if err != nil {
			return err
		}
		modes := inputModes(agent, skill)
		if kind := mediaTypeOf(p); !accepts(modes, kind) {
			e := a2a.Errorf(a2a.CodeContentTypeNotSupported,
				"message.parts[%d]: the agent does not accept %s; it accepts %s", i, clip(kind),
				strings.Join(modes, ", "))
			e.Field = fmt.Sprintf("message.parts[%d]", i)
			return e
		}
		if skill == nil || p.Kind != a2a.PartData {
			continue
		}
		if schema := agent.Inputs[skill.ID]; schema != nil {
			if path, mismatch := schema.Check(p.Data); mismatch != "" {
				return a2a.InvalidParams(fmt.Sprintf("message.parts[%d].data%s", i, path), "%s", mismatch)
			}
		}
	}
	return nil
}

// skillOf returns the skill that a part names, or nil. If no skill has a schema, the name is
// ignored.
func skillOf(agent *a2a.Agent, m *a2a.Message, part int) (*a2a.Skill, error) {
	if len(agent.Inputs) == 0 {
		return nil, nil
	}
	where, value := fmt.Sprintf("message.parts[%d].metadata.", part)+
		skillKey, rawjson.Get(m.Parts[part].Metadata, skillKey)
	if value == nil {
		where, value = "message.metadata."+skillKey, rawjson.Get(m.Metadata, skillKey)
	}
	if value == nil {
		return nil, nil
	}
	id, ok := rawjson.String(value)
	if !ok {
		return nil, a2a.InvalidParams(where, "must be the id of a skill")
	}
	at := slices.IndexFunc(agent.Skills(), func(s a2a.Skill) bool { return s.ID == id })
	if at < 0 {
		return nil, a2a.InvalidParams(where, "the agent has no skill %q", clip(id))
	}
	return &agent.Skills()[at], nil
}

// inputModes returns the media types that a part may have: those of its skill if the skill declares
// any, else those of the agent and all its skills.
func inputModes(agent *a2a.Agent, skill *a2a.Skill) []string {
	if skill != nil && len(skill.InputModes) > 0 {
		return skill.InputModes
	}
	modes := agent.Card.InputModes
	if skill == nil {
		modes = slices.Clone(modes)
		for i := range agent.Skills() {
			for _, mode := range agent.Skills()[i].InputModes {
				if !slices.Contains(modes, mode) {
					modes = append(modes, mode)
				}
			}
		}
	}
	return modes
}

const (
	anyType = "*/*"
	anyText = "text/*"
)

// mediaTypeOf returns the media type of a part in lower case, without parameters. Without one, text
// may be any text, and a file any bytes.
func mediaTypeOf(p *a2a.Part) string {
	kind, _, _ := strings.Cut(p.MediaType, ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	switch {
	case kind != "":
		return kind
	case p.Kind == a2a.PartText:
		return anyText
	case p.Kind == a2a.PartData:
		return "application/json"
	}
	return "application/octet-stream"
}

// accepts reports whether one of the modes covers a type. A card without modes accepts everything.
func accepts(modes []string, kind string) bool {
	for _, mode := range modes {
		mode, _, _ = strings.Cut(mode, ";")
		mode = strings.ToLower(strings.TrimSpace(mode))
		class, whole := strings.CutSuffix(mode, "/*")
		switch {
		case mode == anyType, mode == kind, whole && strings.HasPrefix(kind, class+"/"):
			return true
		case kind == anyText && strings.HasPrefix(mode, "text/"):
			return true
		}
	}
	return len(modes) == 0
}

// clip shortens a client's text, so that it does not fill an answer.
func clip(s string) string {
	const limit = 100
	if len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}
