package mcp

import (
	"errors"
	"fmt"
	"net"
	"net/http"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/a2ad/a2ad/internal/client"
)

// errNoAnswer is returned if the server does not name the task of a message in time.
var errNoAnswer = errors.New("the server has not answered in time: it may have accepted the message or not")

const codeTaskNotFound = -32001

// explain turns an error of the server into one that says what the model, or its user, can do about it.
func (s *Server) explain(req *sdk.CallToolRequest, agent, task string, err error) error {
	var refused *client.Error
	var dial *net.OpError
	switch {
	case errors.As(err, &refused) && refused.Status == http.StatusUnauthorized:
		if req.Extra != nil && req.Extra.Header != nil {
			return fmt.Errorf("%w; send an API key of the server as the bearer token of the MCP connection", err)
		}
		return fmt.Errorf("%w; set A2AD_API_KEY of a2ad mcp to an API key of the server", err)
	case errors.As(err, &refused) && refused.Code == codeTaskNotFound:
		return fmt.Errorf("task %q not found: agent %s has no such task of this caller; list_tasks shows its tasks",
			task, agent)
	case errors.As(err, &refused) && refused.Status == http.StatusNotFound:
		return fmt.Errorf("the server has no agent %q any more: %w", agent, err)
	case errors.Is(err, client.ErrUnknown), errors.Is(err, errNoAnswer):
		return fmt.Errorf("%w; list_tasks shows whether there is a new task, "+
			"and with an idempotencyKey the call can be repeated safely", err)
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("the a2ad server at %s is unreachable: %w", s.cfg.URL, dial.Err)
	}
	return err
}
