// Package importer moves tasks from the store of an SDK's server to a2ad: it reads the store, decides what each task
// becomes, and reports what cannot be kept.
//
// It keeps no more than a batch of tasks in memory, and 16 bytes for each task of a file. An import can be repeated: a
// task that is here already is not stored again. It knows no statements on a2ad's database: package store/tasks writes.
package importer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wire/answer"
)

// Running says what happens to tasks that were submitted or working when their server stopped.
type Running string

// The choices for running tasks.
const (
	RunningSkip   Running = "skip"   // they are not imported
	RunningFail   Running = "fail"   // they have failed
	RunningSubmit Running = "submit" // a worker runs the newest message of the client again
)

// DefaultTenant is the tenant of tasks whose source has none. It is that of clients of a server without
// authentication.
const DefaultTenant = "default"

// Config says what is imported, and as what.
type Config struct {
	Label       string // the source in the audit log, without secrets
	Agent       string
	Tenant      string // of all tasks; empty: what the source says, else DefaultTenant
	Owner       string // of all tasks; empty: what the source says
	SourceOwner string // only tasks that have this owner in the source; empty: all
	Running     Running
	DryRun      bool // look and report, but store nothing
	// Webhook reads a webhook. nil: webhooks are not imported.
	Webhook func(c *a2a.PushConfig) (*webhooks.NewWebhook, error)
	// Problem is called for each task of which something cannot be kept, with what and why.
	Problem func(task, why string)
}

// Target stores tasks. It is *tasks.Store.
type Target interface {
	Import(ctx context.Context, source string, list []tasks.Import) ([]tasks.ImportOutcome, error)
	Imported(ctx context.Context, list []tasks.Import) ([]tasks.ImportOutcome, error)
}

// Counts says what happened to tasks, or what would happen in a dry run.
type Counts struct {
	Imported int `json:"imported"`
	Known    int `json:"known"`   // imported before
	Skipped  int `json:"skipped"` // still running, and left out by the Running option
	Problems int `json:"problems"`
}

// Report is the result of an import.
type Report struct {
	States   map[a2a.State]*Counts // by the state in the source; StateNone: it could not be read
	Webhooks int                   // imported
	Older    int                   // versions of tasks of which the source has a newer one
	// Left are the members of tasks that a2ad has no place for, with the number of tasks that have one.
	Left map[string]int
}

// Failed reports whether there was a problem with any task.
func (r *Report) Failed() bool {
	for _, c := range r.States {
		if c.Problems > 0 {
			return true
		}
	}
	return false
}

func (r *Report) of(s a2a.State) *Counts {
	c := r.States[s]
	if c == nil {
		c = &Counts{}
		r.States[s] = c
	}
	return c
}

// A batch is one transaction.
const (
	batchTasks = 100
	batchBytes = 4 << 20
)

// item is a task of the batch.
type item struct {
	tasks.Import
	name  string    // in messages
	state a2a.State // in the source
}

// run is an import that is going on.
type run struct {
	Config
	source Source
	target Target
	report Report

	batch []item
	bytes int
}

// Import reads all tasks of a source and stores them. If it ends with an error, the report says what was done before.
func Import(ctx context.Context, source Source, target Target, cfg Config) (Report, error) {
	r := &run{
		Config: cfg, source: source, target: target,
		report: Report{States: make(map[a2a.State]*Counts), Left: make(map[string]int)},
	}
	if r.Problem == nil {
		r.Problem = func(string, string) {}
	}
	for rec, err := range source.Records(ctx) {
		if err == nil {
			err = r.add(ctx, &rec)
		}
		if err != nil {
			return r.report, fmt.Errorf("read the source: %w", err)
		}
		if len(r.batch) >= batchTasks || r.bytes >= batchBytes {
			if err := r.flush(ctx); err != nil {
				return r.report, err
			}
		}
	}
	return r.report, r.flush(ctx)
}

// add decides about a record. Only an error of the source ends the import.
func (r *run) add(ctx context.Context, rec *Record) error {
	if r.SourceOwner != "" && rec.Owner != r.SourceOwner {
		return nil
	}
	if rec.Older {
		r.report.Older++
		return nil
	}
	it, left, err := r.convert(rec)
	if err != nil {
		r.problem(it.state, it.name, err.Error())
		return nil
	}
	if !it.state.EndsTurn() && r.Running == RunningSkip {
		r.report.of(it.state).Skipped++
		return nil
	}
	if !it.state.Terminal() {
		if err := r.hooks(ctx, rec, &it); err != nil {
			return fmt.Errorf("%s: %w", it.name, err)
		}
	}
	for _, member := range left {
		r.report.Left[member]++
	}
	r.batch, r.bytes = append(r.batch, it), r.bytes+len(rec.Doc)
	return nil
}

func (r *run) problem(s a2a.State, task, why string) {
	r.report.of(s).Problems++
	r.Problem(task, why)
}

// hooks reads the webhooks of a task that has not ended. A webhook that cannot be kept is reported, and its task is
// imported without it.
func (r *run) hooks(ctx context.Context, rec *Record, it *item) error {
	list, err := r.source.Hooks(ctx, rec)
	if err != nil || len(list) == 0 {
		return err
	}
	sum := sha256.New()
	sum.Write(rec.Doc)
	for _, h := range list {
		fmt.Fprintf(sum, "\x00%q %q", h.ID, h.Data)
		if r.Webhook == nil || it.Fail != nil {
			continue
		}
		hook, err := r.hook(h, it.Webhooks)
		if err != nil {
			r.Problem(it.name, fmt.Sprintf("is imported without its webhook %.64q: %s", h.ID, a2a.Explain(err)))
			continue
		}
		it.Webhooks = append(it.Webhooks, hook)
	}
	it.Digest = [32]byte(sum.Sum(nil))
	return nil
}

func (r *run) hook(h Hook, others []*webhooks.NewWebhook) (*webhooks.NewWebhook, error) {
	config, err := decodeHook(h)
	if err != nil {
		return nil, err
	}
	if len(config.ID) > answer.MaxID || strings.Contains(config.ID, "\x00") {
		return nil, fmt.Errorf("its id is longer than %d bytes or has a NUL", answer.MaxID)
	}
	hook, err := r.Webhook(config)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(others, func(o *webhooks.NewWebhook) bool { return o.ConfigID == hook.ConfigID }) {
		return nil, fmt.Errorf("the task has another one with the id %.64q", hook.ConfigID)
	}
	return hook, nil
}

var errOutcomes = errors.New("the store answered for another number of tasks")

// flush stores the batch.
func (r *run) flush(ctx context.Context) error {
	if len(r.batch) == 0 {
		return nil
	}
	list := make([]tasks.Import, len(r.batch))
	for i := range r.batch {
		list[i] = r.batch[i].Import
	}
	var outcomes []tasks.ImportOutcome
	var err error
	if r.DryRun {
		outcomes, err = r.target.Imported(ctx, list)
	} else {
		outcomes, err = r.target.Import(ctx, r.Label, list)
	}
	if err == nil && len(outcomes) != len(list) {
		err = errOutcomes
	}
	if err != nil {
		return err
	}
	for i := range r.batch {
		r.count(&r.batch[i], outcomes[i])
	}
	r.batch, r.bytes = r.batch[:0], 0
	return nil
}

func (r *run) count(it *item, outcome tasks.ImportOutcome) {
	switch outcome {
	case tasks.ImportStored:
		r.report.of(it.state).Imported++
		r.report.Webhooks += len(it.Webhooks)
	case tasks.ImportKnown:
		r.report.of(it.state).Known++
	case tasks.ImportChanged:
		r.problem(it.state, it.name,
			"was imported before, and has changed in the source since: purge it here to import it again")
	case tasks.ImportOtherAgent:
		r.problem(it.state, it.name, "was imported before, for another agent: purge it here to import it for this one")
	case tasks.ImportIDInUse:
		r.problem(it.state, it.name, fmt.Sprintf("its id %s belongs to another task here", it.Task.ID))
	}
}

var indexes = regexp.MustCompile(`\[\d+\]`)

// place is the path of a member without the numbers of elements.
func place(path string) string { return indexes.ReplaceAllString(path, "[]") }

// caller returns the owner of a record here.
func (r *run) caller(rec *Record) (db.Caller, error) {
	c := db.Caller{Tenant: r.Tenant, Owner: r.Owner}
	if c.Tenant == "" {
		c.Tenant = rec.Tenant
	}
	if c.Tenant == "" {
		c.Tenant = DefaultTenant
	}
	if c.Owner == "" {
		c.Owner = rec.Owner
	}
	switch {
	case c.Owner == "":
		return c, errors.New("has no owner in the source: pass --owner")
	case !validName(c.Owner) || !validName(c.Tenant):
		return c, errors.New("its owner or tenant is longer than 255 bytes, or not text")
	}
	return c, nil
}
