package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/term"
)

// The screens in this file are made from values, so that they have every column and every case. Other tests check what
// the commands read from the database.

var someTime = time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)

const pushID = "019a9d40-0000-7000-8000-0000000000a1"

func someTasks() []taskRow {
	lease := someTime.Add(30 * time.Second)
	return []taskRow{
		{
			ID: taskID, State: "working", Agent: "words", Tenant: "acme", Owner: "alice", ContextID: "c1",
			CreatedAt: someTime, UpdatedAt: someTime.Add(time.Second), Events: 12, Attempt: 2, Epoch: 3,
			Worker: "replica-1", LeaseUntil: &lease,
		},
		{
			ID: oldTask, State: "completed", Agent: "echo", Tenant: "acme", Owner: "bob\tthe\x1b[31mbuilder",
			ContextID: "c2", CreatedAt: someTime, UpdatedAt: someTime, Events: 3, Epoch: 1,
		},
		{
			ID: "019a9d40-0000-7000-8000-000000000003", State: "input-required", Agent: "refunds", Tenant: "acme",
			Owner: "eve", CreatedAt: someTime, UpdatedAt: someTime, Events: 3, Epoch: 1,
			Question: "Refund order 1234 of 99 € to the customer?\nSay yes or no.",
		},
	}
}

func someSnapshot() *a2a.Task {
	id, _ := a2a.ParseID(taskID)
	text := func(s string) []a2a.Part { return []a2a.Part{{Kind: a2a.PartText, Text: s}} }
	file := a2a.Part{Kind: a2a.PartFile, Filename: "a.txt", MediaType: "text/plain"}
	return &a2a.Task{
		ID: id, Agent: "words", ContextID: "c1",
		Status: a2a.Status{State: a2a.StateWorking,
			Message: &a2a.Message{Role: a2a.RoleAgent, Parts: text("counting")}},
		History: []a2a.Message{{Role: a2a.RoleUser, Parts: append(text("count\nthese"), file)}},
		Artifacts: []a2a.Artifact{
			{ID: "count", Parts: text("2\n")},
			{ID: "x", Name: "list", Parts: []a2a.Part{{Kind: a2a.PartData, Data: a2a.Raw(`{"n": 1}`)}}},
		},
	}
}

func someUsage() []usageRow {
	sums := []operate.UsageSum{
		{
			Day: "2026-01-02", Tenant: "acme", Owner: "alice", Agent: "words",
			Usage: a2a.Usage{
				Model: "gpt-5", Input: 12_345_678, Output: 1_234_567, Cached: 345_678, Reasoning: 4567, Requests: 890,
			},
		},
		{Day: "2026-01-02", Tenant: "acme", Owner: "bob", Agent: "echo", Usage: a2a.Usage{Output: 3}},
	}
	return listOf(sums, func(s operate.UsageSum) usageRow { return admin.NewUsage(&s) })
}

func someTimeline() *operate.Timeline {
	end, status := someTime.Add(time.Second), func(s a2a.State, text string) a2a.Event {
		u := &a2a.StatusUpdate{Status: a2a.Status{State: s}}
		if text != "" {
			u.Status.Message = &a2a.Message{Role: a2a.RoleAgent, Parts: []a2a.Part{{Kind: a2a.PartText, Text: text}}}
		}
		return u
	}
	chunk := &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "count"}}
	later := func(ms int) time.Time { return someTime.Add(time.Duration(ms) * time.Millisecond) }
	return &operate.Timeline{
		Usage: []a2a.Usage{
			{Model: "gpt-5", Input: 12, Output: 34, Cached: 5, Reasoning: 3, Requests: 1}, {Output: 7},
		},
		Events: []operate.Logged{
			{Seq: 1, At: someTime, Source: operate.SourceCaller, Event: status(a2a.StateSubmitted, "")},
			{Seq: 2, At: later(3), Source: operate.SourceWorker, Worker: "replica-0", Epoch: 1,
				Event: status(a2a.StateWorking, "")},
			{Seq: 3, At: later(900), Source: operate.SourceServer,
				Event: &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking},
					Metadata: a2a.Raw(`{"a2ad/attempt":2,"a2ad/reason":"the worker was lost"}`)}},
			{Seq: 4, At: later(1100), Source: operate.SourceWorker, Worker: "replica-1", Epoch: 3, Event: chunk,
				Bytes: 2000},
			{Seq: 5, At: later(1200), Source: operate.SourceWorker, Worker: "replica-1", Epoch: 3, Event: chunk,
				Bytes: 200},
			{Seq: 6, At: later(1300), Source: operate.SourceWorker, Worker: "replica-1", Epoch: 3,
				Event: status(a2a.StateWorking, strings.Repeat("counting\n", 20))},
		},
		Messages: []operate.Said{
			{Seq: 1, AtSeq: 1, Message: a2a.Message{Role: a2a.RoleUser, Parts: someSnapshot().History[0].Parts}},
			{Seq: 2, AtSeq: 6, Message: a2a.Message{Role: a2a.RoleAgent}},
			{Seq: 3, AtSeq: 7, Message: a2a.Message{Role: a2a.RoleUser,
				Parts: []a2a.Part{{Kind: a2a.PartText, Text: "and these"}}}},
		},
		Attempts: []operate.Attempt{
			{Epoch: 1, Attempt: 1, Worker: "replica-0", ClaimedAt: later(3), EndedAt: end, Outcome: "expired",
				Error: "no sign of life"},
			{Epoch: 3, Attempt: 2, Worker: "replica-1", ClaimedAt: end},
		},
		Steps: []operate.Recorded{
			{Seq: 1, Kind: a2a.StepWork, Key: "charge#1", Name: "charge", Says: `"busy"`, Failed: true, Attempts: 2,
				NextAt: later(60_000), At: later(1010), Worker: "replica-1"},
			{Seq: 2, Kind: a2a.StepWait, Key: "approval#1", Says: `{"by":"time"}`, At: later(1020),
				EndedAt: later(1090), Worker: "replica-1"},
			{Seq: 3, Kind: a2a.StepWork, Key: "write#1", Artifact: "report", Attempts: 1, At: later(1092),
				Worker: "replica-1"},
		},
		Signals: []operate.Signaled{{Name: "approved", Value: `"yes"`, Sender: "acme/ops", At: later(1095)}},
		Tries: []operate.Tried{{ConfigID: "default", URL: "https://hooks.example/a2a",
			LedgerEntry: webhooks.LedgerEntry{
				From: 1, Seq: 3, Outcome: "failed", Attempt: 2, Trigger: webhooks.TriggerManual, StartedAt: later(1150),
				Try: webhooks.Try{Took: 1234 * time.Millisecond, Status: 500, Reason: "answered 500"},
			}}},
		Actions: []access.Recorded{{At: later(1140), Actor: "operator ann@desk", Name: access.ActionPushReplay,
			Detail: json.RawMessage(`{"after":1}`)}},
	}
}

func someOverview() *operate.Overview {
	return &operate.Overview{
		Tasks: []operate.TaskCount{
			{Agent: "echo", State: a2a.StateCompleted, Tasks: 1_203_450, Estimated: true},
			{Agent: "words", State: a2a.StateSubmitted, Tasks: 12},
			{Agent: "words", State: a2a.StateWorking, Tasks: 2},
			{Agent: "words", State: a2a.StateInputRequired, Tasks: 1},
		},
		Queues: []operate.QueueDepth{
			{Agent: "words", Waiting: 12, Due: 10, Oldest: 83 * time.Second},
			{Agent: "late", Waiting: 1, Oldest: -time.Second},
		},
		Unreachable: []operate.Outage{
			{Agent: "far", Since: someTime, Reason: tasks.ReasonNoWorker, Replica: "replica-1", Next: someTime},
			{Agent: "words", Since: someTime, Reason: "connect: connection refused", Replica: "replica-1", Probes: 7,
				Next: someTime.Add(30 * time.Second)},
		},
		Parked: []operate.ParkedCount{{Agent: "words", Tasks: 3, Oldest: 26 * time.Hour}},
		Waiting: []operate.WaitingCount{
			{Agent: "echo", Tasks: 1}, {Agent: "words", Tasks: 1204, Next: someTime.Add(time.Hour)},
		},
		Workers: []operate.WorkerLoad{{Worker: "replica-1", Running: 2, Expired: 1}},
		Runs: []operate.RunSeen{
			{Task: a2a.ID{0: 1, 15: 7}, Agent: "words", Worker: "replica-1", Attempt: 2, Age: 20 * time.Minute,
				LastSeq: 41, Silent: 19 * time.Minute},
			{Task: a2a.ID{0: 1, 15: 8}, Agent: "words", Worker: "replica-1", Attempt: 1, Age: 3 * time.Second,
				LastSeq: 2, Silent: 200 * time.Millisecond},
		},
		Replicas: []operate.ReplicaSeen{
			{Name: "replica-1", Connections: 30, Listens: true, Servers: 2},
			{Name: "replica-2", Connections: 4, Servers: 1},
		},
		Known: []operate.Presence{
			{
				Name: "replica-1", Version: "0.2.0", Host: "node-1", Slots: 16, Busy: 16, BusyShare: 0.994,
				Commands: 8, BusyCommands: 8, CommandsWait: time.Minute, SeenAt: someTime,
			},
		},
		Full: &operate.Saturation{Slots: 16, Due: 10, Oldest: 83 * time.Second},
		Push: operate.PushBacklog{Webhooks: 4, Events: 9, Failing: 3, Dead: 1, Oldest: 26 * time.Hour},
		Down: []operate.DestinationDown{
			{Tenant: "acme", Origin: "https://a.example:443", Fails: 7, OpenUntil: someTime,
				LastError: "connect: connection refused"},
			{Tenant: "acme", Origin: "https://b.example:443", Fails: 900, DisabledAt: someTime},
		},
		Bytes: 5 << 30,
		Tables: []operate.TableSize{
			{Name: "task_events", Bytes: 3 << 30, IndexBytes: 1 << 29, Rows: 900_000, Dead: 12},
			{Name: "task_ready", Bytes: 16 << 10, IndexBytes: 8 << 10},
		},
		Transactions: []operate.OpenTransaction{{PID: 4711, Login: "bob", Application: "psql",
			State: "idle in transaction", For: 7 * time.Minute}},
		Hidden: 2,
	}
}

func someKeys() []keyRow {
	expires := someTime.Add(time.Hour)
	return []keyRow{
		{
			ID: "k1", Tenant: "acme", Owner: "alice", Name: "laptop", Scopes: []string{"tasks:read", "tasks:write"},
			CreatedAt: someTime, LastUsedAt: &someTime,
		},
		{
			ID: "k2", Tenant: "acme", Owner: "worker", Scopes: []string{"worker"}, Agents: []string{"a", "b"},
			CreatedAt: someTime, RevokedAt: &someTime,
		},
		{ID: "k3", Tenant: "acme", Owner: "ci", Scopes: []string{"tasks:read"}, CreatedAt: someTime,
			ExpiresAt: &expires},
	}
}

func somePushes() []pushRow {
	return []pushRow{
		{
			ID: pushID, TaskID: taskID, ConfigID: "default", Tenant: "acme", Owner: "ann",
			URL:    "https://hooks.example/a2a",
			Origin: "https://hooks.example:443", State: "dead", Reason: "11 attempts failed, the last one with: 500",
			Cursor: 3, Head: 7, Attempt: 11, CreatedAt: someTime,
		},
		{
			ID: "019a9d40-0000-7000-8000-0000000000a2", TaskID: taskID, ConfigID: "b", Tenant: "acme", Owner: "ann",
			URL: "https://b.example/", Origin: "https://b.example:443", State: "done", Cursor: 7, Head: 7,
			CreatedAt: someTime,
		},
	}
}

func someDestinations() []admin.Destination {
	later := someTime.Add(time.Hour)
	return []admin.Destination{
		{Tenant: "acme", Origin: "https://a.example:443", Active: 3, Dead: 1, Backlog: 1204, Failures: 7,
			OpenUntil: &later, NextAt: &later, LastError: "connect: connection refused"},
		{Tenant: "acme", Origin: "https://b.example:443", Active: 2, Failures: 900, DisabledAt: &someTime},
		{Tenant: "acme", Origin: "https://c.example:443", Active: 1, Backlog: 2, Failures: 1, NextAt: &someTime,
			LastError: "answered 500"},
		{Tenant: "corp", Origin: "https://d.example:443", Active: 5},
	}
}

func somePushAttempts() []pushAttemptRow {
	return []pushAttemptRow{{
		From: 3, Seq: 7, Outcome: "failed", Attempt: 11, Trigger: "manual", StartedAt: someTime, Ms: 12,
		RemoteIP: "192.0.2.1", Status: 500, Class: "server_error", Reason: "500 Internal Server Error",
	}}
}

func someActions() []actionRow {
	return []actionRow{
		{
			ID: 9, At: someTime, Actor: "operator ann@host", Action: "task.retry", Tenant: "acme", Owner: "alice",
			TaskID: taskID, Detail: json.RawMessage(`{"new":"019a9d40-0000-7000-8000-0000000000b1"}`),
		},
		{
			ID: 8, At: someTime, Actor: "replica r1", Action: "push.disable", Tenant: "acme",
			Detail: json.RawMessage(`{"destination":"https://hooks.example:443"}`),
		},
		{ID: 7, At: someTime, Actor: "address 192.0.2.1", Action: "signin.failed", Detail: json.RawMessage(`{}`)},
	}
}

func someWorkers() []admin.Worker {
	return []admin.Worker{
		{Name: "replica-1", State: "active", Replica: true, Servers: 1, Version: "0.2.0", Host: "node-1", Running: 3,
			Slots: 16, Busy: 3, Agents: []string{"echo", "words"}},
		{Name: "replica-2", State: "drained", Replica: true, Version: "0.2.0", Slots: 16,
			Drained: &admin.Stop{Since: someTime, Actor: "key k1", Reason: "it hangs"}},
		{Name: "worker-7c9f-4411", State: "idle", Version: "a2ad-python/0.2.0", Tenant: "acme",
			Asks: []string{"far"}},
	}
}

func someNewKey() *createdKey {
	expires := someTime.Add(12 * time.Hour)
	return &createdKey{
		ID: "k1", Key: "a2ad_live_k1_secret", Tenant: "acme", Owner: "ci", Scopes: []string{"tasks:read", "worker"},
		Agents: []string{"echo", "words"}, CreatedAt: someTime, ExpiresAt: &expires,
	}
}

// TestScreens checks what a person, or a program with -o json, sees.
func TestScreens(t *testing.T) {
	t.Parallel()
	now := someTime.Add(3 * time.Minute)
	narrow := func(app *App) *App {
		app.Columns = 80
		return app
	}
	detail := admin.NewTaskDetail(someTasks()[0], someSnapshot(), someTimeline())
	for name, print := range map[string]func(app *App) error{
		"task-ls":      func(app *App) error { return printTasks(&app.Console, listFormat{now: now}, someTasks()) },
		"task-ls-json": func(app *App) error { return printTasks(&app.Console, listFormat{json: true}, someTasks()) },
		"task-ls-narrow": func(app *App) error {
			return printTasks(&narrow(app).Console, listFormat{now: now}, someTasks())
		},
		"actions-narrow": func(app *App) error { return printActions(narrow(app), false, someActions()) },
		"task-show":      func(app *App) error { return showTask(app, detail) },
		"task-show-json": func(app *App) error { return term.JSON(app.Stdout, detail) },
		"stats":          func(app *App) error { return showStats(app, admin.NewStats(someOverview())) },
		"stats-json":     func(app *App) error { return term.JSON(app.Stdout, admin.NewStats(someOverview())) },
		"worker-ls":      func(app *App) error { return printWorkers(app, false, someWorkers()) },
		"worker-ls-narrow": func(app *App) error {
			return printWorkers(narrow(app), false, someWorkers())
		},
		"worker-ls-json": func(app *App) error { return printWorkers(app, true, someWorkers()) },
		"actions":        func(app *App) error { return printActions(app, false, someActions()) },
		"actions-json":   func(app *App) error { return printActions(app, true, someActions()) },
		"stats-usage": func(app *App) error {
			return printUsage(narrow(app), false, []string{operate.ByAgent, operate.ByModel}, someUsage())
		},
		"stats-usage-json": func(app *App) error {
			return printUsage(app, true, []string{operate.ByAgent, operate.ByModel}, someUsage())
		},
		"stats-usage-day": func(app *App) error {
			by := []string{operate.ByModel, operate.ByDay, operate.ByTenant, operate.ByOwner, operate.ByAgent}
			return printUsage(narrow(app), false, by, someUsage())
		},
		"apikey-create":      func(app *App) error { return printKey(app, someNewKey()) },
		"apikey-create-json": func(app *App) error { return term.JSON(app.Stdout, someNewKey()) },
		"apikey-ls":          func(app *App) error { return printKeys(app, false, someKeys()) },
		"apikey-ls-json":     func(app *App) error { return printKeys(app, true, someKeys()) },
		"push-ls":            func(app *App) error { return printPushes(app, false, somePushes()) },
		"push-ls-json":       func(app *App) error { return printPushes(app, true, somePushes()) },
		"schedule-ls":        func(app *App) error { return printSchedules(app, false, someSchedules()) },
		"schedule-ls-narrow": func(app *App) error { return printSchedules(narrow(app), false, someSchedules()) },
		"schedule-ls-json":   func(app *App) error { return printSchedules(app, true, someSchedules()) },
		"push-destinations":  func(app *App) error { return printDestinations(app, false, someDestinations()) },
		"push-destinations-narrow": func(app *App) error {
			return printDestinations(narrow(app), false, someDestinations())
		},
		"push-attempts":      func(app *App) error { return printPushAttempts(app, false, somePushAttempts()) },
		"push-attempts-json": func(app *App) error { return printPushAttempts(app, true, somePushAttempts()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			if err := print(&App{Console: term.Console{Stdout: &out, Stderr: &out, Terminal: true}}); err != nil {
				t.Fatal(err)
			}
			golden(t, name, out.String())
		})
	}
}
