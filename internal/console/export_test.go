package console

// Shares of an owner.
const (
	MaxOwnPages = maxOwnPages
	MaxOwnLive  = maxOwnLive
)

// Patterns returns the patterns of all routes.
func (c *Console) Patterns() []string { return c.mux.patterns }
