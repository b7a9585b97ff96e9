package admin

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/a2ad/a2ad/internal/store/schedules"
)

// ScheduleQuery selects schedules.
type ScheduleQuery struct {
	Agent   string `json:"agent,omitempty" doc:"Only schedules of this agent."`
	Removed bool   `json:"removed,omitempty" doc:"Also schedules that were removed from their agent files."`
}

// ScheduleList is the schedules, by agent and name.
type ScheduleList struct {
	Schedules []Schedule `json:"schedules"`
}

// Schedule is a schedule of an agent. Its JSON does not change silently.
type Schedule struct {
	Agent      string      `json:"agent"`
	Name       string      `json:"name"`
	State      string      `json:"state" doc:"active, paused or removed."`
	Cron       string      `json:"cron"`
	Timezone   string      `json:"timezone"`
	Tenant     string      `json:"tenant" doc:"Of its tasks."`
	Owner      string      `json:"owner" doc:"Of its tasks."`
	Overlap    string      `json:"overlap"`
	Next       []time.Time `json:"next,omitempty" doc:"The next ticks, without the jitter."`
	NextAt     *time.Time  `json:"nextAt,omitempty" doc:"When the next task is made."`
	QueuedTick *time.Time  `json:"queuedTick,omitempty" doc:"Starts when the last task has ended."`
	LastTick   *time.Time  `json:"lastTick,omitempty" doc:"The newest that has made a task."`
	LastTask   string      `json:"lastTask,omitempty"`
	PausedAt   *time.Time  `json:"pausedAt,omitempty" doc:"When an operator paused it."`
	RemovedAt  *time.Time  `json:"removedAt,omitempty"`
	LoadedAt   time.Time   `json:"loadedAt"`
	LoadedBy   string      `json:"loadedBy" doc:"The replica that has loaded its agent file."`
}

// Upcoming is how many of the next ticks are shown.
const Upcoming = 5

func newSchedule(s *schedules.Schedule) Schedule {
	r := Schedule{
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
	if r.Next, err = s.Upcoming(Upcoming); err != nil && !s.NextTick.IsZero() {
		r.Next = []time.Time{s.NextTick} // this machine does not know the time zone
	}
	return r
}

// TickQuery bounds a list of ticks.
type TickQuery struct {
	Limit int `json:"limit,omitempty" doc:"At most this many ticks: 20 unless given." range:"1-10000"`
}

// TickList is the newest ticks of a schedule, the newest first.
type TickList struct {
	Ticks []Tick `json:"ticks"`
}

// Tick is what became of a tick.
type Tick struct {
	Tick    time.Time `json:"tick"`
	Outcome string    `json:"outcome" doc:"started, queued, skipped or missed."`
	TaskID  string    `json:"taskId,omitempty" doc:"The task that it has made."`
	At      time.Time `json:"at" doc:"When it was recorded."`
}

// ScheduledTask is a task that was made of a schedule.
type ScheduledTask struct {
	Agent  string `json:"agent"`
	Name   string `json:"name"`
	TaskID string `json:"taskId"`
}

// PausedSchedule says whether a schedule is paused.
type PausedSchedule struct {
	Agent    string     `json:"agent"`
	Name     string     `json:"name"`
	Paused   bool       `json:"paused" doc:"By an operator or in its agent file."`
	Changed  bool       `json:"changed" doc:"Whether this request has paused or resumed it."`
	NextTick *time.Time `json:"nextTick,omitempty"`
}

// schedules returns the schedules that the caller may know of, of one agent or, if agent is empty, of all.
func (a *API) schedules(ctx context.Context, r *request, agent string) ([]schedules.Schedule, error) {
	agents := r.principal.Agents
	if agent != "" {
		if agents = []string{agent}; !r.principal.MayUse(agent) {
			return nil, nil
		}
	}
	list, err := a.store.Schedules.List(ctx, agents)
	if err != nil || r.everyTenant() {
		return list, err
	}
	var own []schedules.Schedule
	for i := range list {
		if list[i].Tenant == r.principal.Tenant {
			own = append(own, list[i])
		}
	}
	return own, nil
}

// listSchedules serves GET /schedules.
func (a *API) listSchedules(ctx context.Context, r *request) (any, error) {
	q := r.query.(*ScheduleQuery) //nolint:forcetypeassert // the route says so
	found, err := a.schedules(ctx, r, q.Agent)
	if err != nil {
		return nil, err
	}
	list := ScheduleList{Schedules: []Schedule{}}
	for i := range found {
		if q.Removed || found[i].RemovedAt.IsZero() {
			list.Schedules = append(list.Schedules, newSchedule(&found[i]))
		}
	}
	return list, nil
}

const defaultTicks = 20

// listTicks serves GET /schedules/{agent}/{name}/ticks.
func (a *API) listTicks(ctx context.Context, r *request) (any, error) {
	q := r.query.(*TickQuery) //nolint:forcetypeassert // the route says so
	limit := defaultTicks
	if q.Limit > 0 {
		limit = q.Limit
	}
	agent, name, err := a.scheduleOf(ctx, r)
	if err != nil {
		return nil, err
	}
	found, err := a.store.Schedules.Recent(ctx, agent, name, limit)
	if err != nil {
		return nil, err
	}
	list := TickList{Ticks: make([]Tick, len(found))}
	for i, t := range found {
		list.Ticks[i] = Tick{Tick: t.Tick.Tick, Outcome: string(t.Outcome), At: t.At}
		if !t.Task.IsZero() {
			list.Ticks[i].TaskID = t.Task.String()
		}
	}
	return list, nil
}

var (
	errNoSchedule      = refusal{http.StatusNotFound, reasonNotFound, "no such schedule"}
	errScheduleRemoved = refusal{http.StatusConflict, "REMOVED", schedules.ErrRemoved.Error()}
)

// scheduleOf returns the names of the schedule in the path of a request. It must be one that the caller may know of.
func (a *API) scheduleOf(ctx context.Context, r *request) (agent, name string, err error) {
	agent, name = r.PathValue("agent"), r.PathValue("name")
	list, err := a.schedules(ctx, r, agent)
	if err != nil {
		return agent, name, err
	}
	for i := range list {
		if list[i].Name == name {
			return agent, name, nil
		}
	}
	return agent, name, errNoSchedule
}

// scheduleError turns an error of the store into one for callers.
func scheduleError(err error) error {
	switch {
	case errors.Is(err, schedules.ErrNone):
		return errNoSchedule
	case errors.Is(err, schedules.ErrRemoved):
		return errScheduleRemoved
	}
	return err
}

// runSchedule serves POST /schedules/{agent}/{name}/run.
func (a *API) runSchedule(ctx context.Context, r *request) (any, error) {
	agent, name, err := a.changing(ctx, r)
	if err != nil {
		return nil, err
	}
	id, err := a.store.Schedules.RunNow(ctx, agent, name)
	if err != nil {
		return nil, scheduleError(err)
	}
	return ScheduledTask{agent, name, id.String()}, nil
}

// changing returns the names of the schedule that a request changes, and checks its reason.
func (a *API) changing(ctx context.Context, r *request) (agent, name string, err error) {
	if err := checkReason(r.body.(*Why).Reason); err != nil { //nolint:forcetypeassert // the routes say so
		return "", "", err
	}
	return a.scheduleOf(ctx, r)
}

// pauseSchedule serves POST /schedules/{agent}/{name}/pause.
func (a *API) pauseSchedule(ctx context.Context, r *request) (any, error) {
	return a.setPaused(ctx, r, true)
}

// resumeSchedule serves POST /schedules/{agent}/{name}/resume.
func (a *API) resumeSchedule(ctx context.Context, r *request) (any, error) {
	return a.setPaused(ctx, r, false)
}

func (a *API) setPaused(ctx context.Context, r *request, paused bool) (any, error) {
	agent, name, err := a.changing(ctx, r)
	if err != nil {
		return nil, err
	}
	it, changed, err := a.store.Schedules.Pause(ctx, agent, name, paused)
	if err != nil {
		return nil, scheduleError(err)
	}
	return PausedSchedule{
		Agent: agent, Name: name, Paused: paused || it.Paused, Changed: changed, NextTick: orNil(it.NextTick),
	}, nil
}
