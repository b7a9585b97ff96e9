package vocab

import (
	"strconv"

	"github.com/a2ad/a2ad/internal/executor"
)

// RunOf returns what the agent learns about a run.
func RunOf(r *executor.Run) *Run {
	task := r.Task
	if task.Agent == "" {
		task.Agent = r.Agent
	}
	return &Run{
		Task: &task, Tenant: r.Tenant, Owner: r.Owner, Messages: r.Messages, Epoch: r.Epoch, Attempt: r.Attempt,
		Deadline: r.Deadline, Checkpoint: r.Checkpoint, Traceparent: r.Traceparent,
		Steps: r.Steps, StepCount: len(r.Steps),
	}
}

// Turn returns the number of the run's turn, from 1. It is the same on every attempt.
func Turn(r *executor.Run) string {
	_, fresh := executor.Conversation(*r)
	return strconv.Itoa(fresh + 1)
}

// NewDecoder returns a Decoder for the events of a run.
func NewDecoder(r *executor.Run) *Decoder {
	return &Decoder{TaskID: r.Task.ID.String(), ContextID: r.Task.ContextID, Prefix: Turn(r) + "-"}
}
