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
)

// Ready is woken when a task of the agent waits for a worker, or when a limit of its runs has room again.
func Ready(agent string) string { return "ready:" + agent }

// Reachable is woken when an agent that could not be reached answers again.
func Reachable(agent string) string { return "reachable:" + agent }

// Task is woken when the task has new events.
func Task(id a2a.ID) string { return "task:" + id.String() }

// Cancel is woken when a task that the worker runs was canceled.
func Cancel(worker string) string { return "cancel:" + worker }
