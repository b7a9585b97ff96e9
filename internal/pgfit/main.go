// Pgfit tells whether a PostgreSQL service fits a2ad: make test-on URL=postgres://…
//
// It first checks each feature that a2ad needs, on its own. If all are there, it runs tests of the store and of whole
// servers on databases that it creates in the service. At the end it lists what fits and what does not.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/a2ad/a2ad/internal/store/db"
)

// suites are the tests that need nothing but a service on which they may create databases. Tests that stop or crash
// their PostgreSQL need one of their own, wherever they run, so they say nothing about the service.
var suites = []struct {
	name, pkg, run string
}{
	{"store", "./internal/store/tasks", "^Test(Submit|Claim|Append|Cancel|Rescue|Renew|Release|Lost)"},
	{"servers", "./internal/e2e", "^Test(EventsArriveWithoutAListener|EventsArriveWhenTheWakeUpIsLost|" +
		"ListenerReconnects|WorkIsFoundWithoutAWakeUp)$"},
}

// superusers are tests that set the clock of a database back, for which they disable triggers as a superuser.
const superusers = "AfterTheClockWasSetBack$"

const checkLimit = 2 * time.Minute

// finding is the result of one check.
type finding struct {
	name, need string
	said       string // what was found
	err        error  // why it does not fit
}

func main() {
	only := flag.Bool("checks", false, "run the checks alone, without tests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, flag.Arg(0), *only, os.Stdout))
}

// run prints what it finds, and returns the exit code.
func run(ctx context.Context, url string, only bool, w io.Writer) int {
	if !strings.HasPrefix(url, "postgres://") && !strings.HasPrefix(url, "postgresql://") {
		fmt.Fprintln(w, "usage: make test-on URL=postgres://login:password@host:5432/postgres")
		return 2
	}
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	list, ok := check(ctx, url, w)
	if ok && !only {
		tests := runSuites(ctx, url, w)
		list = append(list, tests...)
		ok = !slices.ContainsFunc(tests, func(f finding) bool { return f.err != nil })
	}
	fmt.Fprintln(w)
	if !ok {
		fmt.Fprintln(w, "This service does not fit a2ad:")
		for i := range list {
			if list[i].err != nil {
				fmt.Fprintf(w, "  %s: %s\n", list[i].name, list[i].need)
			}
		}
		return 1
	}
	if only {
		fmt.Fprintln(w, "This service has all that a2ad needs. The tests did not run.")
		return 0
	}
	fmt.Fprintln(w, "This service fits a2ad: it has all that a2ad needs, and the tests passed.")
	return 0
}

// check runs the checks in order. After one on which the others depend, it ends.
func check(ctx context.Context, url string, w io.Writer) (list []finding, ok bool) {
	s := &service{url: url}
	ok = true
	for _, c := range checks {
		ctx, cancel := context.WithTimeout(ctx, checkLimit)
		said, err := c.run(s, ctx)
		cancel()
		f := finding{name: c.name, need: c.need, said: said, err: db.Redact(err)}
		list = append(list, f)
		show(w, &f)
		ok = ok && err == nil
		if err != nil && c.first {
			fmt.Fprintln(w, "The other checks and the tests need this, and are left out.")
			break
		}
	}
	s.dropDatabase(context.WithoutCancel(ctx), w)
	return list, ok
}

func show(w io.Writer, f *finding) {
	if f.err != nil {
		fmt.Fprintf(w, "no    %-12s %v\n      %-12s %s\n", f.name, f.err, "", f.need)
		return
	}
	fmt.Fprintf(w, "yes   %-12s %s\n", f.name, f.said)
}

// runSuites runs all tests, and removes the databases that they leave.
func runSuites(ctx context.Context, url string, w io.Writer) (list []finding) {
	s := &service{url: url}
	before, err := s.testDatabases(ctx)
	if err != nil {
		return []finding{{name: "tests", need: "the tests create databases", err: db.Redact(err)}}
	}
	for _, suite := range suites {
		f := test(ctx, url, suite.name, suite.pkg, suite.run, w)
		list = append(list, f)
		show(w, &f)
	}
	s.dropTestDatabases(context.WithoutCancel(ctx), before, w)
	return list
}

// test runs tests of a package on the service.
func test(ctx context.Context, url, name, pkg, pattern string, w io.Writer) finding {
	f := finding{name: name, need: "tests of " + strings.TrimPrefix(pkg, "./") + " fail: their output is above"}
	fmt.Fprintf(w, "      %-12s go test %s -run '%s'\n", name, pkg, pattern)
	start := time.Now()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout", "40m", "-run", pattern, "-skip", superusers,
		pkg)
	cmd.Env = append(os.Environ(), "A2AD_TEST_DATABASE_URL="+url)
	out, err := cmd.CombinedOutput()
	if err != nil {
		fmt.Fprintf(w, "%s", out)
		f.err = err
	}
	if f.err == nil && strings.Contains(string(out), "no tests to run") {
		f.err = fmt.Errorf("no test of %s matches", pkg)
	}
	f.said = fmt.Sprintf("the tests of %s passed in %s", strings.TrimPrefix(pkg, "./"),
		time.Since(start).Round(time.Second))
	return f
}
