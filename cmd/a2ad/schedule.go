package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// ScheduleCmd is `a2ad schedule`.
type ScheduleCmd struct {
	Ls     ScheduleLsCmd     `cmd:"" group:"commands" help:"List schedules and their next ticks."`
	Ticks  ScheduleTicksCmd  `cmd:"" group:"commands" help:"List what became of the ticks of a schedule, newest first."`
	Run    ScheduleRunCmd    `cmd:"" group:"commands" help:"Make a task of a schedule now."`
	Pause  SchedulePauseCmd  `cmd:"" group:"commands" help:"Pause schedules until they are resumed."`
	Resume ScheduleResumeCmd `cmd:"" group:"commands" help:"Let paused schedules continue with the next tick."`
}

// scheduleNames are schedules on the command line.
type scheduleNames struct {
	Names  []string `arg:"" name:"schedule" help:"Schedules, as AGENT/NAME."`
	Reason string   `placeholder:"TEXT" help:"Why, for the audit log."`
	Service
	Output
}

// changedSchedule is the result for programs.
type changedSchedule struct {
	Agent  string `json:"agent"`
	Name   string `json:"name"`
	TaskID string `json:"taskId,omitempty"`
	Paused *bool  `json:"paused,omitempty"`
}

// splitSchedule reads AGENT/NAME.
func splitSchedule(text string) (agent, name string, err error) {
	agent, name, ok := strings.Cut(text, "/")
	if !ok || agent == "" || name == "" {
		return "", "", fmt.Errorf("schedule %s: write AGENT/NAME", text)
	}
	return agent, name, nil
}

// schedulePath is the path of a schedule in the admin API, and of an action on it.
func schedulePath(agent, name, action string) string {
	return "/schedules/" + url.PathEscape(agent) + "/" + url.PathEscape(name) + "/" + action
}

// eachSchedule calls do with each schedule, and prints what it returns as JSON, or text.
func (c *scheduleNames) eachSchedule(ctx context.Context, app *App,
	do func(api *admin.Client, agent, name string) (changed changedSchedule, text string, err error)) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		return each(ctx, app, c.Names, func(text string) error {
			agent, name, err := splitSchedule(text)
			if err != nil {
				return err
			}
			changed, line, err := do(api, agent, name)
			if err != nil {
				return onSchedule(ctx, api, text, err)
			}
			if changed.Agent, changed.Name = agent, name; c.json() {
				return term.JSON(app.Stdout, changed)
			}
			_, err = fmt.Fprintln(app.Stdout, line)
			return err
		})
	})
}

// onSchedule says in an error which schedule it is about. If there is no such schedule, it names those that there are.
func onSchedule(ctx context.Context, api *admin.Client, text string, err error) error {
	var list admin.ScheduleList
	if !hasStatus(err, http.StatusNotFound) || api.Get(ctx, "/schedules", nil, &list) != nil {
		return fmt.Errorf("schedule %s: %w", text, err)
	}
	if len(list.Schedules) == 0 {
		return fmt.Errorf("schedule %s not found; no loaded agent file has schedules", text)
	}
	names := listOf(list.Schedules, func(s admin.Schedule) string { return s.Agent + "/" + s.Name })
	return fmt.Errorf("schedule %s not found; schedules here: %s", text, strings.Join(names, ", "))
}

// ScheduleRunCmd is `a2ad schedule run`.
type ScheduleRunCmd struct{ scheduleNames }

// Help is shown below the usage line.
func (*ScheduleRunCmd) Help() string {
	return `Prints the id of the new task. The task is made even if the schedule is paused or its last task ` +
		`has not ended. It is no tick: the next tick stays as it is.`
}

// Run makes tasks.
func (c *ScheduleRunCmd) Run(ctx context.Context, app *App) error {
	return c.eachSchedule(ctx, app, func(api *admin.Client, agent, name string) (changedSchedule, string, error) {
		var made admin.ScheduledTask
		err := api.Post(ctx, schedulePath(agent, name, "run"), admin.Why{Reason: c.Reason}, &made)
		return changedSchedule{TaskID: made.TaskID}, made.TaskID, err
	})
}

// SchedulePauseCmd is `a2ad schedule pause`.
type SchedulePauseCmd struct{ scheduleNames }

// Help is shown below the usage line.
func (*SchedulePauseCmd) Help() string {
	return `A paused schedule has no ticks, also after its agent file was loaded again. ` +
		`Tasks that it has made continue.`
}

// Run pauses.
func (c *SchedulePauseCmd) Run(ctx context.Context, app *App) error {
	return c.change(ctx, app, "pause", func(s *admin.PausedSchedule) string {
		if s.Changed {
			return "paused"
		}
		return "already paused"
	})
}

// ScheduleResumeCmd is `a2ad schedule resume`.
type ScheduleResumeCmd struct{ scheduleNames }

// Help is shown below the usage line.
func (*ScheduleResumeCmd) Help() string {
	return `Ticks of the time between are not made up for. ` +
		`A schedule with "paused: true" in its agent file stays paused.`
}

// Run resumes.
func (c *ScheduleResumeCmd) Run(ctx context.Context, app *App) error {
	return c.change(ctx, app, "resume", func(s *admin.PausedSchedule) string {
		switch {
		case s.Paused:
			return "paused in its agent file"
		case s.Changed:
			return "resumed, next tick " + term.MomentOf(s.NextTick)
		}
		return "not paused, next tick " + term.MomentOf(s.NextTick)
	})
}

// change pauses or resumes schedules, and says what each of them is now.
func (c *scheduleNames) change(
	ctx context.Context, app *App, action string, describe func(*admin.PausedSchedule) string,
) error {
	return c.eachSchedule(ctx, app, func(api *admin.Client, agent, name string) (changedSchedule, string, error) {
		var now admin.PausedSchedule
		err := api.Post(ctx, schedulePath(agent, name, action), admin.Why{Reason: c.Reason}, &now)
		return changedSchedule{Paused: &now.Paused}, agent + "/" + name + " is " + describe(&now), err
	})
}
