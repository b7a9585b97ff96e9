package main

// PushCmd is `a2ad push`.
type PushCmd struct {
	Ls       PushLsCmd       `cmd:"" group:"commands" help:"List webhooks, newest first."`
	Attempts PushAttemptsCmd `cmd:"" group:"commands" help:"List the delivery attempts of a webhook."`
	Replay   PushReplayCmd   `cmd:"" group:"commands" help:"${replay_help}"`
	Enable   PushEnableCmd   `cmd:"" group:"commands" help:"${enable_help}"`
}
