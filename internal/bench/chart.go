package main

import (
	"bytes"
	"fmt"
	"html"
	"slices"
	"strings"
)

// chartPanel is a part of the chart. Its bars have one scale.
type chartPanel struct {
	column int
	title  string
	groups []byServer
}

// panels chooses what the chart shows. Without a figure of a2ad there is no group.
func (r *report) panels() []chartPanel {
	panels := []chartPanel{
		{column: 0, title: "Blocking sends per second (more is better)"},
		{column: 0, title: fmt.Sprintf("Streams held at %d tokens/s (more is better)", tokenRate)},
		{column: 1, title: "CPU per streamed token in ms (less is better)"},
	}
	for _, c := range r.Comparisons {
		switch {
		case c.of("a2ad") == 0:
		case strings.HasPrefix(c.Name, "blocking sends") && c.Unit == "/s":
			panels[0].groups = append(panels[0].groups, c.named(strings.TrimPrefix(c.Name, "blocking sends, ")))
		case c.Unit == "streams":
			panels[1].groups = append(panels[1].groups, c.named(""))
		case strings.HasSuffix(c.Name, tokenCPU):
			panels[2].groups = append(panels[2].groups, c.named(strings.TrimSuffix(c.Name, tokenCPU)))
		}
	}
	return slices.DeleteFunc(panels, func(p chartPanel) bool { return len(p.groups) == 0 })
}

// named returns the figure under another name.
func (c *byServer) named(name string) byServer {
	return byServer{Name: name, Unit: c.Unit, More: c.More, Values: c.Values}
}

// Measures of the chart, in pixels.
const (
	chartMargin  = 20
	chartColumns = 2
	chartColumnX = 390 // from one column to the next
	chartBarX    = 62  // from a panel's edge to its bars
	chartBar     = 220 // the longest bar
	chartBarY    = 20  // from one bar to the next
	chartHeight  = 14  // of a bar
	chartGroupY  = 26  // from a group's name to its first bar
	chartTop     = 58  // of the first title
	chartTitleY  = 14  // from a title to its groups
	chartPadding = 18  // after a group
)

// The colors follow the reader's system. The chart has its own background, because a page may be dark in a system that
// is light.
const chartStyle = `<style>
  svg { color-scheme: light dark; }
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; }
  .head { font-weight: 600; font-size: 14px; }
  .name, .note { fill: #59636e; }
  .note { font-size: 12px; }
  .page { fill: #ffffff; stroke: #d1d9e0; }
  .a2ad { fill: #3949ab; } .a2a-js { fill: #9aa4b0; } .a2a-go { fill: #c3cad2; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .name, .note { fill: #9198a1; }
    .page { fill: #161b22; stroke: #3d444d; }
    .a2ad { fill: #8c9eff; } .a2a-js { fill: #6e7781; } .a2a-go { fill: #4d555e; }
  }
</style>
`

// chart draws a2ad next to the official servers.
func (r *report) chart() []byte {
	panels := r.panels()
	var body bytes.Buffer
	var y [chartColumns]int
	for _, p := range panels {
		y[p.column] = p.draw(&body, chartMargin+p.column*chartColumnX, max(y[p.column], chartTop))
	}
	width, height := chartMargin+chartColumnX*chartColumns, slices.Max(y[:])-chartPadding
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" `+
		`aria-labelledby="title desc">`+"\n", width, height, width, height)
	out.WriteString("<title id=\"title\">a2ad on disk next to the official servers in memory</title>\n")
	fmt.Fprintf(&out, "<desc id=\"desc\">%s</desc>\n", html.EscapeString(describe(panels)))
	out.WriteString(chartStyle)
	fmt.Fprintf(&out, `<rect class="page" x="0.5" y="0.5" width="%d" height="%d" rx="6"/>`+"\n", width-1, height-1)
	fmt.Fprintf(&out, `<text class="note" x="%d" y="26">a2ad commits every event to PostgreSQL. `+
		`a2a-js %s and a2a-go %s keep tasks in memory. %d cores, %s.</text>`+"\n", chartMargin,
		peerVersions[jsPeer], peerVersions[goPeer], r.Machine.Cores, r.Machine.Date)
	out.Write(body.Bytes())
	out.WriteString("</svg>\n")
	return out.Bytes()
}

// draw draws a panel whose title is at x and y, and returns where the next one goes.
func (p *chartPanel) draw(w *bytes.Buffer, x, y int) int {
	longest := 0.0
	for _, g := range p.groups {
		for _, v := range g.Values {
			longest = max(longest, v.Value)
		}
	}
	fmt.Fprintf(w, `<text class="head" x="%d" y="%d">%s</text>`+"\n", x, y, html.EscapeString(p.title))
	y += chartTitleY
	for _, g := range p.groups {
		if g.Name != "" {
			fmt.Fprintf(w, `<text class="name" x="%d" y="%d">%s</text>`+"\n", x, y+14, html.EscapeString(g.Name))
			y += chartGroupY
		}
		for _, v := range g.Values {
			length := v.Value / longest * chartBar
			fmt.Fprintf(w, `<text x="%d" y="%d">%s</text>`, x, y+chartHeight-2, html.EscapeString(v.Server))
			fmt.Fprintf(w, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>`,
				html.EscapeString(v.Server), x+chartBarX, y, length, chartHeight)
			fmt.Fprintf(w, `<text x="%.1f" y="%d">%s</text>`+"\n", float64(x+chartBarX)+length+8, y+chartHeight-2,
				g.plain(v.Value))
			y += chartBarY
		}
		y += chartPadding
	}
	return y + chartPadding
}

// describe says in words what the chart shows.
func describe(panels []chartPanel) string {
	var s []string
	for _, p := range panels {
		for _, g := range p.groups {
			var values []string
			for _, v := range g.Values {
				values = append(values, v.Server+" "+g.plain(v.Value))
			}
			name := strings.TrimSuffix(p.title+", "+g.Name, ", ")
			s = append(s, name+": "+strings.Join(values, ", ")+".")
		}
	}
	return strings.Join(s, " ")
}
