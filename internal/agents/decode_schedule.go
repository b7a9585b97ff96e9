package agents

import (
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/cron"
)

const (
	defaultTenant  = "default" // of callers whose credentials name none
	defaultCatchUp = time.Hour
	maxCatchUp     = 7 * 24 * time.Hour
	maxJitter      = 24 * time.Hour
	maxOwner       = 200 // bytes, as in an API key
)

func (d *decoder) schedules(n node, list *[]a2a.Schedule) {
	if n.kind != kindList {
		d.fault(n.line, "schedules must be a list, not %s; write "+
			"[{name: daily, cron: \"0 8 * * *\", owner: reports, message: Write the report.}]", n.kind)
		return
	}
	seen := map[string]int{}
	for _, e := range n.list {
		s := d.schedule(e)
		if at := seen[s.Name]; at != 0 && s.Name != "" {
			d.fault(e.line, "the schedule name %q is on line %d already; choose another", s.Name, at)
		}
		seen[s.Name] = e.line
		*list = append(*list, s)
		d.scheduleLines = append(d.scheduleLines, e.line)
	}
}

// checkMessages refuses schedules whose message the agent would refuse from a client.
func (d *decoder) checkMessages(a *a2a.Agent) {
	for i := range a.Schedules {
		s := &a.Schedules[i]
		if err := CheckInput(a, &s.Message); err != nil {
			d.fault(d.scheduleLines[i], "the agent does not accept the message of schedule %s: %s", s.Name, err)
		}
	}
}

func (d *decoder) schedule(n node) a2a.Schedule {
	s := a2a.Schedule{Timezone: "UTC", Tenant: defaultTenant, CatchUp: defaultCatchUp}
	lines := d.mapping(n, "a schedule", []field{
		{name: "name", read: d.scheduleName(&s.Name)},
		{name: "cron", read: d.cron(&s.Cron)},
		{name: "timezone", read: d.timezone(&s.Timezone)},
		{name: "message", read: func(n node) { d.message(n, &s.Message) }},
		{name: "tenant", read: d.identity("tenant", &s.Tenant)},
		{name: "owner", read: d.identity("owner", &s.Owner)},
		{name: "overlap", read: d.choice("overlap", a2a.Overlaps, func(i int) { s.Overlap = a2a.Overlap(i) })},
		{name: "catch_up", read: d.durationUpTo("catch_up", maxCatchUp, &s.CatchUp)},
		{name: "jitter", read: d.durationUpTo("jitter", maxJitter, &s.Jitter)},
		{name: "paused", read: d.truth("paused", &s.Paused)},
	}, nil)
	for _, missing := range []struct{ key, sample string }{
		{"name", "name: daily"}, {"cron", `cron: "0 8 * * *"`}, {"message", "message: Write the report."},
		{"owner", "owner: reports"},
	} {
		if n.kind == kindMap && lines[missing.key] == 0 {
			d.fault(n.line, "a schedule has no %s; add one, like %s", missing.key, missing.sample)
		}
	}
	return s
}

func (d *decoder) scheduleName(dst *string) func(node) {
	return func(n node) {
		if d.text("name", dst)(n); *dst != "" && !validName.MatchString(*dst) {
			d.fault(n.line, "the schedule name %q must have at most 64 letters, digits, - and _, "+
				"and start with a letter or digit", *dst)
		}
	}
}

func (d *decoder) cron(dst *string) func(node) {
	return func(n node) {
		if d.text("cron", dst)(n); *dst == "" {
			return
		}
		if _, err := cron.Parse(*dst, time.UTC); err != nil {
			d.fault(n.line, "cron: %q: %s", *dst, err)
		}
	}
}

func (d *decoder) timezone(dst *string) func(node) {
	return func(n node) {
		name := ""
		if d.text("timezone", &name)(n); name == "" {
			return
		}
		if _, err := cron.Zone(name); err != nil {
			d.fault(n.line, "timezone: %q is unknown; write a name like Europe/Berlin or UTC", name)
			return
		}
		*dst = name
	}
}

// identity reads a tenant or an owner.
func (d *decoder) identity(what string, dst *string) func(node) {
	return func(n node) {
		if d.text(what, dst)(n); len(*dst) > maxOwner {
			d.fault(n.line, "%s has %d bytes; it may have %d", what, len(*dst), maxOwner)
		}
	}
}

func (d *decoder) durationUpTo(what string, most time.Duration, dst *time.Duration) func(node) {
	return func(n node) {
		if d.duration(what, dst)(n); *dst > most {
			d.fault(n.line, "%s must be at most %.0fh", what, most.Hours())
		}
	}
}

// message reads a text, or the parts of an A2A message.
func (d *decoder) message(n node, m *a2a.Message) {
	m.Role = a2a.RoleUser
	if n.kind != kindMap {
		var text string
		if d.text("message", &text)(n); text != "" {
			m.Parts = []a2a.Part{{Kind: a2a.PartText, Text: text}}
		}
		return
	}
	lines := d.mapping(n, "message", []field{
		{name: "parts", read: func(n node) { d.parts(n, &m.Parts) }},
		{name: "metadata", read: d.object("metadata", &m.Metadata)},
	}, map[string]string{
		"role":      "message has no role here: it is a message of the user",
		"messageId": "message has no messageId here: each tick makes its own",
	})
	if lines["parts"] == 0 {
		d.fault(n.line, "message has no parts; write a text, or {parts: [{text: Write the report.}]}")
	}
}

func (d *decoder) parts(n node, parts *[]a2a.Part) {
	if n.kind != kindList || len(n.list) == 0 {
		d.fault(n.line, "parts must be a list with at least one part, like [{text: Write the report.}]")
		return
	}
	for _, e := range n.list {
		*parts = append(*parts, d.part(e))
	}
}

func (d *decoder) part(n node) (p a2a.Part) {
	lines := d.mapping(n, "a part", []field{
		{name: "text", read: d.text("text", &p.Text)},
		{name: "data", read: func(n node) { p.Data, _ = d.json(n, "data") }},
		{name: "url", read: d.url("url", &p.Text)},
		{name: "media_type", alias: "mediaType", read: d.text("media_type", &p.MediaType)},
		{name: "filename", read: d.text("filename", &p.Filename)},
		{name: "metadata", read: d.object("metadata", &p.Metadata)},
	}, map[string]string{"raw": "a part of a schedule has no raw; name the file with url"})
	kinds := 0
	for key, kind := range map[string]a2a.PartKind{"text": a2a.PartText, "data": a2a.PartData, "url": a2a.PartURL} {
		if lines[key] != 0 {
			kinds++
			p.Kind = kind
		}
	}
	if n.kind == kindMap && kinds != 1 {
		d.fault(n.line, "a part must have one of text, data and url")
	}
	return p
}

// object reads a mapping as JSON.
func (d *decoder) object(what string, dst *a2a.Raw) func(node) {
	return func(n node) {
		if n.kind != kindMap {
			d.fault(n.line, "%s must be a mapping of keys to values, not %s", what, n.kind)
			return
		}
		*dst, _ = d.json(n, what)
	}
}
