package main

import (
	"context"
	"time"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/schedules"
	"github.com/a2ad/a2ad/internal/term"
)

// ScheduleLsCmd is `a2ad schedule ls`.
type ScheduleLsCmd struct {
	Agent    string `placeholder:"A" help:"Only schedules of this agent."`
	All      bool   `help:"Also schedules that were removed from their agent files."`
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*ScheduleLsCmd) Help() string {
	return `NEXT TICK is when the next task is made, without the jitter. With -o json, next has the next five ticks.`
}

// scheduleRow is one line of `a2ad schedule ls -o json`.
type scheduleRow struct {
	Agent      string      `json:"agent"`
	Name       string      `json:"name"`
	State      string      `json:"state"` // active, paused or removed
	Cron       string      `json:"cron"`
	Timezone   string      `json:"timezone"`
	Tenant     string      `json:"tenant"`
	Owner      string      `json:"owner"`
	Overlap    string      `json:"overlap"`
	Next       []time.Time `json:"next,omitempty"`
	NextAt     *time.Time  `json:"nextAt,omitempty"`
	QueuedTick *time.Time  `json:"queuedTick,omitempty"`
	LastTick   *time.Time  `json:"lastTick,omitempty"`
	LastTask   string      `json:"lastTask,omitempty"`
	PausedAt   *time.Time  `json:"pausedAt,omitempty"`
	RemovedAt  *time.Time  `json:"removedAt,omitempty"`
	LoadedAt   time.Time   `json:"loadedAt"`
	LoadedBy   string      `json:"loadedBy"`
}

const upcoming = 5

func newScheduleRow(s *schedules.Schedule) scheduleRow {
	r := scheduleRow{
		Agent: s.Agent, Name: s.Name, State: "active", Cron: s.Cron, Timezone: s.Timezone, Tenant: s.Tenant,
		Owner: s.Owner, Overlap: s.Overlap.String(), NextAt: orNil(s.NextAt), QueuedTick: orNil(s.QueuedTick),
		LastTick: orNil(s.LastTick), PausedAt: orNil(s.PausedAt), RemovedAt: orNil(s.RemovedAt),
		LoadedAt: s.LoadedAt, LoadedBy: s.LoadedBy,
	}
	switch {
	case !s.RemovedAt.IsZero():
		r.State = "removed"
	case !s.Active():
		r.State = "paused"
	}
	if !s.LastTask.IsZero() {
		r.LastTask = s.LastTask.String()
	}
	var err error
	if r.Next, err = s.Upcoming(upcoming); err != nil && !s.NextTick.IsZero() {
		r.Next = []time.Time{s.NextTick} // this machine does not know the time zone
	}
	return r
}

// Run lists.
func (c *ScheduleLsCmd) Run(ctx context.Context, app *App) error {
	return c.withStore(ctx, app, func(s *store.Store) error {
		var agents []string
		if c.Agent != "" {
			agents = []string{c.Agent}
		}
		list, err := s.Schedules.List(ctx, agents)
		if err != nil {
			return err
		}
		var rows []scheduleRow
		for i := range list {
			if c.All || list[i].RemovedAt.IsZero() {
				rows = append(rows, newScheduleRow(&list[i]))
			}
		}
		return printSchedules(app, c.json(), rows)
	})
}

var scheduleHead = []string{
	"SCHEDULE", "STATE", "CRON", "TIME ZONE", "NEXT TICK", "LAST TICK", "LAST TASK", "TENANT/OWNER",
}

func printSchedules(app *App, asJSON bool, rows []scheduleRow) error {
	return term.Rows(&app.Console, asJSON, scheduleHead, rows, func(r scheduleRow) []string {
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
	Name     string `arg:"" name:"schedule" help:"Schedule, as AGENT/NAME."`
	Limit    int    `default:"20" placeholder:"N" help:"At most this many ticks (default 20)."`
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*ScheduleTicksCmd) Help() string {
	return `Outcomes: started (the tick made a task), queued or skipped (the task of the tick before had not ended), ` +
		`missed (no server was there in time).`
}

// tickRow is one line of `a2ad schedule ticks -o json`.
type tickRow struct {
	Tick    time.Time `json:"tick"`
	Outcome string    `json:"outcome"`
	TaskID  string    `json:"taskId,omitempty"`
	At      time.Time `json:"at"`
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
	return c.withStore(ctx, app, func(s *store.Store) error {
		list, err := s.Schedules.Recent(ctx, agent, name, c.Limit)
		if err != nil {
			return err
		}
		rows := make([]tickRow, len(list))
		for i, t := range list {
			rows[i] = tickRow{Tick: t.Tick.Tick, Outcome: string(t.Outcome), At: t.At}
			if !t.Task.IsZero() {
				rows[i].TaskID = t.Task.String()
			}
		}
		head := []string{"TICK", "OUTCOME", "TASK", "RECORDED"}
		return term.Rows(&app.Console, c.json(), head, rows, func(r tickRow) []string {
			return []string{term.Moment(r.Tick), r.Outcome, term.Cell(r.TaskID), term.Moment(r.At)}
		})
	})
}
