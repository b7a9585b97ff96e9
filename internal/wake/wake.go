// Package wake names the keys of wake-ups: what has changed, for the goroutines and the replicas that wait for it.
//
// A wake-up carries a key and no data. Its receiver reads the database again.
package wake

import "github.com/a2ad/a2ad/internal/a2a"

// Keys that name nothing in particular.
const (
	Webhooks = "push"    // a webhook has something to deliver
	Cancels  = "cancels" // a task was canceled, and its agent may have to be told
	APIKeys  = "apikeys" // an API key was revoked
	// Schedules is woken when the time of a next tick is another one.
	Schedules = "schedules"
	Orphans   = "orphans" // a task has ended, and tasks that it has called are to be canceled
	Waits     = "waits"   // the wait of a task is over, or ends before the others
	Stops     = "stops"   // an operator has stopped an agent or a worker, or let it continue
	Jobs      = "jobs"    // a bulk job waits for a server that runs it
)

// Ready is woken when a task of the agent waits for a worker, or when a limit of its runs has room again.
func Ready(agent string) string { return "ready:" + agent }

// Reachable is woken when an agent that could not be reached answers again.
func Reachable(agent string) string { return "reachable:" + agent }

// Task is woken when the task has new events.
func Task(id a2a.ID) string { return Tasks + ":" + id.String() }

// Tasks is the class of the keys of Task: its waiters are woken when any task has new events.
const Tasks = "task"

// Cancel is woken when a task that the worker runs was canceled.
func Cancel(worker string) string { return "cancel:" + worker }

// Job is woken when a bulk job has ended, or has acted on more tasks.
func Job(id a2a.ID) string { return "job:" + id.String() }
