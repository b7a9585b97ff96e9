// Package a2ad is a library for durable A2A agents: workers for an a2ad server.
//
// An agent is one function. It can crash, wait for days, or be redeployed halfway through. It does not repeat recorded
// work, and its client sees one continuous task:
//
//	func hello(ctx context.Context, t *a2ad.Task) (any, error) {
//		return nil, t.Write(ctx, "Hello, "+t.Message().Text()+"!")
//	}
//
//	func main() {
//		worker := a2ad.NewWorker(a2ad.Options{}) // A2AD_URL, A2AD_API_KEY
//		worker.Agent("hello", hello)
//		if err := worker.Run(context.Background()); err != nil {
//			log.Fatal(err)
//		}
//	}
//
// In the agent file on the server, set the executor to pull. Use package a2adtest to test an agent without a server.
//
// # The rules
//
// After a crash and after each wait, the function runs again from its start. Each call returns its recorded result, or
// does its work and records the result. So the function must take the same path each time: read the time, random
// numbers and answers from other services inside steps. If the path differs, a call returns a [NondeterminismError].
//
// A call that begins a wait returns [ErrStopped]. The function must return that error, wrapped or not. When the wait is
// over, the server starts the function again. Deferred functions run at each wait.
//
// Pass each call the context of the function that makes it: of the agent, of the step, or of the branch of
// [Task.Gather]. It ends when the run ends. Make one call after the other.
//
// A step may run twice if the worker dies after the work is done but before it is recorded. Pass [Task.IdempotencyKey]
// to the API that the step calls.
//
// A wrong call returns a [UsageError] with the agent's line, and sends nothing. The task does not fail: the library
// records the mistake as the step "postponed", and the task waits for a corrected program.
//
// # Two kinds of functions
//
// [Worker.Agent] registers a function for whole tasks, which runs again over its recorded steps. [Worker.Handler]
// registers a function for single messages, which keeps its own state with [Task.Checkpoint].
package a2ad
