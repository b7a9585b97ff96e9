package admin

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/store/access"
)

// route is one operation of the API. The router, the checks of requests and the OpenAPI document come from it.
type route struct {
	method  string
	path    string // below Prefix
	name    string // operationId
	summary string
	scopes  []auth.Scope // one of them, and operator:write for a write
	query   any          // a struct, whose fields are the parameters; nil: none
	body    any          // a struct; nil: none
	answer  any          // a struct; nil: the answer is a stream of events
	errors  []int        // statuses besides those that every route has
	serve   func(a *API, ctx context.Context, r *request) (any, error)
	stream  func(a *API, ctx context.Context, r *request, w http.ResponseWriter) error // in place of serve
}

func (rt *route) writes() bool { return rt.method != http.MethodGet }

// lacks returns the scopes of which a caller lacks one, if it does.
func (rt *route) lacks(p *auth.Principal) []auth.Scope {
	for _, one := range rt.needs() {
		if !slices.ContainsFunc(one, p.Has) {
			return one
		}
	}
	return nil
}

// needs returns what a caller needs: one scope of each list.
func (rt *route) needs() [][]auth.Scope {
	if rt.writes() {
		return [][]auth.Scope{writers, rt.scopes}
	}
	return [][]auth.Scope{rt.scopes}
}

func anyOf(scopes []auth.Scope) string {
	names := make([]string, len(scopes))
	for i, s := range scopes {
		names[i] = string(s)
	}
	return strings.Join(names, " or ")
}

var (
	readers   = []auth.Scope{auth.ScopeOperatorRead, auth.ScopeTenantRead}
	operators = []auth.Scope{auth.ScopeOperatorRead} // for what is not of one tenant
	writers   = []auth.Scope{auth.ScopeOperatorWrite}
)

var routes = []route{
	{
		method: "GET", path: "/tasks", name: "listTasks", summary: "List tasks, newest first.",
		scopes: readers, query: TaskQuery{}, answer: TaskList{}, errors: []int{http.StatusUnprocessableEntity},
		serve: (*API).listTasks,
	},
	{
		method: "GET", path: "/tasks/tail", name: "tailTasks",
		summary: "Follow the changes of all tasks that match: server-sent events, each with a task.",
		scopes:  readers, query: TailQuery{}, stream: (*API).tailTasks,
	},
	{
		method: "GET", path: "/tasks/{task}", name: "showTask", summary: "Show a task and what happened to it.",
		scopes: readers, query: ShowQuery{}, answer: TaskDetail{},
		errors: append([]int{http.StatusUnprocessableEntity}, conflicts...), serve: (*API).showTask,
	},
	{
		method: "GET", path: "/tasks/{task}/tree", name: "showTree",
		summary: "Show a task and the tasks that it has called.",
		scopes:  readers, answer: Tree{}, errors: conflicts, serve: (*API).showTree,
	},
	{
		method: "GET", path: "/tasks/{task}/events", name: "followTask",
		summary: "Follow a task until it ends: server-sent events in the form of A2A 0.3.",
		scopes:  readers, query: EventQuery{},
		errors: append([]int{http.StatusUnprocessableEntity}, conflicts...), stream: (*API).followTask,
	},
	{
		method: "POST", path: "/tasks/{task}/cancel", name: "cancelTask", summary: "Cancel a task.",
		scopes: readers, body: Why{}, answer: Task{}, errors: conflicts, serve: (*API).cancelTask,
	},
	{
		method: "POST", path: "/tasks/{task}/retry", name: "retryTask",
		summary: "Make a new task from the first message of one that failed, was canceled or was rejected.",
		scopes:  readers, body: Retry{}, answer: RetriedTask{}, errors: conflicts, serve: (*API).retryTask,
	},
	{
		method: "POST", path: "/tasks/{task}/resume", name: "resumeTask",
		summary: "Give a parked task fresh attempts, and put it into the queue.",
		scopes:  readers, body: Why{}, answer: ResumedTask{}, errors: conflicts, serve: (*API).resumeTask,
	},
	{
		method: "POST", path: "/tasks/{task}/answer", name: "answerTask",
		summary: "Answer a task that waits for input or authentication, in place of its owner.",
		scopes:  readers, body: Answer{}, answer: Task{}, errors: conflicts, serve: (*API).answerTask,
	},
	{
		method: "POST", path: "/tasks/{task}/assign", name: "assignTask",
		summary: "Say which person is to answer the question of a task. An answer ends this.",
		scopes:  readers, body: Assign{}, answer: Task{}, errors: conflicts, serve: (*API).assignTask,
	},
	{
		method: "POST", path: "/tasks/{task}/signal", name: "signalTask",
		summary: "Send a signal to a task. It ends the wait that is for its name, or is kept for the next one.",
		scopes:  readers, body: Signal{}, answer: SignaledTask{}, errors: conflicts, serve: (*API).signalTask,
	},
	{
		method: "POST", path: "/tasks/{task}/purge", name: "purgeTask",
		summary: "Remove a task and everything about it, for good.",
		scopes:  readers, body: Purge{}, answer: PurgedTask{}, errors: conflicts, serve: (*API).purgeTask,
	},
	{
		method: "POST", path: "/purges", name: "purgeOwner",
		summary: "Remove the tasks of an owner and everything about them, for good.",
		scopes:  readers, body: PurgeOwner{}, answer: PurgedTasks{},
		errors: []int{http.StatusUnprocessableEntity}, serve: (*API).purgeOwner,
	},
	{
		method: "POST", path: "/jobs", name: "startJob",
		summary: "Start a bulk job: an action on all tasks that match. A dry run only counts them.",
		scopes:  operators, body: NewJob{}, answer: StartedJob{}, errors: []int{http.StatusUnprocessableEntity},
		serve: (*API).startJob,
	},
	{
		method: "GET", path: "/jobs", name: "listJobs", summary: "List bulk jobs, newest first.",
		scopes: operators, query: JobQuery{}, answer: JobList{}, serve: (*API).listJobs,
	},
	{
		method: "GET", path: "/jobs/{job}", name: "showJob", summary: "Show the progress of a bulk job.",
		scopes: operators, answer: JobDetail{}, errors: conflicts, serve: (*API).showJob,
	},
	{
		method: "GET", path: "/jobs/{job}/tasks", name: "listJobTasks",
		summary: "List what became of the tasks that a bulk job has come to.",
		scopes:  operators, query: JobTaskQuery{}, answer: JobTaskList{}, errors: conflicts, serve: (*API).listJobTasks,
	},
	{
		method: "POST", path: "/jobs/{job}/stop", name: "stopJob",
		summary: "Stop a bulk job. Tasks that it has acted on stay as they are.",
		scopes:  operators, body: Why{}, answer: StoppedJob{}, errors: conflicts, serve: (*API).stopJob,
	},
	{
		method: "GET", path: "/webhooks", name: "listWebhooks", summary: "List webhooks, newest first.",
		scopes: readers, query: WebhookQuery{}, answer: WebhookList{}, errors: []int{http.StatusUnprocessableEntity},
		serve: (*API).listWebhooks,
	},
	{
		method: "GET", path: "/webhooks/{webhook}/attempts", name: "listDeliveries",
		summary: "List the attempts to deliver of a webhook, newest first.",
		scopes:  readers, query: AttemptQuery{}, answer: DeliveryList{}, errors: []int{http.StatusNotFound},
		serve: (*API).listDeliveries,
	},
	{
		method: "POST", path: "/webhooks/{webhook}/replay", name: "replayWebhook",
		summary: "Make a webhook active again, and let it deliver again.",
		scopes:  readers, body: Replay{}, answer: ReplayedWebhook{}, errors: conflicts, serve: (*API).replayWebhook,
	},
	{
		method: "GET", path: "/destinations", name: "listDestinations", summary: "List webhooks by destination.",
		scopes: readers, query: DestinationQuery{}, answer: DestinationList{},
		errors: []int{http.StatusUnprocessableEntity}, serve: (*API).listDestinations,
	},
	{
		method: "POST", path: "/destinations/enable", name: "enableDestination",
		summary: "Call a destination again that is disabled, or whose circuit breaker is open.",
		scopes:  readers, body: EnableDestination{}, answer: EnabledDestination{}, errors: []int{http.StatusConflict},
		serve: (*API).enableDestination,
	},
	{
		method: "POST", path: "/destinations/replay", name: "replayDestination",
		summary: "Deliver again the events since a time, of all webhooks of a destination.",
		scopes:  readers, body: ReplayDestination{}, answer: ReplayedDestination{},
		errors: []int{http.StatusUnprocessableEntity}, serve: (*API).replayDestination,
	},
	{
		method: "GET", path: "/keys", name: "listKeys", summary: "List API keys, oldest first.",
		scopes: operators, query: KeyQuery{}, answer: KeyList{}, serve: (*API).listKeys,
	},
	{
		method: "POST", path: "/keys", name: "createKey",
		summary: "Make an API key. Its secret is in the answer, and in no other.",
		scopes:  operators, body: NewKey{}, answer: CreatedKey{}, serve: (*API).createKey,
	},
	{
		method: "POST", path: "/keys/{key}/revoke", name: "revokeKey",
		summary: "Revoke an API key: requests with it are refused from then on.",
		scopes:  operators, body: Why{}, answer: Key{}, errors: []int{http.StatusNotFound}, serve: (*API).revokeKey,
	},
	{
		method: "GET", path: "/sessions", name: "listSessions",
		summary: "List the sessions of the console that have not ended, newest first, at most 1,000.",
		scopes:  operators, query: SessionQuery{}, answer: SessionList{}, serve: (*API).listSessions,
	},
	{
		method: "POST", path: "/sessions/revoke", name: "revokeSessions",
		summary: "End a session of the console, or all sessions of an owner.",
		scopes:  operators, body: RevokeSessions{}, answer: RevokedSessions{}, serve: (*API).revokeSessions,
	},
	{
		method: "GET", path: "/schedules", name: "listSchedules", summary: "List schedules and their next ticks.",
		scopes: readers, query: ScheduleQuery{}, answer: ScheduleList{}, serve: (*API).listSchedules,
	},
	{
		method: "GET", path: "/schedules/{agent}/{name}/ticks", name: "listTicks",
		summary: "List what became of the ticks of a schedule, newest first.",
		scopes:  readers, query: TickQuery{}, answer: TickList{}, errors: []int{http.StatusNotFound},
		serve: (*API).listTicks,
	},
	{
		method: "POST", path: "/schedules/{agent}/{name}/run", name: "runSchedule",
		summary: "Make a task of a schedule now. It is no tick.",
		scopes:  readers, body: Why{}, answer: ScheduledTask{}, errors: conflicts, serve: (*API).runSchedule,
	},
	{
		method: "POST", path: "/schedules/{agent}/{name}/pause", name: "pauseSchedule",
		summary: "Pause a schedule until it is resumed.",
		scopes:  readers, body: Why{}, answer: PausedSchedule{}, errors: conflicts, serve: (*API).pauseSchedule,
	},
	{
		method: "POST", path: "/schedules/{agent}/{name}/resume", name: "resumeSchedule",
		summary: "Let a paused schedule continue with the next tick.",
		scopes:  readers, body: Why{}, answer: PausedSchedule{}, errors: conflicts, serve: (*API).resumeSchedule,
	},
	{
		method: "GET", path: "/stats", name: "showStats", summary: "Show the state of the whole service.",
		scopes: operators, answer: Stats{}, serve: (*API).showStats,
	},
	{
		method: "GET", path: "/usage", name: "listUsage",
		summary: "List the usage of models that agents have reported.",
		scopes:  operators, query: UsageQuery{}, answer: UsageList{}, serve: (*API).listUsage,
	},
	{
		method: "GET", path: "/doctor", name: "runDoctor",
		summary: "Check the settings, the agent files, the database and the addresses of the server that answers.",
		scopes:  operators, query: DoctorQuery{}, answer: DoctorReport{}, serve: (*API).runDoctor,
	},
	{
		method: "GET", path: "/agents", name: "listAgents", summary: "List agents and what they do now.",
		scopes: operators, answer: AgentList{}, serve: (*API).listAgents,
	},
	{
		method: "GET", path: "/queues", name: "listQueues",
		summary: "List queues by agent and lane, and what limits them.",
		scopes:  operators, answer: QueueList{}, serve: (*API).listQueues,
	},
	{
		method: "POST", path: "/agents/{agent}/pause", name: "pauseAgent",
		summary: "Let no worker claim the tasks of an agent. Attempts that have begun continue.",
		scopes:  operators, body: Why{}, answer: StoppedAgent{}, errors: []int{http.StatusConflict},
		serve: (*API).pauseAgent,
	},
	{
		method: "POST", path: "/agents/{agent}/resume", name: "resumeAgent",
		summary: "Let workers claim the tasks of a paused agent again.",
		scopes:  operators, body: Why{}, answer: StoppedAgent{}, errors: []int{http.StatusConflict},
		serve: (*API).resumeAgent,
	},
	{
		method: "GET", path: "/workers", name: "listWorkers",
		summary: "List replicas, and remote workers that ask for tasks or have attempts.",
		scopes:  operators, answer: WorkerList{}, serve: (*API).listWorkers,
	},
	{
		method: "POST", path: "/workers/{worker}/drain", name: "drainWorker",
		summary: "Let a worker claim no more tasks, and give those that it has to others if expire is true.",
		scopes:  operators, body: Drain{}, answer: StoppedWorker{}, errors: []int{http.StatusConflict},
		serve: (*API).drainWorker,
	},
	{
		method: "POST", path: "/workers/{worker}/resume", name: "resumeWorker",
		summary: "Let a drained worker claim tasks again.",
		scopes:  operators, body: Why{}, answer: StoppedWorker{}, errors: []int{http.StatusConflict},
		serve: (*API).resumeWorker,
	},
	{
		method: "GET", path: "/actions", name: "listActions", summary: "List the audit log, newest first.",
		scopes: readers, query: ActionQuery{}, answer: ActionList{}, serve: (*API).listActions,
	},
}

// conflicts are the statuses of what is about one task. Its state may not permit it, or its id may be ambiguous.
var conflicts = []int{http.StatusNotFound, http.StatusConflict}

// acting returns a context whose actions name the caller in the audit log.
func acting(ctx context.Context, p auth.Principal, reason string) context.Context {
	return access.ActingBy(ctx, access.By{Actor: p.Actor(), Reason: reason})
}
