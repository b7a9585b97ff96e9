package main

import (
	"context"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// ScheduleLsCmd is `a2ad schedule ls`.
type ScheduleLsCmd struct {
	Agent string `placeholder:"A" help:"Only schedules of this agent."`
	All   bool   `help:"Also schedules that were removed from their agent files."`
	Service
	Output
}

// Help is shown below the usage line.
func (*ScheduleLsCmd) Help() string {
	return `NEXT TICK is when the next task is made, without the jitter. With -o json, next has the next five ticks.`
}

// scheduleRow is one line of `a2ad schedule ls -o json`.
type scheduleRow = admin.Schedule

// Run lists.
func (c *ScheduleLsCmd) Run(ctx context.Context, app *App) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		var list admin.ScheduleList
		if err := api.Get(ctx, "/schedules", admin.ScheduleQuery{Agent: c.Agent, Removed: c.All}, &list); err != nil {
			return err
		}
		return printSchedules(app, c.json(), list.Schedules)
	})
}

var scheduleHead = []string{
	"SCHEDULE", "STATE", "CRON", "TIME ZONE", "NEXT TICK", "LAST TICK", "LAST TASK", "TENANT/OWNER",
}

func printSchedules(app *App, asJSON bool, rows []scheduleRow) error {
	optional := []string{"LAST TASK", "LAST TICK", "TIME ZONE", "TENANT/OWNER"}
	return term.List(&app.Console, asJSON, scheduleHead, optional, rows, func(r scheduleRow) []string {
		next := "-"
		if len(r.Next) > 0 {
			next = term.Moment(r.Next[0])
		}
		return []string{
			term.Cell(r.Agent + "/" + r.Name), r.State, term.Cell(r.Cron), term.Cell(r.Timezone), next,
			term.MomentOf(r.LastTick), term.Cell(r.LastTask), term.Cell(r.Tenant + "/" + r.Owner),
		}
	})
}

// ScheduleTicksCmd is `a2ad schedule ticks`.
type ScheduleTicksCmd struct {
	Name  string `arg:"" name:"schedule" help:"Schedule, as AGENT/NAME."`
	Limit int    `default:"20" placeholder:"N" help:"At most this many ticks (default 20)."`
	Service
	Output
}

// Help is shown below the usage line.
func (*ScheduleTicksCmd) Help() string {
	return `Outcomes: started (the tick made a task), queued or skipped (the task of the tick before had not ended), ` +
		`missed (no server was there in time, or the owner had too many tasks: ` +
		`see "a2ad actions --action schedule.refuse").`
}

// Run lists.
func (c *ScheduleTicksCmd) Run(ctx context.Context, app *App) error {
	agent, name, err := splitSchedule(c.Name)
	if err == nil {
		err = checkLimit(c.Limit)
	}
	if err != nil {
		return err
	}
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		var list admin.TickList
		if err := api.Get(ctx, schedulePath(agent, name, "ticks"), admin.TickQuery{Limit: c.Limit}, &list); err != nil {
			return onSchedule(ctx, api, c.Name, err)
		}
		return printTicks(app, c.json(), list.Ticks)
	})
}

func printTicks(app *App, asJSON bool, rows []admin.Tick) error {
	head := []string{"TICK", "OUTCOME", "TASK", "RECORDED"}
	return term.List(&app.Console, asJSON, head, []string{"RECORDED"}, rows, func(r admin.Tick) []string {
		return []string{term.Moment(r.Tick), r.Outcome, term.Cell(r.TaskID), term.Moment(r.At)}
	})
}
