package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/tail"
	"github.com/a2ad/a2ad/internal/wake"
)

// TestTaskTail: each change is one line, however narrow the terminal is, and the same on a server as on a database.
func TestTaskTail(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		server bool
		args   []string
	}{
		{"database", false, nil},
		{"server", true, nil},
		{"json", false, []string{"-o", "json"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			task, err := a2a.ParseID(taskID)
			if err != nil {
				t.Fatal(err)
			}
			w.submit(oldTask, "bob", nil)
			w.submit(taskID, "alice", nil)
			env, changed := w.env, func() {
				w.store.DB.Notify(t.Context(), []string{"r1 " + wake.Task(task)}) //nolint:errcheck // it is repeated
			}
			if tc.server {
				var hub notify.Hub
				changes := tail.New(w.store.Operate.SearchTasks, &hub, slog.New(slog.DiscardHandler))
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { changes.Run(ctx) }) //nolint:errcheck // it only returns nil
				t.Cleanup(func() { stop(); running.Wait() })
				url := w.serve(func(c *admin.Config) { c.Streams.Tail = changes }).URL
				env = []string{"A2AD_API_KEY=secret", "A2AD_SERVER=" + url}
				changed = func() { hub.Wake(wake.Task(task)) }
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			seen := make(chan struct{})
			screen := &scriptedTerminal{steps: []step{{"\n", func() { close(seen); cancel() }}}}
			var changing sync.WaitGroup
			changing.Go(func() {
				tick := time.NewTicker(20 * time.Millisecond)
				defer tick.Stop()
				for { // until the command has begun to listen, it hears nothing
					select {
					case <-seen:
						return
					case <-t.Context().Done():
						return
					case <-tick.C:
						changed()
					}
				}
			})
			got := screenful(t, ctx, func(app *App) {
				app.Terminal, app.Stdout, app.Stderr = true, screen, screen
			}, env, append([]string{"task", "tail", "--owner", "alice"}, tc.args...)...)
			changing.Wait()
			line, _, _ := strings.Cut(screen.seen.String(), "\n")
			if !strings.HasSuffix(got, "[exit code 130]\n") {
				t.Errorf("the command ended with\n%s", got)
			}
			if tc.args != nil {
				var row taskRow
				if err := json.Unmarshal([]byte(line), &row); err != nil || row.ID != taskID {
					t.Errorf("the line is %s, %v", line, err)
				}
				return
			}
			if want := "  " + taskID + "  submitted       words  acme/alice"; !strings.HasSuffix(line, want) {
				t.Errorf("the line is %q", line)
			}
		})
	}
}
