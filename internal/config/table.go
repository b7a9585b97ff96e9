package config

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteTable writes settings in their groups. Verbose adds what each of them means.
func WriteTable(to io.Writer, values []Value, verbose bool) error {
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	group := ""
	for _, v := range values {
		if v.Group != group {
			if group != "" {
				fmt.Fprintln(w)
			}
			group = v.Group
			fmt.Fprintln(w, groupTitle(group))
		}
		v.writeRow(w, verbose)
	}
	return w.Flush()
}

func (v *Value) writeRow(w io.Writer, verbose bool) {
	shown, source := v.Shown(), v.Source
	if shown == "" {
		shown = "-"
	}
	if source == "" && v.Auto != "" {
		source = "default: " + v.Auto
	}
	fmt.Fprintf(w, "  %s\t%s\t%s", v.Name, shown, source)
	if verbose {
		fmt.Fprintf(w, "\t%s", strings.TrimSuffix(v.Help, "."))
	}
	if v.Bad {
		fmt.Fprint(w, " [faulty]")
	}
	fmt.Fprintln(w)
}

func groupTitle(key string) string {
	for _, g := range Groups {
		if g.Key == key {
			return strings.TrimSuffix(g.Title, ":")
		}
	}
	return key
}

// Line is a setting for programs. Its JSON does not change silently.
type Line struct {
	Name    string  `json:"name"`
	Value   *string `json:"value"`
	Source  string  `json:"source"`
	Default string  `json:"default,omitempty"`
	Meaning string  `json:"meaning"`
}

// Line returns the setting for programs.
func (v *Value) Line() Line {
	line := Line{Name: v.Name, Source: v.Source, Default: v.Default, Meaning: v.Help}
	if v.Source == "" {
		line.Source = "default"
	}
	if shown := v.Shown(); shown != "" {
		line.Value = &shown
	}
	return line
}
