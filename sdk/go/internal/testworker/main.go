// Command testworker is a worker for the tests of the server, which kill it. It works for the agent "far". Each step
// that is done appends a line to the file that is its argument.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
)

func main() {
	w := a2ad.NewWorker(a2ad.Options{Name: "go", Grace: time.Millisecond})
	w.Agent("far", far)
	if err := w.Run(context.Background()); err != nil {
		slog.Error("worker", "err", err)
		os.Exit(1)
	}
}

// effect is what a step does to the world.
func effect(name string) error {
	f, err := os.OpenFile(os.Args[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was written
	_, err = f.WriteString(name + "\n")
	return err
}

// far does what its message says: "wait" waits until it is canceled, and a number is how many steps to do.
func far(ctx context.Context, t *a2ad.Task) (any, error) {
	text := t.Message().Text()
	if text == "wait" {
		if err := effect("begun"); err != nil {
			return nil, err
		}
		<-ctx.Done()
		return nil, effect(t.Write(ctx, "late").Error())
	}
	steps, err := strconv.Atoi(text)
	if err != nil {
		return nil, a2ad.Reject("not a number: " + text)
	}
	sum := 0
	for range steps {
		n, err := a2ad.Step(ctx, t, "one", func(context.Context) (int, error) { return 1, effect("one") })
		if err != nil {
			return nil, err
		}
		if err := t.Write(ctx, fmt.Sprint(sum, " ")); err != nil {
			return nil, err
		}
		sum += n
	}
	answer, err := t.Ask(ctx, "Go on?", a2ad.Choices("yes", "no"))
	if err != nil {
		return nil, err
	}
	return fmt.Sprint(sum, " ", answer), t.Sleep(ctx, 10*time.Millisecond)
}
