package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/term"
)

type usageRow = admin.Usage

// describeUsage returns the tokens and requests of a model in a few words.
func describeUsage(r *usageRow) string {
	model := "unnamed model"
	if r.Model != "" {
		model = term.Cell(r.Model)
	}
	text := fmt.Sprintf("%s: input %d", model, r.InputTokens)
	if r.CachedInputTokens > 0 {
		text += fmt.Sprintf(" (cached %d)", r.CachedInputTokens)
	}
	text += fmt.Sprintf(", output %d", r.OutputTokens)
	if r.ReasoningTokens > 0 {
		text += fmt.Sprintf(" (reasoning %d)", r.ReasoningTokens)
	}
	text += fmt.Sprintf(", requests %d", r.Requests)
	return text
}

func (c *StatsCmd) showUsage(ctx context.Context, app *App, api *admin.Client) error {
	by := c.By
	if len(by) == 0 {
		by = []string{operate.ByAgent, operate.ByModel}
	}
	var list admin.UsageList
	if err := api.Get(ctx, "/usage", admin.UsageQuery{Since: c.Since.Time, By: by}, &list); err != nil {
		return err
	}
	if err := printUsage(app, c.json(), by, list.Usage); err != nil {
		return err
	}
	if list.More {
		app.Note("there are more: name fewer things with --by, or a later --since")
	}
	return nil
}

// usageColumns are the columns that --by selects.
var usageColumns = []struct {
	by   string
	cell func(r *usageRow) string
}{
	{operate.ByDay, func(r *usageRow) string { return r.Day }},
	{operate.ByTenant, func(r *usageRow) string { return r.Tenant }},
	{operate.ByOwner, func(r *usageRow) string { return r.Owner }},
	{operate.ByAgent, func(r *usageRow) string { return r.Agent }},
	{operate.ByModel, func(r *usageRow) string { return cmp.Or(r.Model, "-") }},
}

func printUsage(app *App, asJSON bool, by []string, rows []usageRow) error {
	var head []string
	for _, c := range usageColumns {
		if slices.Contains(by, c.by) {
			head = append(head, strings.ToUpper(c.by))
		}
	}
	head = append(head, "REQUESTS", "INPUT", "CACHED", "OUTPUT", "REASONING")
	return term.List(&app.Console, asJSON, head, []string{"REASONING", "CACHED"}, rows, func(r usageRow) []string {
		var cells []string
		for _, c := range usageColumns {
			if slices.Contains(by, c.by) {
				cells = append(cells, term.Cell(c.cell(&r)))
			}
		}
		for _, n := range []int64{
			r.Requests, r.InputTokens, r.CachedInputTokens, r.OutputTokens, r.ReasoningTokens,
		} {
			cells = append(cells, strconv.FormatInt(n, 10))
		}
		return cells
	})
}
