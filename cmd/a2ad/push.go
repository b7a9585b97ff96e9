package main

// PushCmd is `a2ad push`.
type PushCmd struct {
	Ls           PushLsCmd           `cmd:"" group:"commands" help:"List webhooks, newest first."`
	Attempts     PushAttemptsCmd     `cmd:"" group:"commands" help:"List the delivery attempts of a webhook."`
	Destinations PushDestinationsCmd `cmd:"" group:"commands" help:"List webhooks by destination."`
	Replay       PushReplayCmd       `cmd:"" group:"commands" help:"@replay"`
	Enable       PushEnableCmd       `cmd:"" group:"commands" help:"@enable"`
}
