package admin

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// AgentList is every agent that is known.
type AgentList struct {
	Agents []Agent `json:"agents"`
}

// Agent is what an agent does now.
type Agent struct {
	Name        string     `json:"agent"`
	State       string     `json:"state" doc:"active, paused or unreachable."`
	Served      *bool      `json:"served,omitempty" doc:"Whether this server has its file; missing without a server."`
	Description string     `json:"description,omitempty" doc:"Of its card, if this server has its file."`
	Version     string     `json:"version,omitempty" doc:"Of its card."`
	Skills      []string   `json:"skills,omitempty" doc:"Ids of the skills of its card."`
	Executor    string     `json:"executor,omitempty" doc:"echo, script, exec, http, a2a, or pull for remote workers."`
	Concurrency int        `json:"concurrency,omitempty" doc:"The most attempts at once, if it has a limit."`
	MaxAttempts int        `json:"maxAttempts,omitempty" doc:"Of a task, if its file says so."`
	DeadlineMs  int64      `json:"deadlineMs,omitempty" doc:"Of a turn, if its file says so."`
	IdleMs      int64      `json:"idleTimeoutMs,omitempty" doc:"Between two events of an attempt, if its file says so."`
	Waiting     int64      `json:"waiting" doc:"Tasks in its queue."`
	Due         int64      `json:"due" doc:"Of these, those that wait for a worker alone."`
	OldestMs    int64      `json:"oldestMs" doc:"How long the oldest of these has been due."`
	Running     int64      `json:"running" doc:"Attempts that hold a lease."`
	WorkerAt    *time.Time `json:"workerAt,omitempty" doc:"When a remote worker was last in touch."`
	Unreachable *Outage    `json:"unreachable,omitempty"`
	Paused      *Stop      `json:"paused,omitempty"`
}

// Stop says who stopped an agent or a worker, and why.
type Stop struct {
	Since  time.Time `json:"since"`
	Actor  string    `json:"actor"`
	Reason string    `json:"reason,omitempty"`
}

func newStop(s *tasks.Stop) *Stop {
	if s == nil {
		return nil
	}
	return &Stop{s.Since, s.Actor, s.Reason}
}

// listAgents serves GET /agents.
func (a *API) listAgents(ctx context.Context, r *request) (any, error) {
	list, err := a.agentsNow(ctx, r)
	return AgentList{list}, err
}

// agentsNow returns the agents that the caller may see, by name.
func (a *API) agentsNow(ctx context.Context, r *request) ([]Agent, error) {
	found, err := a.store.Operate.Agents(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]Agent, len(found))
	for i := range found {
		list[i] = newAgent(&found[i])
	}
	if a.cfg.Agents != nil {
		list = withFiles(list, a.cfg.Agents())
	}
	if r.principal.Agents != nil {
		list = slices.DeleteFunc(list, func(x Agent) bool { return !r.principal.MayUse(x.Name) })
	}
	slices.SortFunc(list, func(x, y Agent) int { return strings.Compare(x.Name, y.Name) })
	return list, nil
}

func newAgent(x *operate.AgentNow) Agent {
	out := Agent{
		Name: x.Agent, State: "active", Waiting: x.Waiting, Due: x.Due, OldestMs: x.Oldest.Milliseconds(),
		Running: x.Running, WorkerAt: orNil(x.WorkerAt), Paused: newStop(x.Paused),
	}
	if o := x.Outage; o != nil {
		out.State, out.Unreachable = "unreachable", &Outage{o.Since, o.Reason, o.Probes, o.Next}
	}
	if out.Paused != nil {
		out.State = "paused"
	}
	return out
}

// withFiles adds what agent files say, and the agents that do nothing now.
func withFiles(list []Agent, files []*a2a.Agent) []Agent {
	for i := range list {
		list[i].Served = new(bool)
	}
	for _, f := range files {
		i := slices.IndexFunc(list, func(x Agent) bool { return x.Name == f.Name })
		if i < 0 {
			i = len(list)
			list = append(list, Agent{Name: f.Name, State: "active"})
		}
		served := true
		describeAgent(&list[i], f)
		list[i].Served = &served
	}
	return list
}

// describeAgent adds what an agent file says.
func describeAgent(x *Agent, file *a2a.Agent) {
	x.Description, x.Version, x.Executor = file.Card.Description, file.Card.Version, file.Executor
	for _, s := range file.Skills() {
		x.Skills = append(x.Skills, s.ID)
	}
	l := &file.Limits
	x.Concurrency, x.MaxAttempts = l.Concurrency, l.MaxAttempts
	x.DeadlineMs, x.IdleMs = l.Deadline.Milliseconds(), l.IdleTimeout.Milliseconds()
}

// WorkerList is every worker that is known.
type WorkerList struct {
	Workers []Worker `json:"workers"`
}

// Worker is what a worker does now: a replica, or a remote worker that asks for tasks or has attempts.
type Worker struct {
	Name         string     `json:"worker"`
	State        string     `json:"state" doc:"active, idle, drained, lost: it renews no lease, or gone: it is silent."`
	Replica      bool       `json:"replica" doc:"Whether it is a server."`
	Servers      int        `json:"servers,omitempty" doc:"Servers that have this name. Each should have its own."`
	Version      string     `json:"version,omitempty" doc:"Of the server, or what a remote worker says in User-Agent."`
	Host         string     `json:"host,omitempty" doc:"Of the server."`
	Tenant       string     `json:"tenant,omitempty" doc:"Of the credentials of a remote worker."`
	StartedAt    *time.Time `json:"startedAt,omitempty" doc:"Of its first heartbeat."`
	Slots        int        `json:"slots,omitempty" doc:"Of the server: attempts that may run at once (A2AD_WORKERS)."`
	Busy         int        `json:"busy,omitempty" doc:"Slots in use."`
	BusyPercent  int        `json:"busyPercent,omitempty" doc:"Of the slots, lately."`
	Commands     int        `json:"commandSlots,omitempty" doc:"Of the slots, those for commands (A2AD_COMMANDS)."`
	BusyCommands int        `json:"commandsBusy,omitempty" doc:"Slots for commands in use."`
	CommandsWait int64      `json:"commandsWaitMs,omitempty" doc:"For how long tasks have waited for such a slot."`
	Asks         []string   `json:"asks,omitempty" doc:"The agents that a remote worker asks for."`
	Agents       []string   `json:"agents,omitempty" doc:"Of its attempts."`
	Running      int64      `json:"running" doc:"Attempts that hold a lease."`
	Expired      int64      `json:"expired" doc:"Of these, those whose lease it no longer renews."`
	OldestAt     *time.Time `json:"oldestAt,omitempty" doc:"When its oldest attempt began."`
	HeartbeatAt  *time.Time `json:"heartbeatAt,omitempty" doc:"When it was last in touch."`
	EventAt      *time.Time `json:"eventAt,omitempty" doc:"Of the newest event of its attempts."`
	SilentSince  *time.Time `json:"silentSince,omitempty" doc:"Since when one of its attempts has reported nothing."`
	Drained      *Stop      `json:"drained,omitempty"`
}

// listWorkers serves GET /workers.
func (a *API) listWorkers(ctx context.Context, r *request) (any, error) {
	if err := r.mustBeForAllAgents("workers are"); err != nil {
		return nil, err
	}
	found, err := a.store.Operate.Workers(ctx)
	list := make([]Worker, len(found))
	for i := range found {
		list[i] = newWorker(&found[i])
	}
	return WorkerList{list}, err
}

func newWorker(x *operate.WorkerNow) Worker {
	out := Worker{
		Name: x.Worker, State: "active", Replica: x.Replica, Agents: x.Agents, Running: x.Running, Expired: x.Expired,
		OldestAt: orNil(x.Oldest), HeartbeatAt: orNil(x.HeartbeatAt), EventAt: orNil(x.EventAt),
		SilentSince: orNil(x.SilentSince), Drained: newStop(x.Drained), Servers: x.Servers,
	}
	if p := x.Presence; p != nil {
		out.Version, out.Host, out.Tenant, out.StartedAt = p.Version, p.Host, p.Tenant, orNil(p.StartedAt)
		out.Slots, out.Busy, out.BusyPercent = p.Slots, p.Busy, percent(p.BusyShare)
		out.Commands, out.BusyCommands = p.Commands, p.BusyCommands
		out.CommandsWait = p.CommandsWait.Milliseconds()
		if !p.Server() {
			out.Asks = p.Agents
		}
	}
	switch {
	case x.Drained != nil:
		out.State = "drained"
	case x.Running == 0 && !x.InTouch:
		out.State = "gone"
	case x.Running == 0:
		out.State = "idle"
	case x.Expired == x.Running:
		out.State = "lost"
	}
	return out
}

// Drain is the body of a drain.
type Drain struct {
	Why
	Expire bool `json:"expire,omitempty" doc:"Also end its leases: its tasks are given to others, as if it were lost."`
}

// StoppedAgent is an agent that was paused or resumed.
type StoppedAgent struct {
	Name   string `json:"agent"`
	Paused bool   `json:"paused"`
}

// StoppedWorker is a worker that was drained or resumed.
type StoppedWorker struct {
	Name    string `json:"worker"`
	Drained bool   `json:"drained"`
	Expired int    `json:"expired,omitempty" doc:"How many of its leases were ended."`
}

// What a stop may refuse.
const (
	reasonAlreadyStopped = "ALREADY_STOPPED"
	reasonNotStopped     = "NOT_STOPPED"
)

// pauseAgent serves POST /agents/{agent}/pause.
func (a *API) pauseAgent(ctx context.Context, r *request) (any, error) {
	name, err := a.stoppable(r, "agent")
	if err != nil {
		return nil, err
	}
	if !r.principal.MayUse(name) {
		return nil, a2a.Errorf(a2a.CodeForbidden, "the credentials are for other agents")
	}
	began, _, err := a.store.Tasks.BeginStop(ctx, tasks.StopAgent, name, false)
	if err == nil && !began {
		err = refusal{http.StatusConflict, reasonAlreadyStopped, "the agent is already paused"}
	}
	return StoppedAgent{name, true}, err
}

// resumeAgent serves POST /agents/{agent}/resume.
func (a *API) resumeAgent(ctx context.Context, r *request) (any, error) {
	name, err := a.stoppable(r, "agent")
	if err != nil {
		return nil, err
	}
	if !r.principal.MayUse(name) {
		return nil, a2a.Errorf(a2a.CodeForbidden, "the credentials are for other agents")
	}
	ended, err := a.store.Tasks.EndStop(ctx, tasks.StopAgent, name)
	if err == nil && !ended {
		err = refusal{http.StatusConflict, reasonNotStopped, "the agent is not paused"}
	}
	return StoppedAgent{name, false}, err
}

// drainWorker serves POST /workers/{worker}/drain.
func (a *API) drainWorker(ctx context.Context, r *request) (any, error) {
	name, err := a.stoppable(r, "worker")
	if err != nil {
		return nil, err
	}
	if err := r.mustBeForAllAgents("workers are"); err != nil {
		return nil, err
	}
	b := r.body.(*Drain) //nolint:forcetypeassert // the route says so
	began, leases, err := a.store.Tasks.BeginStop(ctx, tasks.StopWorker, name, b.Expire)
	if err == nil && !began && leases == 0 {
		err = refusal{http.StatusConflict, reasonAlreadyStopped, "the worker is already drained"}
	}
	return StoppedWorker{name, true, leases}, err
}

// resumeWorker serves POST /workers/{worker}/resume.
func (a *API) resumeWorker(ctx context.Context, r *request) (any, error) {
	name, err := a.stoppable(r, "worker")
	if err != nil {
		return nil, err
	}
	if err := r.mustBeForAllAgents("workers are"); err != nil {
		return nil, err
	}
	ended, err := a.store.Tasks.EndStop(ctx, tasks.StopWorker, name)
	if err == nil && !ended {
		err = refusal{http.StatusConflict, reasonNotStopped, "the worker is not drained"}
	}
	return StoppedWorker{Name: name}, err
}

// maxStoppable bounds the name of an agent or a worker, in bytes.
const maxStoppable = 256

// stoppable checks the reason, and returns the name in the path.
func (a *API) stoppable(r *request, what string) (string, error) {
	if b, ok := r.body.(interface{ why() string }); ok {
		if err := checkReason(b.why()); err != nil {
			return "", err
		}
	}
	name := r.PathValue(what)
	if name == "" || len(name) > maxStoppable {
		return "", a2a.InvalidParams(what, "must have 1 to %d bytes", maxStoppable)
	}
	return name, nil
}
