// Dbosbench measures how many steps per second DBOS records in one process. `go run ./internal/bench -run dbos` builds
// it in a module of its own and runs it next to a2ad. It prints one JSON object.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

var (
	url     = flag.String("url", "", "the `URL` of the database")
	callers = flag.Int("callers", 1, "how many workflows run at once")
	steps   = flag.Int("steps", 20, "steps of one workflow")
	bytes   = flag.Int("bytes", 200, "size of the result of one step")
	span    = flag.Duration("span", time.Second, "how long to start workflows")
	warmUp  = flag.Duration("warmup", time.Second, "how long to do the same before")
)

func main() {
	flag.Parse()
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// result is what the bench reads.
type result struct {
	Steps   int64   `json:"steps"`
	Seconds float64 `json:"seconds"`
}

func run(ctx context.Context) error {
	c, err := dbos.NewContext(ctx, dbos.Config{
		AppName: "a2ad-bench", DatabaseURL: *url,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return err
	}
	dbos.RegisterWorkflow(c, workflow)
	if err := dbos.Launch(c); err != nil {
		return err
	}
	if _, err := measure(c, *warmUp); err != nil {
		return err
	}
	done, err := measure(c, *span)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(os.Stdout).Encode(done), dbos.Shutdown(c, 10*time.Second))
}

// workflow does its steps one after the other. Each is recorded before the next one begins.
func workflow(c dbos.Context, text string) (int, error) {
	for range *steps {
		got, err := dbos.RunAsStep(c, func(context.Context) (string, error) { return text, nil })
		if err != nil {
			return 0, err
		}
		if len(got) != len(text) {
			return 0, fmt.Errorf("a step returned %d bytes", len(got))
		}
	}
	return *steps, nil
}

// measure lets each caller run one workflow after the other until the span is over.
func measure(c dbos.Context, span time.Duration) (result, error) {
	text := strings.Repeat("x", *bytes)
	var recorded atomic.Int64
	errs := make([]error, *callers)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range errs {
		wg.Go(func() {
			for time.Since(start) < span && errs[i] == nil {
				var n int
				handle, err := dbos.RunWorkflow(c, workflow, text)
				if err == nil {
					n, err = handle.GetResult()
				}
				recorded.Add(int64(n))
				errs[i] = err
			}
		})
	}
	wg.Wait()
	return result{recorded.Load(), time.Since(start).Seconds()}, errors.Join(errs...)
}
