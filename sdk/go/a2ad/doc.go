// Package a2ad is a library for durable A2A agents, which run as workers of an a2ad server.
//
// An agent is one function. It can crash, wait for days, or be redeployed halfway through. It does not repeat recorded
// work, and its client sees one continuous task:
//
//	func main() {
//		w := a2ad.NewWorker(a2ad.Options{}) // A2AD_URL, A2AD_API_KEY
//		w.Agent("hello", hello)
//		if err := w.Run(context.Background()); err != nil {
//			log.Fatal(err)
//		}
//	}
//
//	func hello(ctx context.Context, t *a2ad.Task) (any, error) {
//		if err := t.Write(ctx, "Hello, "+t.Message().Text()+"! "); err != nil {
//			return nil, err
//		}
//		mood, err := t.Ask(ctx, "How are you?", a2ad.Choices("fine", "tired"))
//		return "You are " + mood + ".", err
//	}
//
// In the agent file on the server, set the executor to pull. Use package a2adtest to test an agent without a server.
//
// # The rules
//
// After a crash and after each wait, the function runs again from its start. Each call returns its recorded result, or
// does its work and records the result. So the function must take the same path each time: read the time, random
// numbers and answers from other services inside steps. If the path differs, the call returns a [NondeterminismError].
//
// A call that begins a wait returns [ErrStopped]. The function must return that error, wrapped or not. When the wait is
// over, the server starts the function again. Deferred functions run at each wait.
//
// Pass the agent's or the step's context to each call. It is canceled when the task is canceled, when another worker
// has claimed the task, and when the worker stops.
//
// A step may run twice if the worker dies after the work is done but before it is recorded. Pass [Task.IdempotencyKey]
// to the API that the step calls. Inside a step, the agent can only write and report its usage of models.
//
// An invalid call returns a [UsageError] with the agent's line of code, and sends nothing. The mistake
// does not fail the task: the library records it as the step "postponed", and the task waits for a corrected program.
//
// # Two programming models
//
// [Worker.Agent] registers a function that handles a whole task and runs again over its recorded steps.
// [Worker.Handler] registers a function that handles one message and keeps its own state with [Task.Checkpoint].
package a2ad
