package main

// PushCmd is `a2ad push`.
type PushCmd struct {
	Ls       PushLsCmd       `cmd:"" group:"commands" help:"List webhooks, newest first."`
	Attempts PushAttemptsCmd `cmd:"" group:"commands" help:"List the delivery attempts of a webhook."`
	Replay   PushReplayCmd   `cmd:"" group:"commands" help:"Deliver events again, or resume a webhook that has given up."`
	Enable   PushEnableCmd   `cmd:"" group:"commands" help:"Close the circuit breaker of a destination, or enable it again."`
}
