package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/config"
)

// HealthCmd is `a2ad healthcheck`.
type HealthCmd struct {
	config.Admin `group:"listeners"`
	Timeout      time.Duration `default:"3s" help:"How long to wait for an answer."`
}

// Help is shown below the usage line.
func (*HealthCmd) Help() string {
	return `Asks /readyz on the admin listener of a server on this machine. ` +
		`The exit code is 0 if the server is ready, and 1 if it is not, or does not answer.`
}

// Run asks once.
func (c *HealthCmd) Run(ctx context.Context, app *App) error {
	if c.AdminListen == "" {
		return fmt.Errorf("there is nothing to ask: A2AD_ADMIN_LISTEN is off")
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.AdminListen.Dial()+"/readyz", nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true} // no proxy: the server is on this machine
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("no answer from %s: %w", req.URL, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s %s", resp.Status, strings.TrimSpace(string(body)))
	}
	_, err = fmt.Fprintln(app.Stdout, "ready")
	return err
}
