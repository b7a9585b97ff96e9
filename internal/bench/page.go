package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// section is a part of the document that the bench writes. Comments in the document mark its begin and its end.
type section struct {
	name  string
	write func(r *report, w io.Writer)
}

var (
	summarySection = section{"summary", (*report).costs}
	serversSection = section{"servers", (*report).servers}
	aimsSection    = section{"aims", (*report).aimsTable}
	detailSection  = section{"comparison", func(r *report, w io.Writer) { r.markdown(w, compared) }}
	figuresSection = section{"figures", func(r *report, w io.Writer) {
		r.markdown(w, func(f figure) bool { return !compared(f) })
	}}
)

func (s section) begin() string {
	return "<!-- " + s.name + ": written by make bench ARGS=-write=docs/explanation/performance.md -->"
}

func (s section) end() string { return "<!-- end of " + s.name + " -->" }

var errPartial = errors.New("-write: select all experiments, or peers: the page has no part for one experiment alone")

// rewrite replaces the figures in the document at path, keeps its prose, and writes the chart next to it. Figures of
// experiments that were not selected stay. all reports that every experiment was selected.
func (r *report) rewrite(path string, all bool) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var sections []section
	if r.hasComparison() {
		sections = append(sections, summarySection, serversSection, aimsSection, detailSection)
	}
	if all {
		sections = append(sections, figuresSection)
	}
	for _, s := range sections {
		if text, err = s.replace(text, r); err != nil {
			return fmt.Errorf("%s %w", path, err)
		}
	}
	if r.hasComparison() {
		if err := os.WriteFile(strings.TrimSuffix(path, ".md")+".svg", r.chart(), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(path, text, 0o644)
}

func (s section) replace(text []byte, r *report) ([]byte, error) {
	before, rest, ok := bytes.Cut(text, []byte(s.begin()))
	_, after, ok2 := bytes.Cut(rest, []byte(s.end()))
	if !ok || !ok2 {
		return nil, fmt.Errorf("lacks the lines %q and %q", s.begin(), s.end())
	}
	var out bytes.Buffer
	out.Write(before)
	out.WriteString(s.begin() + "\n\n")
	s.write(r, &out)
	out.WriteString("\n" + s.end())
	out.Write(after)
	return out.Bytes(), nil
}
