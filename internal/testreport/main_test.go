package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	t.Parallel()
	pkg := `"Package":"github.com/a2ad/a2ad/internal/store"`
	events := []string{
		`{"Action":"output",` + pkg + `,"Test":"TestOften/part","Output":"the first reason\n"}`,
		`{"Action":"fail",` + pkg + `,"Test":"TestOften/part","Elapsed":1}`,
		`{"Action":"fail",` + pkg + `,"Test":"TestOften","Elapsed":1.5}`,
		`# a line of the compiler`,
		`{"Action":"output",` + pkg + `,"Test":"TestNever","Output":"broken\n"}`,
		`{"Action":"fail",` + pkg + `,"Test":"TestNever","Elapsed":0.1}`,
		`{"Action":"output",` + pkg + `,"Test":"TestAlways","Output":"fine\n"}`,
		`{"Action":"pass",` + pkg + `,"Test":"TestAlways","Elapsed":7}`,
		`{"Action":"fail",` + pkg + `,"Elapsed":9}`,
		`{"Action":"output",` + pkg + `,"Test":"TestOften/part","Output":"fine now\n"}`,
		`{"Action":"pass",` + pkg + `,"Test":"TestOften","Elapsed":2}`,
		`{"Action":"fail",` + pkg + `,"Test":"TestNever","Elapsed":0.2}`,
	}
	file := filepath.Join(t.TempDir(), "events")
	if err := os.WriteFile(file, []byte(strings.Join(events, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := report(file, &out); err != nil {
		t.Fatal(err)
	}
	const want = `slowest tests
    7.0 s  internal/store  TestAlways
    2.0 s  internal/store  TestOften
    0.2 s  internal/store  TestNever
slowest packages
    9.0 s  internal/store
FLAKY internal/store TestOften: it failed, and passed when it ran again. It first printed:
    the first reason
`
	if out.String() != want {
		t.Errorf("the report is\n%s\nwant\n%s", &out, want)
	}
}

func TestReportFailsForAPackageWhoseTestsPass(t *testing.T) {
	t.Parallel()
	const events = `{"Action":"pass","Package":"p","Test":"T"}
{"Action":"output","Package":"p","Output":"goroutines remain\n"}
{"Action":"fail","Package":"p","Elapsed":1}
{"Action":"output","Package":"p","Output":"no tests to run\n"}
{"Action":"pass","Package":"p","Elapsed":1}`
	file := filepath.Join(t.TempDir(), "events")
	if err := os.WriteFile(file, []byte(events), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := report(file, &out); !errors.Is(err, errPackage) {
		t.Errorf("error = %v, want %v", err, errPackage)
	}
	const want = "FAILED p: its tests passed, but the package failed. It printed:\n    goroutines remain\n"
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("the report is\n%s\nwant at its end\n%s", &out, want)
	}
}

func TestReportCutsLongOutput(t *testing.T) {
	t.Parallel()
	r, err := read(strings.NewReader(`{"Action":"output","Package":"p","Test":"T","Output":"` +
		strings.Repeat("x", 1<<20) + `"}` + "\n" +
		`{"Action":"fail","Package":"p","Test":"T"}` + "\n" + `{"Action":"pass","Package":"p","Test":"T"}`))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	if out.Len() > 2*outputShown || !strings.Contains(out.String(), "[…]") {
		t.Errorf("the report has %d bytes", out.Len())
	}
}
