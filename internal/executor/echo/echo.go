// Package echo is an agent that repeats its message: one artifact with the parts of the message, then completed. It
// needs no configuration and no checkpoint, so it shows the cost of the server itself and how small an executor can
// be.
package echo

import (
	"context"
	"errors"
	"iter"
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
)

// Executor echoes. The zero value is ready.
type Executor struct{}

var errNothing = errors.New("there is no message to echo")

// Execute yields one artifact with every part of the new messages, unchanged and in order, and then completed. The id
// of the artifact is "echo-<n>", where n counts the client's messages: it is the same on every attempt, and different
// on every turn. An attempt that finds the artifact in the task does not yield it again.
func (Executor) Execute(_ context.Context, run executor.Run) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		_, fresh := executor.Conversation(run)
		artifact := a2a.Artifact{ID: "echo-" + strconv.Itoa(fresh+1)}
		for _, m := range run.Messages {
			artifact.Parts = append(artifact.Parts, m.Parts...)
		}
		if len(artifact.Parts) == 0 {
			yield(nil, executor.Permanent(errNothing))
			return
		}
		if !recorded(run.Task.Artifacts, artifact.ID) &&
			!yield(&a2a.ArtifactUpdate{Artifact: artifact, LastChunk: true}, nil) {
			return
		}
		yield(&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted}}, nil)
	}
}

func recorded(artifacts []a2a.Artifact, id string) bool {
	for i := range artifacts {
		if artifacts[i].ID == id {
			return true
		}
	}
	return false
}
