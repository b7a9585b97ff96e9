package a2ad_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
	"github.com/a2ad/a2ad/sdk/go/a2ad/a2adtest"
)

func makePlan(_ context.Context, wish string) (string, error) { return "by train to " + wish, nil }

func pay(_ context.Context, key string) (string, error) { return "receipt for " + key, nil }

// trip is an agent that plans, asks, pays, waits for a day, and lets another agent check the result.
func trip(ctx context.Context, t *a2ad.Task) (any, error) {
	plan, err := a2ad.Step(ctx, t, "plan", func(ctx context.Context) (string, error) { // not run again after a crash
		return makePlan(ctx, t.Message().Text())
	})
	if err != nil {
		return nil, err
	}
	if err := t.Write(ctx, "We go "+plan+"."); err != nil { // streams to the client, durably
		return nil, err
	}
	answer, err := t.Ask(ctx, "Book it?", a2ad.Choices("yes", "no")) // days may pass; no slot is held
	if err != nil || answer == "no" {
		return "Maybe later.", err
	}
	receipt, err := a2ad.Step(ctx, t, "pay", func(ctx context.Context) (string, error) {
		return pay(ctx, t.IdempotencyKey("pay"))
	}, a2ad.Retries(5))
	if err != nil {
		return nil, err
	}
	if err := t.Sleep(ctx, 24*time.Hour); err != nil {
		return nil, err
	}
	review, err := t.Call(ctx, "reviewer", "Check the "+receipt) // another agent, here or anywhere
	if err != nil {
		return nil, err
	}
	return review.Text(), nil
}

func answer(context.Context, []string, string) (string, error) { return "Bye!", nil }

// chat is an agent that keeps its own state.
func chat(ctx context.Context, t *a2ad.Task) (any, error) {
	var talk struct {
		Read int
		Said []string
	}
	if _, err := t.Saved(&talk); err != nil {
		return nil, err
	}
	if talk.Read < t.MessageNumber() { // it runs again if the worker dies before it has asked
		reply, err := a2ad.Step(ctx, t, "model", func(ctx context.Context) (string, error) {
			return answer(ctx, talk.Said, t.Message().Text())
		})
		if err != nil {
			return nil, err
		}
		if err := t.Write(ctx, reply); err != nil || reply == "Bye!" {
			return nil, err
		}
		talk.Read, talk.Said = t.MessageNumber(), append(talk.Said, t.Message().Text(), reply)
		if err := t.Checkpoint(ctx, talk); err != nil {
			return nil, err
		}
	}
	_, err := t.Ask(ctx, "Anything else?") // ends this run; the answer is the next message
	return nil, err
}

// Test the example of the README as its reader does.
func TestTrip(t *testing.T) {
	client := a2adtest.Client{
		Answers: []any{"yes"},
		Calls:   map[string]func(string) any{"reviewer": func(string) any { return "fine" }},
	}
	r, err := a2adtest.Run(trip, "Lyon", client)
	if err != nil || r.State != "completed" || r.Text() != "fine" {
		t.Errorf("Run = %+v, %v", r, err)
	}
	if _, err := a2adtest.CrashEverywhere(trip, "Lyon", client, nil); err != nil {
		t.Error(err)
	}
}

func TestChat(t *testing.T) {
	t.Parallel()
	r, err := a2adtest.CrashEverywhere(chat, "Hello", a2adtest.Client{Handler: true}, nil)
	if err != nil || r.Artifact("answer") != "Bye!" {
		t.Errorf("CrashEverywhere = %+v, %v", r, err)
	}
}

func ExampleWorker() {
	worker := a2ad.NewWorker(a2ad.Options{}) // A2AD_URL, A2AD_API_KEY
	worker.Agent("trip", trip, a2ad.Concurrency(8))
	http.Handle("/healthz", worker.Health())
	if err := worker.Run(context.Background()); err != nil {
		slog.Error("worker", "err", err)
	}
}

// An agent is tested in memory. The fake clock moves on, so that a day takes no time, and the worker dies at each
// request to the server once.
func Example() {
	client := a2adtest.Client{
		Answers: []any{"yes"},
		Calls:   map[string]func(string) any{"reviewer": func(text string) any { return text + ": fine" }},
	}
	result, err := a2adtest.CrashEverywhere(trip, "Lyon", client, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Questions, result.Artifact("answer"))
	fmt.Println(result.State, "after", result.Elapsed)
	fmt.Println(result.Text())
	// Output:
	// [Book it?] We go by train to Lyon.
	// completed after 24h0m0s
	// Check the receipt for task-1:pay: fine
}

// What a step's function returns is recorded as JSON. A step that streams is recorded together with its text.
func ExampleStep() {
	type answer struct{ Words int }
	agent := func(ctx context.Context, t *a2ad.Task) (any, error) {
		got, err := a2ad.Step(ctx, t, "model", func(ctx context.Context) (answer, error) {
			for _, token := range []string{"Good ", "morning"} { // of a model
				if err := t.Write(ctx, token); err != nil {
					return answer{}, err
				}
			}
			return answer{Words: 2}, t.Usage(ctx, a2ad.Usage{Model: "m1", OutputTokens: 2, Requests: 1})
		}, a2ad.Timeout(time.Minute))
		return fmt.Sprint(got.Words, " words"), err
	}
	result, err := a2adtest.Run(agent, "Hello", a2adtest.Client{})
	fmt.Println(result.Artifact("answer"), result.Text(), result.Usage["m1"].OutputTokens, err)
	// Output: Good morning 2 words 2 <nil>
}

// A client answers with a value of a type, and the server refuses other answers.
func ExampleAskFor() {
	type booking struct {
		City string `json:"city"`
		Days int    `json:"days"`
	}
	agent := func(ctx context.Context, t *a2ad.Task) (any, error) {
		b, err := a2ad.AskFor[booking](ctx, t, "Where to, and how long?")
		return fmt.Sprintf("%d days in %s", b.Days, b.City), err
	}
	result, err := a2adtest.Run(agent, "Hello", a2adtest.Client{Answers: []any{booking{"Lyon", 3}}})
	fmt.Println(result.Text(), err)
	// Output: 3 days in Lyon <nil>
}

// Another system sends the signal, or the agent goes on without it.
func ExampleSignal() {
	agent := func(ctx context.Context, t *a2ad.Task) (any, error) {
		by, err := a2ad.Signal[string](ctx, t, "approved", 48*time.Hour)
		if errors.Is(err, a2ad.ErrTimeout) {
			return nil, a2ad.Reject("nobody approved it")
		}
		return "approved by " + by, err
	}
	result, err := a2adtest.Run(agent, "Hello", a2adtest.Client{})
	fmt.Println(result.State, result.Text(), result.Elapsed, err)
	// Output: rejected nobody approved it 48h0m0s <nil>
}

func ExampleTask_Gather() {
	agent := func(ctx context.Context, t *a2ad.Task) (any, error) {
		shops := []string{"north", "south"}
		prices := make([]string, len(shops))
		var work []func(ctx context.Context) error
		for i, shop := range shops {
			work = append(work, func(ctx context.Context) error {
				r, err := t.Call(ctx, shop, "How much?")
				if err == nil {
					prices[i] = r.Text()
				}
				return err
			})
		}
		err := t.Gather(ctx, work...)
		return fmt.Sprint(prices), err
	}
	price := func(text string) func(string) any { return func(string) any { return text } }
	result, err := a2adtest.Run(agent, "Hello", a2adtest.Client{
		Calls: map[string]func(string) any{"north": price("5"), "south": price("7")},
	})
	fmt.Println(result.Text(), err)
	// Output: [5 7] <nil>
}

// A handler gets one message at a time, and keeps its own state.
func ExampleTask_Checkpoint() {
	handler := func(ctx context.Context, t *a2ad.Task) (any, error) {
		var counted int
		if _, err := t.Saved(&counted); err != nil {
			return nil, err
		}
		for ; counted < 3; counted++ {
			if err := t.Checkpoint(ctx, counted+1); err != nil {
				return nil, err
			}
		}
		return counted, nil
	}
	result, err := a2adtest.Run(handler, "Count", a2adtest.Client{Handler: true})
	var counted int
	fmt.Println(err, result.Data(&counted), counted)
	// Output: <nil> <nil> 3
}
