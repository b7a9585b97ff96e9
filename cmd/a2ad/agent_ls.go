package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// AgentLsCmd is `a2ad agent ls`.
type AgentLsCmd struct {
	Service
	Output
}

// Help is shown below the usage line.
func (*AgentLsCmd) Help() string {
	return `Without --server, only agents are known that have tasks in their queues, remote workers, ` +
		`an outage or a pause.`
}

// Run lists.
func (c *AgentLsCmd) Run(ctx context.Context, app *App) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		var list admin.AgentList
		if err := api.Get(ctx, "/agents", nil, &list); err != nil {
			return err
		}
		return printAgents(app, c.json(), list.Agents)
	})
}

func printAgents(app *App, asJSON bool, list []admin.Agent) error {
	head := []string{"AGENT", "STATE", "EXECUTOR", "WAITING", "OLDEST", "RUNNING", "SINCE", "WHY"}
	return term.List(&app.Console, asJSON, head, []string{"SINCE"}, list, func(a admin.Agent) []string {
		oldest, since, why := "-", "-", ""
		if a.Due > 0 {
			oldest = milliseconds(a.OldestMs)
		}
		switch {
		case a.Paused != nil:
			since, why = term.Moment(a.Paused.Since), describeStop(a.Paused)
		case a.Unreachable != nil:
			since, why = term.Moment(a.Unreachable.Since), a.Unreachable.Reason
		}
		return []string{
			term.Cell(a.Name), a.State, term.Cell(cmp.Or(a.Executor, "-")), term.Number(a.Waiting), oldest,
			term.Number(a.Running), since, term.Cell(why),
		}
	})
}

// describeStop says who has stopped something, and why.
func describeStop(s *admin.Stop) string {
	if s.Reason == "" {
		return "by " + s.Actor
	}
	return s.Reason + " (" + s.Actor + ")"
}

// agentNames are agents on the command line, and why they are paused or resumed.
type agentNames struct {
	Names  []string `arg:"" name:"agent" help:"Names of the agents."`
	Reason string   `placeholder:"TEXT" help:"Why, for the audit log."`
	Service
	Output
}

// eachAgent asks for an action on one agent after the other.
func (c *agentNames) eachAgent(ctx context.Context, app *App, action, done string) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		return each(ctx, app, c.Names, func(name string) error {
			var agent admin.StoppedAgent
			path := "/agents/" + url.PathEscape(name) + "/" + action
			if err := api.Post(ctx, path, admin.Why{Reason: c.Reason}, &agent); err != nil {
				return fmt.Errorf("agent %s: %w", name, err)
			}
			if c.json() {
				return term.JSON(app.Stdout, agent)
			}
			_, err := fmt.Fprintf(app.Stdout, "%s %s\n", agent.Name, done)
			return err
		})
	})
}

// AgentPauseCmd is `a2ad agent pause`.
type AgentPauseCmd struct{ agentNames }

// Help is shown below the usage line.
func (*AgentPauseCmd) Help() string {
	return `Messages are still accepted, and their tasks wait in the queue. Attempts that have begun continue. ` +
		`The pause holds in all replicas, until "a2ad agent resume". The exit code is 1 if an agent is already paused.`
}

// Run pauses.
func (c *AgentPauseCmd) Run(ctx context.Context, app *App) error {
	return c.eachAgent(ctx, app, "pause", "paused")
}

// AgentResumeCmd is `a2ad agent resume`.
type AgentResumeCmd struct{ agentNames }

// Help is shown below the usage line.
func (*AgentResumeCmd) Help() string { return `The exit code is 1 if an agent is not paused.` }

// Run resumes.
func (c *AgentResumeCmd) Run(ctx context.Context, app *App) error {
	return c.eachAgent(ctx, app, "resume", "resumed")
}
