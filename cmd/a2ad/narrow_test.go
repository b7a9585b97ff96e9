package main

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/doctor"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/term"
	"github.com/a2ad/a2ad/internal/wire/answer"
)

// ownFields are fields that no client and no agent can set: ids, and words of a2ad.
var ownFields = map[string]string{
	"ID": taskID, "TaskID": taskID, "LastTask": taskID, "Parent": taskID, "Task": taskID, "State": "input-required",
	"Outcome": "started", "Trigger": "manual", "Kind": "agent", "Action": "task.retry",
}

// fill sets every field of a value: texts to text, except those that only a2ad sets.
func fill(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(someTime))
			return
		}
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			switch own := ownFields[name]; {
			case own != "" && v.Field(i).Kind() == reflect.String:
				v.Field(i).SetString(own)
			case name == "Depth":
				v.Field(i).SetInt(3)
			case v.Field(i).CanSet():
				fill(v.Field(i), text)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			fill(v.Index(0), text)
			fill(v.Index(1), text)
		}
	case reflect.String:
		v.SetString(text)
	case reflect.Int, reflect.Int64:
		v.SetInt(1_234_567)
	case reflect.Bool:
		v.SetBool(true)
	}
}

// hostileRows returns a row for each hostile text, with the text in all of its fields.
func hostileRows[R any]() []R {
	rows := make([]R, len(storetest.Hostile))
	for i, text := range storetest.Hostile {
		fill(reflect.ValueOf(&rows[i]).Elem(), text)
	}
	return rows
}

// hostileLists print each list with hostile rows.
var hostileLists = map[string]func(app *App) error{
	"task ls":   func(app *App) error { return printTasks(&app.Console, listFormat{}, hostileRows[taskRow]()) },
	"tree":      func(app *App) error { return printTree(app, false, hostileRows[admin.TreeTask]()) },
	"agent ls":  func(app *App) error { return printAgents(app, false, hostileRows[admin.Agent]()) },
	"worker ls": func(app *App) error { return printWorkers(app, false, hostileRows[admin.Worker]()) },
	"queue ls":  func(app *App) error { return printQueues(app, false, hostileRows[admin.Queue]()) },
	"push ls":   func(app *App) error { return printPushes(app, false, hostileRows[pushRow]()) },
	"push destinations": func(app *App) error {
		return printDestinations(app, false, hostileRows[admin.Destination]())
	},
	"schedule ls":    func(app *App) error { return printSchedules(app, false, hostileRows[scheduleRow]()) },
	"schedule ticks": func(app *App) error { return printTicks(app, false, hostileRows[admin.Tick]()) },
	"apikey ls":      func(app *App) error { return printKeys(app, false, hostileRows[keyRow]()) },
	"job ls": func(app *App) error {
		rows := hostileRows[jobRow]()
		for i := range rows {
			rows[i].Action, rows[i].State = "resume", "running" // the longest that there are
		}
		return printJobs(app, false, rows)
	},
	"context ls": func(app *App) error { return printContexts(app, false, hostileRows[contextRow]()) },
	"stats --usage": func(app *App) error {
		return printUsage(app, false, []string{"agent", "model"}, hostileRows[usageRow]())
	},
}

// hostileRecords are those whose last column is wrapped, so that a row may have several lines.
var hostileRecords = map[string]func(app *App) error{
	"actions":       func(app *App) error { return printActions(app, false, hostileRows[actionRow]()) },
	"push attempts": func(app *App) error { return printPushAttempts(app, false, hostileRows[pushAttemptRow]()) },
	"stats": func(app *App) error {
		var s admin.Stats
		rows := reflect.ValueOf(&s).Elem()
		for i := range rows.NumField() {
			if f := rows.Field(i); f.Kind() == reflect.Slice {
				f.Set(reflect.MakeSlice(f.Type(), len(storetest.Hostile), len(storetest.Hostile)))
				for j, text := range storetest.Hostile {
					fill(f.Index(j), text)
				}
			}
		}
		return showStats(app, &s)
	},
}

// hostileShows print what is no list: a line may be longer than the terminal, which folds it.
var hostileShows = map[string]func(app *App) error{
	"job show": func(app *App) error { return eachRow(hostileRows[jobShown](), app, printJob) },
	"timeline": func(app *App) error { return showTimeline(app, hostileRows[admin.Happening]()) },
	"doctor": func(app *App) error {
		for _, x := range hostileRows[doctor.Finding]() {
			printFinding(app, x)
		}
		return nil
	},
	"task show": func(app *App) error {
		return eachRow(hostileRows[taskDetail](), app, func(app *App, d *taskDetail) error {
			text := d.Agent
			said := a2a.Message{ID: text, Parts: []a2a.Part{{Text: text}}}
			task := answer.Task{History: []a2a.Message{said}, Artifacts: []a2a.Artifact{{
				ID: text, Name: text, Description: text, Parts: said.Parts,
			}}}
			task.Status.Message = &said
			showContent(app, &task)
			return nil
		})
	},
}

// eachRow prints one row after the other.
func eachRow[R any](rows []R, app *App, show func(*App, *R) error) error {
	for i := range rows {
		if err := show(app, &rows[i]); err != nil {
			return err
		}
	}
	return nil
}

// Nothing that clients, agents and operators write steers the terminal.
func TestNoTextSteersTheTerminal(t *testing.T) {
	t.Parallel()
	for name, show := range hostileShows {
		lines := screen(t, show)
		if len(lines) < len(storetest.Hostile) {
			t.Errorf("%s shows %d lines for %d texts", name, len(lines), len(storetest.Hostile))
		}
		for _, line := range lines {
			if i := strings.IndexFunc(line, unicode.IsControl); i >= 0 {
				t.Errorf("%s has a control character: %q", name, line)
			}
		}
	}
}

// screen prints on a terminal of 80 columns, and returns the lines.
func screen(t *testing.T, show func(*App) error) []string {
	t.Helper()
	var out bytes.Buffer
	if err := show(&App{Console: term.Console{Stdout: &out, Stderr: &out, Terminal: true, Columns: 80}}); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// checkLines fails if a line steers the terminal or is longer than it.
func checkLines(t *testing.T, name string, lines []string) {
	t.Helper()
	for _, line := range lines {
		if i := strings.IndexFunc(line, unicode.IsControl); i >= 0 {
			t.Errorf("%s has a control character: %q", name, line)
		}
		if n := term.Width(line); n > 80 {
			t.Errorf("%s has a line of %d columns: %q", name, n, line)
		}
	}
}

// Whatever names and texts clients and agents choose, each row of a list is one line of a terminal with 80 columns, and
// nothing of it steers the terminal.
func TestListsKeepToOneLineARow(t *testing.T) {
	t.Parallel()
	for name, show := range hostileLists {
		lines := screen(t, show)
		checkLines(t, name, lines)
		note := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "Too narrow for ") })
		if note < 0 {
			note = len(lines)
		}
		if rows := note - 1; rows != len(storetest.Hostile) {
			t.Errorf("%s: %d rows have %d lines:\n%s", name, len(storetest.Hostile), rows, strings.Join(lines, "\n"))
		}
	}
	for name, show := range hostileRecords {
		checkLines(t, name, screen(t, show))
	}
}

// The words of states have colors on a terminal, and nothing else of a row.
func TestStatesHaveColors(t *testing.T) {
	t.Parallel()
	colored := map[string]bool{}
	for name, show := range hostileLists {
		var out bytes.Buffer
		app := &App{Console: term.Console{Stdout: &out, Terminal: true, Color: true, Columns: 200}}
		if err := show(app); err != nil {
			t.Fatal(err)
		}
		colored[name] = strings.Contains(out.String(), "\x1b[33minput-required")
		if plain := fmt.Sprint(screen(t, show)); strings.Contains(plain, "\x1b") {
			t.Errorf("%s has colors without a terminal that has some", name)
		}
	}
	for _, name := range []string{"task ls", "tree", "agent ls", "worker ls", "queue ls", "schedule ls"} {
		if !colored[name] {
			t.Errorf("the states of %s have no color", name)
		}
	}
}
