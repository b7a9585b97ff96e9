package agents

import (
	"slices"

	"github.com/a2ad/a2ad/internal/a2a"
)

// byServer are members of a card that only the running server knows.
var byServer = func() map[string]string {
	all := map[string]string{}
	for _, key := range []string{
		"supportedInterfaces", "url", "preferredTransport", "additionalInterfaces", "protocolVersion",
		"securitySchemes", "securityRequirements", "security", "signatures", "supportsAuthenticatedExtendedCard",
	} {
		all[key] = "card." + key + " is filled in by the server from its configuration; leave the line out"
	}
	all["capabilities"] = "card.capabilities is filled in by the server from what it can do; leave the line out, and name extensions under extensions"
	return all
}()

// card returns the keys that describe the agent.
func (d *decoder) card(c *a2a.Card) []field {
	return []field{
		{"description", "", d.text("description", &c.Description)},
		{"version", "", d.text("version", &c.Version)},
		{"documentation_url", "documentationUrl", d.url("documentation_url", &c.DocumentationURL)},
		{"icon_url", "iconUrl", d.url("icon_url", &c.IconURL)},
		{"provider", "", func(n node) { d.provider(n, c) }},
		{"skills", "", func(n node) { d.skills(n, c) }},
		{"extensions", "", func(n node) { d.extensions(n, c) }},
		{"input_modes", "defaultInputModes", d.modes("input_modes", &c.InputModes)},
		{"output_modes", "defaultOutputModes", d.modes("output_modes", &c.OutputModes)},
	}
}

// plain returns the fields without their names in a 1.0 card.
func plain(fields []field) []field {
	out := slices.Clone(fields)
	for i := range out {
		out[i].alias = ""
	}
	return out
}

func (d *decoder) provider(n node, c *a2a.Card) {
	p := &a2a.Provider{}
	lines := d.mapping(n, "provider", []field{
		{name: "organization", read: d.text("provider.organization", &p.Organization)},
		{name: "url", read: d.url("provider.url", &p.URL)},
	}, map[string]string{"name": "provider has no name; the key is organization"})
	for _, key := range []string{"organization", "url"} {
		if n.kind == kindMap && lines[key] == 0 {
			d.fault(n.line, "provider has no %s; write provider: {organization: Example, url: https://example.com}", key)
		}
	}
	c.Provider = p
}

func (d *decoder) skills(n node, c *a2a.Card) {
	if n.kind != kindList || len(n.list) == 0 {
		d.fault(n.line, "skills must be a list with at least one skill; leave it out for one made of name and description")
		return
	}
	seen := map[string]int{}
	for _, e := range n.list {
		s := d.skill(e)
		if at, twice := seen[s.ID]; twice && s.ID != "" {
			d.fault(e.line, "the skill id %q stands on line %d already; choose another", s.ID, at)
		}
		seen[s.ID] = e.line
		c.Skills = append(c.Skills, s)
	}
}

func (d *decoder) skill(n node) a2a.Skill {
	var s a2a.Skill
	var in schema
	lines := d.mapping(n, "a skill", []field{
		{"id", "", d.text("id", &s.ID)},
		{"name", "", d.text("name", &s.Name)},
		{"description", "", d.text("description", &s.Description)},
		{"tags", "", d.texts("tags", &s.Tags)},
		{"examples", "", d.texts("examples", &s.Examples)},
		{"input_modes", "inputModes", d.modes("input_modes", &s.InputModes)},
		{"output_modes", "outputModes", d.modes("output_modes", &s.OutputModes)},
		{"input_schema", "inputSchema", d.schema("input_schema", &s.InputSchema, &in)},
		{"output_schema", "outputSchema", d.schema("output_schema", &s.OutputSchema, new(schema))},
	}, nil)
	if n.kind == kindMap && lines["id"] == 0 {
		d.fault(n.line, "a skill has no id; add one, like id: count")
	}
	if in.compiled != nil {
		if d.inputs == nil {
			d.inputs = make(map[string]a2a.Schema)
		}
		d.inputs[s.ID] = in
	}
	return s
}

var (
	textOnly    = []string{"text/plain"}
	textAndJSON = []string{"text/plain", "application/json"}
	anything    = []string{"*/*"}
)

// fill puts in what the author left out, so that every card is complete.
func fill(f *File) {
	c := &f.Agent.Card
	if c.Name == "" {
		c.Name = f.Agent.Name
	}
	if c.Version == "" {
		c.Version = "1.0.0"
	}
	if len(c.Skills) == 0 {
		c.Skills = []a2a.Skill{{ID: f.Agent.Name, Name: c.Name, Description: c.Description}}
	}
	for i := range c.Skills {
		s := &c.Skills[i]
		if s.Name == "" {
			s.Name = s.ID
		}
		if s.Description == "" {
			s.Description = c.Description
		}
		if len(s.Tags) == 0 {
			s.Tags = []string{f.Agent.Name}
		}
	}
	in, out := modes(f.Executor)
	if c.InputModes == nil {
		c.InputModes = slices.Clone(in)
	}
	if c.OutputModes == nil {
		c.OutputModes = slices.Clone(out)
	}
}

// modes returns the default input and output modes of an executor.
func modes(s Spec) (in, out []string) {
	switch e := s.(type) {
	case Exec:
		in, out = textAndJSON, textAndJSON
		if e.Input == "text" {
			in = textOnly
		}
		if e.Output == "text" {
			out = textOnly
		}
		return in, out
	case HTTP, Pull:
		return textAndJSON, textAndJSON
	}
	return anything, textAndJSON // the built-in ones take what they get, and an agent elsewhere decides itself
}
