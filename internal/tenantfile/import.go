package tenantfile

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/tenants"
)

// Target is what an import works on. It is *tenants.Store.
type Target interface {
	Arrive(ctx context.Context, tenant string, move a2a.ID, sha256 string) (tenants.Move, error)
	Put(ctx context.Context, tenant string, move a2a.ID, number int64, rows []tenants.Row) error
	Open(ctx context.Context, tenant string, move a2a.ID, agents []string) error
}

// ImportConfig says how to import a tenant.
type ImportConfig struct {
	Schema int64
	// Opens returns an error if a secret of a webhook cannot be decrypted here.
	Opens func(webhook, column string, sealed []byte) error
}

// Import stores the rows of a file, and serves the tenant. It reads the file three times: first to compare it with its
// last line, then to check every row, and then to store the rows. It reports whether the file had been imported before.
func Import(
	ctx context.Context, file io.ReadSeeker, target Target, cfg ImportConfig,
) (m Manifest, known bool, err error) {
	m, err = Check(file)
	if err != nil {
		return m, false, err
	}
	if m.Schema != cfg.Schema {
		return m, false, fmt.Errorf("the file is from a database with schema version %d, and this one has %d: "+
			"run the same version of a2ad in both deployments", m.Schema, cfg.Schema)
	}
	check := checker{
		tenant: m.Tenant, opens: cfg.Opens, schedules: make(map[[2]string]bool), ticks: make(map[[2]string]bool),
	}
	if err := check.file(file); err != nil {
		return m, false, err
	}
	move, err := target.Arrive(ctx, m.Tenant, m.Move, m.SHA256)
	if err != nil {
		return m, false, err
	}
	if move.State == tenants.Arrived {
		return m, true, nil
	}
	err = again(file, func(number int64, rows []tenants.Row) error {
		if number <= move.Pages {
			return nil
		}
		return target.Put(ctx, m.Tenant, m.Move, number, rows)
	})
	if err != nil {
		return m, false, err
	}
	return m, false, target.Open(ctx, m.Tenant, m.Move, check.agents)
}

// again reads the file from its start.
func again(file io.ReadSeeker, each func(number int64, rows []tenants.Row) error) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read the file: %w", err)
	}
	return pages(file, each)
}

// checker checks that all rows are those of one tenant, and that its secrets can be decrypted.
type checker struct {
	tenant string
	opens  func(webhook, column string, sealed []byte) error
	agents []string // that tasks wait for

	schedules, ticks map[[2]string]bool // by agent and name: those of the file, and those that ticks are of
}

// fields are the members of a row that are checked. They are text, as all values are.
type fields struct {
	ID, Tenant, Queue, Agent, Name, Token, Credentials, Query string
	TaskID                                                    string `json:"task_id"`
}

func (c *checker) file(file io.ReadSeeker) error {
	if err := again(file, c.page); err != nil {
		return err
	}
	for tick := range c.ticks {
		if !c.schedules[tick] {
			return fmt.Errorf("there are ticks of schedule %s/%s, which is not in the file", tick[0], tick[1])
		}
	}
	return nil
}

// page checks a page. Its rows of tasks belong to the tenant, and the others belong to these tasks.
func (c *checker) page(number int64, rows []tenants.Row) error {
	read := make([]fields, len(rows))
	tasks := make(map[string]bool)
	for i, r := range rows {
		if err := json.Unmarshal([]byte(r.Body), &read[i]); err != nil {
			return fmt.Errorf("page %d, table %s: %w", number, r.Kind, err)
		}
		if r.Kind == "tasks" {
			tasks[read[i].ID] = true
		}
	}
	for i, r := range rows {
		if err := c.row(r.Kind, &read[i], tasks); err != nil {
			return fmt.Errorf("page %d, table %s: %w", number, r.Kind, err)
		}
	}
	return nil
}

// byTenant are the tables whose rows are no tasks and belong to no task.
var byTenant = []string{
	"idempotency_keys", "push_destinations", "push_parked", "schedules", "usage_pending", "usage_days", "api_keys",
}

func (c *checker) row(kind string, f *fields, tasks map[string]bool) error {
	switch {
	case kind == "schedule_ticks": // they come before their schedule
		c.ticks[[2]string{f.Agent, f.Name}] = true
		return nil
	case kind == "tasks" || slices.Contains(byTenant, kind):
		if f.Tenant != c.tenant {
			return fmt.Errorf("a row belongs to tenant %q, and the file to %q", f.Tenant, c.tenant)
		}
		if kind == "schedules" {
			c.schedules[[2]string{f.Agent, f.Name}] = true
		}
		return nil
	case !tasks[f.TaskID]:
		return fmt.Errorf("a row belongs to task %q, which is not in its page", f.TaskID)
	}
	switch kind {
	case "task_ready":
		if !slices.Contains(c.agents, f.Queue) {
			c.agents = append(c.agents, f.Queue)
		}
	case "push_configs":
		if f.Tenant != c.tenant {
			return fmt.Errorf("a row belongs to tenant %q, and the file to %q", f.Tenant, c.tenant)
		}
		return c.secrets(f)
	}
	return nil
}

// secrets decrypts the secrets of a webhook. They are encrypted for its row, which keeps its id.
func (c *checker) secrets(f *fields) error {
	for _, s := range []struct{ column, text string }{
		{"token", f.Token}, {"credentials", f.Credentials}, {"query", f.Query},
	} {
		if s.text == "" {
			continue
		}
		sealed, err := hex.DecodeString(strings.TrimPrefix(s.text, `\x`))
		if err == nil {
			err = c.opens(f.ID, s.column, sealed)
		}
		if err != nil {
			return fmt.Errorf("webhook %s: its %s cannot be decrypted here: set A2AD_KEYS to the keys of the "+
				"deployment that the tenant comes from: %w", f.ID, s.column, err)
		}
	}
	return nil
}
