package console

// Patterns returns the patterns of all routes.
func (c *Console) Patterns() []string { return c.mux.patterns }
