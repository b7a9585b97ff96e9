package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// WorkerCmd is `a2ad worker`.
type WorkerCmd struct {
	Ls     WorkerLsCmd     `cmd:"" group:"commands" help:"List replicas and remote workers."`
	Drain  WorkerDrainCmd  `cmd:"" group:"commands" help:"Let workers claim no more tasks."`
	Resume WorkerResumeCmd `cmd:"" group:"commands" help:"Let drained workers claim tasks again."`
}

// WorkerLsCmd is `a2ad worker ls`.
type WorkerLsCmd struct {
	Service
	Output
}

// Help is shown below the usage line.
func (*WorkerLsCmd) Help() string {
	return `SLOTS is how many slots of a replica are in use, of how many (A2AD_WORKERS). ` +
		`HEARTBEAT is when the worker was last in touch. ` +
		`SILENT is how long one of its attempts has reported nothing: ` +
		`a worker that hangs renews its leases, but its attempts are silent. ` +
		`A worker is gone if it has not been in touch for 40 seconds; it is listed for ten minutes.`
}

// Run lists.
func (c *WorkerLsCmd) Run(ctx context.Context, app *App) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		var list admin.WorkerList
		if err := api.Get(ctx, "/workers", nil, &list); err != nil {
			return err
		}
		if err := printWorkers(app, c.json(), list.Workers); err != nil {
			return err
		}
		if !c.json() {
			noteSameName(app, list.Workers)
		}
		return nil
	})
}

func printWorkers(app *App, asJSON bool, list []admin.Worker) error {
	head := []string{
		"WORKER", "STATE", "RUNNING", "SLOTS", "OLDEST", "HEARTBEAT", "SILENT", "VERSION", "UP", "AGENTS", "WHY",
	}
	optional := []string{"WHY", "UP", "AGENTS", "SLOTS", "HEARTBEAT", "VERSION"}
	return term.List(&app.Console, asJSON, head, optional, list, func(w admin.Worker) []string {
		state, slots, agents, why := w.State, "", w.Agents, ""
		if w.Replica {
			state += " replica"
		}
		if w.Slots > 0 {
			slots = fmt.Sprintf("%d/%d", w.Busy, w.Slots)
		}
		if len(agents) == 0 {
			agents = w.Asks
		}
		if w.Drained != nil {
			why = describeStop(w.Drained)
		}
		return []string{
			term.Cell(w.Name), state, term.Number(w.Running), term.Cell(slots), sinceThen(w.OldestAt),
			sinceThen(w.HeartbeatAt), sinceThen(w.SilentSince), term.Cell(w.Version), sinceThen(w.StartedAt),
			term.Cell(strings.Join(agents, ",")), term.Cell(why),
		}
	})
}

// noteSameName warns of servers that share a name: a drain stops all of them, and operators cannot tell them apart.
func noteSameName(app *App, list []admin.Worker) {
	for _, w := range list {
		if w.Servers > 1 {
			app.Note(sameName(w.Servers, w.Name))
		}
	}
}

func sameName(servers int, name string) string {
	return fmt.Sprintf("%d servers are named %s. Set A2AD_REPLICA to a different name in each.", servers,
		term.Cell(name))
}

// sinceThen is how long ago something was.
func sinceThen(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return term.Age(time.Since(*t))
}

// workerNames are workers on the command line, and why they are drained or resumed.
type workerNames struct {
	Names  []string `arg:"" name:"worker" help:"Workers, as worker ls shows them."`
	Reason string   `placeholder:"TEXT" help:"Why, for the audit log."`
	Service
	Output
}

// eachWorker asks for an action on one worker after the other.
func (c *workerNames) eachWorker(ctx context.Context, app *App, action string, body any, done string) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		return each(ctx, app, c.Names, func(name string) error {
			var worker admin.StoppedWorker
			if err := api.Post(ctx, "/workers/"+url.PathEscape(name)+"/"+action, body, &worker); err != nil {
				return fmt.Errorf("worker %s: %w", name, err)
			}
			if c.json() {
				return term.JSON(app.Stdout, worker)
			}
			text := done
			if worker.Expired > 0 {
				text += ", " + term.Count(worker.Expired, "lease") + " ended"
			}
			_, err := fmt.Fprintf(app.Stdout, "%s %s\n", worker.Name, text)
			return err
		})
	})
}

// WorkerDrainCmd is `a2ad worker drain`.
type WorkerDrainCmd struct {
	workerNames
	Expire bool `help:"Also end its leases: its tasks are given to others, as if the worker were lost."`
}

// Help is shown below the usage line.
func (*WorkerDrainCmd) Help() string {
	return `A drained worker claims no more tasks, and its attempts continue. Use --expire for a worker that hangs. ` +
		`It stays drained, also after a restart under the same name, until "a2ad worker resume". ` +
		`The exit code is 1 if a worker is already drained.`
}

// Run drains.
func (c *WorkerDrainCmd) Run(ctx context.Context, app *App) error {
	body := admin.Drain{Why: admin.Why{Reason: c.Reason}, Expire: c.Expire}
	return c.eachWorker(ctx, app, "drain", body, "drained")
}

// WorkerResumeCmd is `a2ad worker resume`.
type WorkerResumeCmd struct{ workerNames }

// Help is shown below the usage line.
func (*WorkerResumeCmd) Help() string { return `The exit code is 1 if a worker is not drained.` }

// Run resumes.
func (c *WorkerResumeCmd) Run(ctx context.Context, app *App) error {
	return c.eachWorker(ctx, app, "resume", admin.Why{Reason: c.Reason}, "resumed")
}
