// Testreport reads the events of a test run (go test -json, or the file of gotestsum --jsonfile) and prints the slowest
// tests and packages. A test that failed and passed when it ran again is flaky: its first output comes last, so that it
// ends a log. The exit status does not depend on the tests.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

const (
	shown  = 20 // slowest tests, and packages
	module = "github.com/a2ad/a2ad/"
	// outputShown bounds what is printed of one flaky test.
	outputShown = 16 << 10
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: testreport FILE")
		os.Exit(2)
	}
	if err := report(os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
}

func report(path string, w io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := read(f)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return r.print(w)
}

// event is a line of go test -json, as `go doc test2json` describes it.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// result is a top-level test, or a package if it has no name, in all its runs.
type result struct {
	pkg, name string
	seconds   float64 // of the longest run
	failed    bool    // in one run at least
	passed    bool    // in the last run
	output    strings.Builder
}

type run struct{ tests, packages []*result }

// read takes the events in order. Lines that are not JSON are output of the compiler, which go test prints in between.
func read(from io.Reader) (*run, error) {
	r := &run{}
	known := map[[2]string]*result{}
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil && e.Package != "" {
			r.add(known, e)
		}
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (r *run) add(known map[[2]string]*result, e event) {
	name, _, isPart := strings.Cut(e.Test, "/")
	key := [2]string{e.Package, name}
	one := known[key]
	if one == nil {
		one = &result{pkg: strings.TrimPrefix(e.Package, module), name: name}
		known[key] = one
		if name == "" {
			r.packages = append(r.packages, one)
		} else {
			r.tests = append(r.tests, one)
		}
	}
	switch e.Action {
	case "output":
		if !one.failed {
			one.output.WriteString(e.Output)
		}
	case "pass", "fail", "skip":
		if isPart {
			return // the test itself has an event, too
		}
		one.seconds = max(one.seconds, e.Elapsed)
		one.passed = e.Action != "fail"
		one.failed = one.failed || !one.passed
	}
}

func (r *run) print(w io.Writer) error {
	var out strings.Builder
	slowest(&out, "slowest tests", r.tests)
	slowest(&out, "slowest packages", r.packages)
	for _, one := range r.tests {
		if !one.failed || !one.passed {
			continue
		}
		text := one.output.String()
		if len(text) > outputShown {
			text = text[:outputShown/2] + "\n[…]\n" + text[len(text)-outputShown/2:]
		}
		fmt.Fprintf(&out, "FLAKY %s %s: it failed, and passed when it ran again. It first printed:\n",
			one.pkg, one.name)
		for line := range strings.Lines(text) {
			out.WriteString("    " + line)
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func slowest(out *strings.Builder, title string, list []*result) {
	list = slices.SortedStableFunc(slices.Values(list), func(a, b *result) int {
		switch {
		case a.seconds > b.seconds:
			return -1
		case a.seconds < b.seconds:
			return 1
		}
		return 0
	})
	fmt.Fprintln(out, title)
	for _, one := range list[:min(shown, len(list))] {
		fmt.Fprintln(out, strings.TrimRight(fmt.Sprintf("%7.1f s  %s  %s", one.seconds, one.pkg, one.name), " "))
	}
}
