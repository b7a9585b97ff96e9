package db_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/slowtest"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// readsOf returns the reads that streams and webhooks make.
func readsOf(ctx context.Context, f *storetest.Fixture, task a2a.ID) map[string]func() error {
	return map[string]func() error{
		"a task":           func() error { _, err := f.Tasks.SnapshotOfAny(ctx, task, tasks.Want{}); return err },
		"a task as it was": func() error { _, err := f.Tasks.SnapshotAt(ctx, task, 1, tasks.Want{}); return err },
		"events":           func() error { _, err := f.Tasks.EventsAfter(ctx, task, 0, 10); return err },
		"an event":         func() error { _, _, err := f.Tasks.EventUID(ctx, task, 1); return err },
		"news":             func() error { _, _, err := f.Tasks.Ahead(ctx, []a2a.ID{task}, []int64{0}); return err },
	}
}

// A stream that reads a large task must not delay the runs, which renew leases and write.
func TestReadsOfStreamsDoNotUseThePoolOfRuns(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTask()
	release, err := db.FillWork(t.Context(), f.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for what, read := range readsOf(ctx, f, task) {
		if err := read(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, _, err := f.Access.LookupKey(ctx, "unknown"); err == nil || ctx.Err() != nil {
		t.Errorf("a sign-in: %v", err)
	}
}

// Streams must not delay requests either: they get half of the pool of requests. When it is in use, reads that are not
// patient fail.
func TestReadsOfStreamsLeaveRequestsHalfOfTheirPool(t *testing.T) {
	t.Parallel()
	slowtest.Only(t, slowtest.Crash)
	f := storetest.Open(t)
	task := f.NewTask()
	release := db.FillReads(f.DB)
	db.SetRequestWait(f.DB, 100*time.Millisecond)
	for what, read := range readsOf(t.Context(), f, task) {
		if err := read(); a2a.CodeOf(err) != a2a.CodeUnavailable || !strings.Contains(err.Error(), "busy") {
			t.Errorf("%s while the share of reads is in use: %v, want that the server is busy", what, err)
		}
	}
	db.SetRequestWait(f.DB, time.Minute)
	if _, err := f.Tasks.Snapshot(t.Context(), storetest.Ann, task, tasks.Want{}); err != nil {
		t.Errorf("a request: %v", err)
	}
	if _, _, err := f.Access.LookupKey(t.Context(), "unknown"); err != access.ErrNoKey { //nolint:errorlint // as is
		t.Errorf("a sign-in: %v", err)
	}
	release()
	for range 20 { // more than fit: each one makes room for the next
		for what, read := range readsOf(t.Context(), f, task) {
			if err := read(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}

// Slow searches of people must not stop streams, which follow tasks and read what has changed, nor what is found by its
// id. Nor do streams stop searches.
func TestSearchesAndStreamsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	search := operate.TaskSearch{IDs: []a2a.ID{f.NewTask()}, Limit: 1, Timeout: time.Minute}
	releaseSearches := db.FillSearches(f.DB)
	for what, read := range readsOf(t.Context(), f, search.IDs[0]) {
		if err := read(); err != nil {
			t.Errorf("%s while searches take long: %v", what, err)
		}
	}
	if found, err := f.Operate.SearchTasks(t.Context(), search); err != nil || len(found) != 1 {
		t.Errorf("a task by its id while searches take long: %v, %v", found, err)
	}
	if _, err := f.Operate.Timeline(t.Context(), search.IDs[0]); err != nil {
		t.Errorf("a timeline while searches take long: %v", err)
	}
	releaseSearches()
	releaseReads := db.FillReads(f.DB)
	all := operate.TaskSearch{Limit: 1, Timeout: time.Minute}
	if found, err := f.Operate.SearchTasks(t.Context(), all); err != nil || len(found) != 1 {
		t.Errorf("a search while streams read: %v, %v", found, err)
	}
	releaseReads()
}

// Why a function that only reads does so on the pool of runs.
const (
	ofRuns     = "a run needs it, or a write of which it is a part"
	ofUpkeep   = "a process runs one at a time"
	ofOperator = "only commands of the operator call it"
)

// readOnRuns are those functions. All other reads go through DB.As, DB.Reads or DB.SignIns.
var readOnRuns = map[string]string{
	"Inputs": ofRuns, "CancelMetadata": ofRuns, "poll": ofRuns,
	"EndOfRun": ofRuns, "Steps": ofRuns, "StepsKeyed": ofRuns, "CallsOf": ofRuns,
	"NextWait":   ofUpkeep,
	"ArtifactAt": ofRuns, "ArtifactIDs": ofRuns, "States": ofRuns,
	"checkSchema": ofUpkeep, "Gauges": ofUpkeep, "SigningKeys": ofUpkeep, "pollFrom": ofUpkeep,
	"SweepActions": ofUpkeep, "SweepCalls": ofUpkeep, "RetireAgain": ofUpkeep, "turn": ofUpkeep,
	"ListTasks": ofOperator, "Attempts": ofOperator, "Owner": ofOperator,
	"RetryTask": ofOperator, "SealedWith": ofOperator,
	"Keys": ofOperator, "List": ofOperator,
	"Purge": ofOperator, "Recent": ofOperator,
}

// Reads that need not be on the pool of runs would delay the runs.
func TestFewReadsAreOnThePoolOfRuns(t *testing.T) {
	t.Parallel()
	text := regexp.MustCompile("(?s)`-- name: (\\w+) :\\w+\n(.*?)`")
	writes := regexp.MustCompile(`\b(INSERT INTO|UPDATE|DELETE FROM|pg_notify|set_config)\b`)
	statements := map[string]bool{} // whether it only reads
	for _, file := range glob(t, filepath.Join("..", "*", "dbsqlc", "*.sql.go")) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range text.FindAllStringSubmatch(string(data), -1) {
			statements[m[1]] = !writes.MatchString(m[2])
		}
	}
	found := map[string]bool{}
	for _, file := range glob(t, filepath.Join("..", "*", "*.go")) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil && onlyReadsOnRuns(f, statements) {
				found[f.Name.Name] = true
				if readOnRuns[f.Name.Name] == "" {
					t.Errorf("%s: %s only reads, and does so on the pool of runs: see readOnRuns", file, f.Name.Name)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(readOnRuns)) {
		if !found[name] {
			t.Errorf("readOnRuns has %s, which is not such a function", name)
		}
	}
}

// onlyReadsOnRuns reports whether a function uses the pool of runs, and calls statements of which none writes.
func onlyReadsOnRuns(f *ast.FuncDecl, statements map[string]bool) bool {
	uses, reads, writes := false, false, false
	ast.Inspect(f.Body, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		switch sel.Sel.Name {
		case "Work", "Search":
			uses = uses || types.ExprString(sel.X) == "s.db"
		case "work", "search":
			uses = uses || types.ExprString(sel.X) == "s"
		}
		only, known := statements[sel.Sel.Name]
		reads, writes = reads || known && only || sel.Sel.Name == "snapshots", writes || known && !only
		return true
	})
	return uses && reads && !writes
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(files), err)
	}
	return files
}
