// Command conformance is the driver of the library for Go: a worker whose agents are programs in the vocabulary of the
// conformance suite. It uses the public API of the library alone.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
)

// job is what the runner tells a driver, in a file.
type job struct {
	URL    string  `json:"url"`   // of the server
	World  string  `json:"world"` // URL of what the agents have effects on
	Worker string  `json:"worker"`
	Grace  float64 `json:"grace"` // seconds
	Agents []agent `json:"agents"`
}

type agent struct {
	Name        string        `json:"name"`
	Handler     bool          `json:"handler"` // a function for messages, not for whole tasks
	Concurrency int           `json:"concurrency"`
	Do          []instruction `json:"do"`
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	var j job
	strict := json.NewDecoder(file)
	strict.UseNumber()             // so that 5 is not the number 5.0
	strict.DisallowUnknownFields() // a misspelled argument would have no effect
	if err := strict.Decode(&j); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	w := a2ad.NewWorker(a2ad.Options{
		URL: j.URL, Name: j.Worker, Grace: time.Duration(j.Grace * float64(time.Second)),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	world := &runner{url: j.World, http: &http.Client{Transport: &http.Transport{}}}
	for _, a := range j.Agents {
		register := w.Agent
		if a.Handler {
			register = w.Handler
		}
		register(a.Name, function(a.Do, world), a2ad.Concurrency(a.Concurrency))
	}
	return w.Run(context.Background())
}

// function returns the function of an agent that executes instructions.
func function(do []instruction, w world) a2ad.AgentFunc {
	return func(ctx context.Context, t *a2ad.Task) (any, error) {
		p, err := begin(t, w)
		if err != nil {
			return nil, err
		}
		value, _, err := p.play(ctx, do)
		return value, err
	}
}
