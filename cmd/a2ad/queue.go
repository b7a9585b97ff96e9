package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// QueueCmd is `a2ad queue`.
type QueueCmd struct {
	Ls QueueLsCmd `cmd:"" group:"commands" help:"List queues by agent and lane."`
}

// QueueLsCmd is `a2ad queue ls`.
type QueueLsCmd struct {
	Service
	Output
}

// Help is shown below the usage line.
func (*QueueLsCmd) Help() string {
	return `DUE tasks wait for a worker alone. RUNNING counts attempts in all replicas, and LIMIT is the most ` +
		`attempts at once in one replica. LANES is the number of waiting tasks in each of the four lanes: ` +
		`an owner with many tasks has few in the first lanes, so other owners do not wait for them.`
}

// Run lists.
func (c *QueueLsCmd) Run(ctx context.Context, app *App) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		var list admin.QueueList
		if err := api.Get(ctx, "/queues", nil, &list); err != nil {
			return err
		}
		return printQueues(app, c.json(), list.Queues)
	})
}

func printQueues(app *App, asJSON bool, list []admin.Queue) error {
	head := []string{"AGENT", "STATE", "WAITING", "DUE", "OLDEST", "RUNNING", "LIMIT", "LANES"}
	optional := []string{"LANES", "LIMIT"}
	return term.List(&app.Console, asJSON, head, optional, list, func(q admin.Queue) []string {
		oldest := "-"
		if q.Due > 0 {
			oldest = milliseconds(q.OldestMs)
		}
		return []string{
			term.Cell(q.Agent), q.State, term.Number(q.Waiting), term.Number(q.Due), oldest, term.Number(q.Running),
			term.Number(int64(q.Limit)), laneCounts(q.Lanes),
		}
	})
}

// laneCounts is the number of tasks in each lane.
func laneCounts(lanes []admin.Lane) string {
	if len(lanes) == 0 {
		return "-"
	}
	counts := []string{"0", "0", "0", "0"}
	for _, l := range lanes {
		if l.Lane >= 0 && l.Lane < len(counts) {
			counts[l.Lane] = strconv.FormatInt(l.Waiting, 10)
		}
	}
	return strings.Join(counts, " ")
}
