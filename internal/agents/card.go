package agents

import (
	"cmp"
	"maps"
	"slices"

	"github.com/a2ad/a2ad/internal/a2a"
)

// byServer are members of a card that only the running server can fill in.
var byServer = func() map[string]string {
	all := map[string]string{}
	for _, key := range []string{
		"supportedInterfaces", "url", "preferredTransport", "additionalInterfaces", "protocolVersion",
		"securitySchemes", "securityRequirements", "security", "signatures", "supportsAuthenticatedExtendedCard",
	} {
		all[key] = "card." + key + " is filled in by the server from its configuration; leave the line out"
	}
	all["capabilities"] = "card.capabilities is filled in by the server from what it can do; " +
		"leave the line out, and name extensions under extensions"
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
			d.fault(n.line, "provider has no %s; write provider: {organization: Example, url: https://example.com}",
				key)
		}
	}
	c.Provider = p
}

func (d *decoder) skills(n node, c *a2a.Card) {
	if n.kind != kindList || len(n.list) == 0 {
		d.fault(n.line,
			"skills must be a list with at least one skill; leave it out for one made of name and description")
		return
	}
	seen := map[string]int{}
	for _, e := range n.list {
		s := d.skill(e)
		if at, twice := seen[s.ID]; twice && s.ID != "" {
			d.fault(e.line, "the skill id %q is on line %d already; choose another", s.ID, at)
		}
		seen[s.ID] = e.line
		c.Skills = append(c.Skills, s)
	}
}

func (d *decoder) skill(n node) a2a.Skill {
	var s a2a.Skill
	var in compiledSchema
	lines := d.mapping(n, "a skill", []field{
		{"id", "", d.text("id", &s.ID)},
		{"name", "", d.text("name", &s.Name)},
		{"description", "", d.text("description", &s.Description)},
		{"tags", "", d.texts("tags", &s.Tags)},
		{"examples", "", d.texts("examples", &s.Examples)},
		{"input_modes", "inputModes", d.modes("input_modes", &s.InputModes)},
		{"output_modes", "outputModes", d.modes("output_modes", &s.OutputModes)},
		{"input_schema", "inputSchema", d.schema("input_schema", &s.InputSchema, &in)},
		{"output_schema", "outputSchema", d.schema("output_schema", &s.OutputSchema, new(compiledSchema))},
		{"security", "", func(n node) { d.security(n, &s.Security) }},
	}, nil)
	if n.kind == kindMap && lines["id"] == 0 {
		d.fault(n.line, "a skill has no id; add one, like id: count")
	}
	if in.Schema != nil {
		if d.inputs == nil {
			d.inputs = make(map[string]a2a.Schema)
		}
		d.inputs[s.ID] = in
	}
	return s
}

// security reads the sign-in requirements of a skill. One element of the list is enough, and it
// needs all of its schemes.
func (d *decoder) security(n node, dst *[]a2a.Requirement) {
	const example = "security must be a list of mappings from schemes to scopes; " +
		"write [{oidc: [reports]}, {apiKey: []}]"
	if n.kind != kindList || len(n.list) == 0 {
		d.fault(n.line, example)
		return
	}
	for _, e := range n.list {
		if e.kind != kindMap || len(e.members) == 0 {
			d.fault(e.line, example)
			continue
		}
		var r a2a.Requirement
		for _, m := range e.members {
			scheme := a2a.RequiredScheme{Name: m.key}
			d.texts("security."+m.key, &scheme.Scopes)(m.value)
			r = append(r, scheme)
		}
		*dst = append(*dst, r)
	}
}

// extended reads the card for signed-in callers. Its members override those of the public card, and
// its skills come after the public ones.
func (d *decoder) extended(n node, x *a2a.Card) {
	fields := append([]field{{name: "name", read: d.text("extended_card.name", &x.Name)}}, d.card(x)...)
	fields = slices.DeleteFunc(fields, func(f field) bool { return f.name == "extensions" })
	gone := maps.Clone(byServer)
	gone["extensions"] = "extensions are the same for all callers; name them at the top of the file"
	d.mapping(n, "extended_card", fields, gone)
}

// extend completes the card for signed-in callers from the public one.
func (d *decoder) extend(name string, public, x *a2a.Card, line int) *a2a.Card {
	c := *public
	for _, t := range []struct{ dst, src *string }{
		{&c.Name, &x.Name}, {&c.Description, &x.Description}, {&c.Version, &x.Version},
		{&c.DocumentationURL, &x.DocumentationURL}, {&c.IconURL, &x.IconURL},
	} {
		*t.dst = cmp.Or(*t.src, *t.dst)
	}
	if x.Provider != nil {
		c.Provider = x.Provider
	}
	if x.InputModes != nil {
		c.InputModes = x.InputModes
	}
	if x.OutputModes != nil {
		c.OutputModes = x.OutputModes
	}
	c.Skills = slices.Concat(public.Skills, x.Skills)
	for i, s := range x.Skills {
		if slices.ContainsFunc(public.Skills, func(p a2a.Skill) bool { return p.ID == s.ID }) {
			d.fault(line, "extended_card: the skill id %q is that of a public skill; choose another", s.ID)
		}
		fillSkill(&c.Skills[len(public.Skills)+i], &c, []string{name})
	}
	return &c
}

var (
	textOnly    = []string{"text/plain"}
	textAndJSON = []string{"text/plain", "application/json"}
	anything    = []string{"*/*"}
)

// fill sets what the author left out, so that every card is complete.
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
		fillSkill(&c.Skills[i], c, []string{f.Agent.Name})
	}
	in, out := modes(f.Executor)
	if c.InputModes == nil {
		c.InputModes = slices.Clone(in)
	}
	if c.OutputModes == nil {
		c.OutputModes = slices.Clone(out)
	}
}

func fillSkill(s *a2a.Skill, c *a2a.Card, tags []string) {
	if s.Name == "" {
		s.Name = s.ID
	}
	if s.Description == "" {
		s.Description = c.Description
	}
	if len(s.Tags) == 0 {
		s.Tags = tags
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
	return anything, textAndJSON // the built-in agents accept anything, and a remote agent decides itself
}
