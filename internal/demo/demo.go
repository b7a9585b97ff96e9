// Package demo fills a server with a believable day, so that a newcomer sees a living console at once: tasks of
// yesterday and today, agents at work, failures of two kinds, questions, a destination that does not answer, an attempt
// that hangs, and tasks that call other tasks.
//
// It promises that the day is stored once for each database, and that nothing leaves the machine. It is for `a2ad dev`.
package demo

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// Tasks stores tasks. It is *tasks.Store.
type Tasks interface {
	Submit(ctx context.Context, in tasks.Submission) (tasks.Submitted, error)
	Import(ctx context.Context, source string, list []tasks.Import) ([]tasks.ImportOutcome, error)
}

// Search finds tasks. It is *operate.Store.
type Search interface {
	SearchTasks(ctx context.Context, f operate.TaskSearch) ([]operate.FoundTask, error)
}

// Config configures Run. Zero durations take their defaults.
type Config struct {
	Tasks  Tasks
	Search Search
	URL    string // of the API, for the workers
	// Pace is how often a new task is submitted once the day is stored; default 3 s.
	Pace   time.Duration
	Logger *slog.Logger
}

// Run stores the day, unless the database has it, and then submits tasks and works on those of the agent orders until
// ctx ends.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Pace == 0 {
		cfg.Pace = 3 * time.Second
	}
	d := &day{cfg: cfg, random: rand.New(rand.NewPCG(1, 2))}
	known, err := d.known(ctx)
	if err == nil && !known {
		err = d.store(ctx)
	}
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	worker := newWorker(cfg.URL, cfg.Logger)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		worker.run(ctx)
	}()
	err = d.goOn(ctx)
	<-ended
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("demo: %w", err)
	}
	return nil
}

// day makes tasks. The same numbers come out at each start, so that pictures of the console are alike.
type day struct {
	cfg    Config
	random *rand.Rand
	number int
}

// callers own the tasks of the demo.
var callers = []db.Caller{
	{Tenant: "acme", Owner: "ann"}, {Tenant: "acme", Owner: "shop"}, {Tenant: "globex", Owner: "support"},
}

// known reports whether the database has a day of the demo.
func (d *day) known(ctx context.Context) (bool, error) {
	found, err := d.cfg.Search.SearchTasks(ctx, operate.TaskSearch{
		Tenant: callers[0].Tenant, Owner: callers[0].Owner, Limit: 1, Timeout: 10 * time.Second,
	})
	return len(found) > 0, err
}

func (d *day) store(ctx context.Context) error {
	if err := d.history(ctx, time.Now()); err != nil {
		return err
	}
	for _, s := range scenes {
		if err := d.submit(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// goOn submits a task of the usual kind from time to time.
func (d *day) goOn(ctx context.Context) error {
	tick := time.NewTicker(d.cfg.Pace)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := d.submit(ctx, usual[d.random.IntN(len(usual))]); err != nil {
			d.cfg.Logger.WarnContext(ctx, "submit a task of the demo", "err", err) // the next tick tries again
		}
	}
}

// scene is a task that somebody sends.
type scene struct {
	agent, text string
	script      string // for agents that play scripts
	webhook     string // URL of a destination; empty: none
	times       int    // how many such tasks there are; 0: one
}

func (d *day) submit(ctx context.Context, s scene) error {
	for range max(s.times, 1) {
		d.number++
		order := 4000 + d.random.IntN(1000)
		m := request(s.text, s.script, order)
		in := tasks.Submission{
			Caller: callers[d.number%len(callers)], Agent: s.agent, Message: m,
			ContextID: fmt.Sprintf("order-%d", order), Digest: sha256.Sum256([]byte(m.ID)),
		}
		if s.webhook != "" {
			in.Push = newWebhook(s.webhook)
		}
		if _, err := d.cfg.Tasks.Submit(ctx, in); err != nil {
			return fmt.Errorf("submit to %s: %w", s.agent, err)
		}
	}
	return nil
}

// request returns what a client asks for, with the script that its agent plays. An empty script is left out.
func request(text, script string, order int) a2a.Message {
	m := a2a.Message{ID: db.NewUID().String(), Role: a2a.RoleUser, Parts: []a2a.Part{
		{Kind: a2a.PartText, Text: fill(text, order)},
	}}
	if script != "" {
		data := `{"script":[` + fill(script, order) + `]}`
		m.Parts = append(m.Parts, a2a.Part{Kind: a2a.PartData, Data: a2a.Raw(data)})
	}
	return m
}

func newWebhook(url string) *webhooks.NewWebhook {
	return &webhooks.NewWebhook{
		ConfigID: "default", URL: url, Origin: destination, Version: a2a.PushV10,
		Seal: func(a2a.ID) (token, credentials []byte, err error) { return nil, nil, nil },
	}
}
