package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
)

// byServer is one figure of several servers.
type byServer struct {
	Name   string        `json:"name"`
	Unit   string        `json:"unit"`
	More   bool          `json:"more,omitempty"` // more is better
	Values []serverValue `json:"values"`
}

type serverValue struct {
	Server string  `json:"server"`
	Value  float64 `json:"value"`
}

func (c *byServer) add(server string, v float64) { c.Values = append(c.Values, serverValue{server, v}) }

// of returns the value of a server, or 0.
func (c *byServer) of(server string) float64 {
	for _, v := range c.Values {
		if v.Server == server {
			return v.Value
		}
	}
	return 0
}

// text is a value with its unit.
func (c *byServer) text(v float64) string { return c.plain(v) + " " + c.Unit }

// plain is a value without its unit.
func (c *byServer) plain(v float64) string {
	if c.Unit == "streams" {
		return fmt.Sprintf("%.0f", v)
	}
	return number(v)
}

// others lists the values of the other servers.
func (c *byServer) others() string {
	var s []string
	for _, v := range c.Values {
		if v.Server != "a2ad" {
			s = append(s, v.Server+" "+c.text(v.Value))
		}
	}
	return strings.Join(s, ", ")
}

// compared are the experiments that the beginning of the document shows.
func compared(f figure) bool { return f.Experiment == "peers" || f.Experiment == "ready" }

// comparedTable is the table of a2ad next to the official servers.
func (r *report) comparedTable(w io.Writer) {
	fmt.Fprintln(w, "| | a2ad, on disk | a2a-js, in memory | a2a-go, in memory |\n|---|--:|--:|--:|")
	for _, c := range r.Comparisons {
		cells := []string{c.Name}
		for _, server := range []string{"a2ad", jsPeer, goPeer} {
			cell := "–"
			if v := c.of(server); v > 0 {
				cell = c.text(v)
			}
			cells = append(cells, strings.TrimSuffix(cell, " streams"))
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
}

// aimsTable is the short table of what has an aim, or a target that is its aim.
func (r *report) aimsTable(w io.Writer) {
	fmt.Fprintln(w, "| figure | measured | aim | reached |\n|---|--:|--:|---|")
	for _, f := range r.Figures {
		aim := cmp.Or(f.Aim, f.Target)
		if aim == nil || !compared(f) {
			continue
		}
		reached := "no"
		if aim.met(f.Value) {
			reached = "yes"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", f.Name, strings.TrimSpace(number(f.Value)+" "+f.Unit), aim, reached)
	}
}

// servers is the table of a2ad next to the official servers, and where it comes from.
func (r *report) servers(w io.Writer) {
	m := &r.Machine
	how := "a full run"
	if r.Quick {
		how = "a short run (`-quick`)"
	}
	r.comparedTable(w)
	fmt.Fprintf(w, "\nMeasured on %s at commit `%s` by %s on %d cores (%s). "+
		"The load average was %.1f before and %.1f after. %s.\n",
		m.Date, m.Commit, how, m.Cores, m.CPU, m.LoadBefore, m.LoadAfter, m.pace())
	for _, missing := range r.Missing {
		fmt.Fprintf(w, "%s.\n", missing)
	}
}

// costs lists what a send and a token cost, for the beginning of the document.
func (r *report) costs(w io.Writer) {
	fmt.Fprint(w, "**What it costs**, in CPU time and with PostgreSQL:\n\n")
	for _, cost := range []struct{ of, name string }{
		{"a blocking send, 32 callers", "blocking sends, 32 callers" + sendCPU},
		{"a token, 100 streams", shape{100, textTokens}.String() + tokenCPU},
	} {
		for _, c := range r.Comparisons {
			if c.Name == cost.name {
				fmt.Fprintf(w, "- %s: %s (%s)\n", cost.of, c.text(c.of("a2ad")), c.others())
			}
		}
	}
}

// hasComparison reports whether the run measured what the beginning of the document shows.
func (r *report) hasComparison() bool {
	return len(r.Comparisons) > 0
}

// leaveOut notes why a server is not part of the comparison.
func (r *report) leaveOut(server string, why error) {
	r.Missing = append(r.Missing, fmt.Sprintf("%s was not measured: %v", server, why))
}
