package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/schedules"
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
	Names    []string `arg:"" name:"schedule" help:"Schedules, as AGENT/NAME."`
	Database `group:"database"`
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

// eachSchedule calls do with each schedule, and prints what it returns as JSON, or text.
func (c *scheduleNames) eachSchedule(ctx context.Context, app *App,
	do func(s *store.Store, agent, name string) (changed changedSchedule, text string, err error)) error {
	return c.withStore(ctx, app, func(s *store.Store) error {
		return each(ctx, app, c.Names, func(text string) error {
			agent, name, err := splitSchedule(text)
			if err != nil {
				return err
			}
			changed, line, err := do(s, agent, name)
			if errors.Is(err, schedules.ErrNone) {
				return noSuchSchedule(ctx, s, text)
			}
			if err != nil {
				return err
			}
			if changed.Agent, changed.Name = agent, name; c.json() {
				return term.JSON(app.Stdout, changed)
			}
			_, err = fmt.Fprintln(app.Stdout, line)
			return err
		})
	})
}

// noSuchSchedule names the schedules that there are.
func noSuchSchedule(ctx context.Context, s *store.Store, text string) error {
	list, err := s.Schedules.List(ctx, nil)
	if err != nil {
		return err
	}
	var names []string
	for i := range list {
		if list[i].RemovedAt.IsZero() {
			names = append(names, list[i].Agent+"/"+list[i].Name)
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("schedule %s not found; no loaded agent file has schedules", text)
	}
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
	return c.eachSchedule(ctx, app, func(s *store.Store, agent, name string) (changedSchedule, string, error) {
		id, err := s.Schedules.RunNow(ctx, agent, name)
		return changedSchedule{TaskID: id.String()}, id.String(), err
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
func (c *SchedulePauseCmd) Run(ctx context.Context, app *App) error { return c.pause(ctx, app, true) }

// ScheduleResumeCmd is `a2ad schedule resume`.
type ScheduleResumeCmd struct{ scheduleNames }

// Help is shown below the usage line.
func (*ScheduleResumeCmd) Help() string {
	return `Ticks of the time between are not made up for. ` +
		`A schedule with "paused: true" in its agent file stays paused.`
}

// Run resumes.
func (c *ScheduleResumeCmd) Run(ctx context.Context, app *App) error { return c.pause(ctx, app, false) }

func (c *scheduleNames) pause(ctx context.Context, app *App, paused bool) error {
	return c.eachSchedule(ctx, app, func(s *store.Store, agent, name string) (changedSchedule, string, error) {
		it, changed, err := s.Schedules.Pause(ctx, agent, name, paused)
		if err != nil {
			return changedSchedule{}, "", err
		}
		text, already := agent+"/"+name+" is ", ""
		if !changed {
			already = "already "
		}
		switch {
		case paused:
			text += already + "paused"
		case it.Paused:
			text += "paused in its agent file"
		case changed:
			text += "resumed, next tick " + term.Moment(it.NextTick)
		default:
			text += "not paused, next tick " + term.Moment(it.NextTick)
		}
		now := paused || it.Paused
		return changedSchedule{Paused: &now}, text, nil
	})
}
