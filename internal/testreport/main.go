// Testreport reads the events of a test run (go test -json, or the file of gotestsum --jsonfile) and prints the slowest
// tests and packages. A test that failed and passed when it ran again is flaky: its first output comes last, so that it
// ends a log. That does not change the exit status.
//
// gotestsum repeats what failed by the names of tests. A package may fail although its tests pass, for example because
// they leave goroutines running. gotestsum then repeats nothing and succeeds. So testreport fails for such a package.
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

var errPackage = errors.New("a package failed although its tests passed")

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
	if err := r.print(w); err != nil {
		return err
	}
	if slices.ContainsFunc(r.packages, func(p *result) bool { return p.byItself }) {
		return errPackage
	}
	return nil
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

	testFailed bool // of a package: a test has failed in the present run
	byItself   bool // of a package: it failed in a run in which no test failed
}

type run struct {
	tests, packages []*result
	known           map[[2]string]*result // by package and test
}

// read takes the events in order. Lines that are not JSON are output of the compiler, which go test prints in between.
func read(from io.Reader) (*run, error) {
	r := &run{known: map[[2]string]*result{}}
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil && e.Package != "" {
			r.add(e)
		}
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// result finds or makes the result of a test, or that of its package if it has no name.
func (r *run) result(pkg, name string) *result {
	key := [2]string{pkg, name}
	one := r.known[key]
	if one == nil {
		one = &result{pkg: strings.TrimPrefix(pkg, module), name: name}
		r.known[key] = one
		if name == "" {
			r.packages = append(r.packages, one)
		} else {
			r.tests = append(r.tests, one)
		}
	}
	return one
}

func (r *run) add(e event) {
	name, _, isPart := strings.Cut(e.Test, "/")
	one := r.result(e.Package, name)
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
		if name == "" {
			one.byItself = one.byItself || !one.passed && !one.testFailed
			one.testFailed = false
		} else if !one.passed {
			r.result(e.Package, "").testFailed = true
		}
	}
}

func (r *run) print(w io.Writer) error {
	var out strings.Builder
	slowest(&out, "slowest tests", r.tests)
	slowest(&out, "slowest packages", r.packages)
	for _, one := range r.tests {
		if one.failed && one.passed {
			fmt.Fprintf(&out, "FLAKY %s %s: it failed, and passed when it ran again. It first printed:\n",
				one.pkg, one.name)
			one.printOutput(&out)
		}
	}
	for _, one := range r.packages {
		if one.byItself {
			fmt.Fprintf(&out, "FAILED %s: its tests passed, but the package failed. It printed:\n", one.pkg)
			one.printOutput(&out)
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (one *result) printOutput(out *strings.Builder) {
	text := one.output.String()
	if len(text) > outputShown {
		text = text[:outputShown/2] + "\n[…]\n" + text[len(text)-outputShown/2:]
	}
	for line := range strings.Lines(text) {
		out.WriteString("    " + line)
	}
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
