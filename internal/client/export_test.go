package client

import (
	"context"
	"time"
)

// SetPause replaces the waits between connections.
func (c *Client) SetPause(pause func(context.Context, time.Duration) error) { c.sleep = pause }
