package a2ad

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options are the settings of a worker. The zero value is usable.
type Options struct {
	URL    string        // of the server; default A2AD_URL, or http://127.0.0.1:8080
	APIKey string        // default A2AD_API_KEY
	Name   string        // what the server's record of attempts shows; default the names of the machine and the process
	Grace  time.Duration // how long runs get to end when the worker is stopped; default 20 s
	Logger *slog.Logger  // default slog.Default()
	Client *http.Client  // default one without a timeout, which keeps its connections
	Trace  Trace         // default none
}

// Worker does the tasks of agents whose file has the executor pull. Its methods may be called from several goroutines,
// but register all agents before Run.
type Worker struct {
	o      Options
	client *client
	agents map[string]*registered
	order  []*registered
	began  time.Time

	mu    sync.Mutex
	phase phase // guarded by mu
}

type registered struct {
	name    string
	fn      AgentFunc
	handler bool
	slots   chan struct{} // one for each run

	mu      sync.Mutex
	answers bool // guarded by mu: the server has answered the newest claim
}

// AgentOption is an option of an agent.
type AgentOption func(*registered)

// Concurrency is how many tasks of the agent run at once. The default is 8. It panics if n is less than 1.
func Concurrency(n int) AgentOption {
	if n < 1 {
		panic(fmt.Sprintf("a2ad: Concurrency(%d): must be at least 1", n))
	}
	return func(r *registered) { r.slots = make(chan struct{}, n) }
}

// NewWorker returns a worker without agents.
func NewWorker(o Options) *Worker {
	getenv := os.Getenv //nolint:forbidigo // a worker is a command of its user, with the usual variables
	o.URL = strings.TrimRight(cmp.Or(o.URL, getenv("A2AD_URL"), "http://127.0.0.1:8080"), "/")
	o.APIKey = cmp.Or(o.APIKey, getenv("A2AD_API_KEY"))
	if o.Name == "" {
		host, _ := os.Hostname() // the process is enough
		o.Name = workerName(fmt.Sprintf("%s-%d", host, os.Getpid()))
	}
	o.Grace = cmp.Or(o.Grace, 20*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Client == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, 1000 // each run that streams needs one
		o.Client = &http.Client{Transport: transport}
	}
	return &Worker{
		o: o, agents: make(map[string]*registered),
		began:  time.Now(),
		client: &client{http: o.Client, url: o.URL, apiKey: o.APIKey},
	}
}

// workerName makes a text a name that the server accepts: up to 128 printable ASCII characters.
func workerName(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x21 || r > 0x7e {
			return '_'
		}
		return r
	}, s)
	return s[max(len(s)-128, 0):]
}

// Agent registers a function for whole tasks of an agent. It runs again from its start after a crash and after each
// wait; what is recorded is not done again. Agent panics if the name cannot be that of an agent or is registered, and
// if there is no function.
func (w *Worker) Agent(name string, fn AgentFunc, options ...AgentOption) {
	w.register(name, fn, false, options)
}

// Handler registers a function for single messages of an agent: Task.Message is the newest one. After a crash it runs
// again, and Task.Saved has its last checkpoint. What it has written is not set back. Handler panics like Agent.
func (w *Worker) Handler(name string, fn AgentFunc, options ...AgentOption) {
	w.register(name, fn, true, options)
}

func (w *Worker) register(name string, fn AgentFunc, handler bool, options []AgentOption) {
	switch {
	case !validAgent.MatchString(name):
		panic(fmt.Sprintf("a2ad: %q cannot be the name of an agent: use letters, digits, - and _", name))
	case fn == nil:
		panic(fmt.Sprintf("a2ad: the agent %q has no function", name))
	case w.agents[name] != nil:
		panic(fmt.Sprintf("a2ad: the agent %q is registered twice", name))
	}
	r := &registered{name: name, fn: fn, handler: handler, slots: make(chan struct{}, 8), answers: true}
	for _, set := range options {
		set(r)
	}
	w.agents[name] = r
	w.order = append(w.order, r)
}

// Run works until the context ends, or until the process gets SIGTERM or SIGINT. Then runs get the grace time to end;
// the others go back to the queue, and their contexts end. A second signal ends the process at once.
//
// Run returns when each agent's function has returned. It returns an error only if the worker cannot start. While the
// server cannot be reached, it tries again.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.check(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	runs, release := context.WithCancelCause(context.WithoutCancel(ctx))
	defer release(nil)
	w.setPhase(working)
	defer w.setPhase(ended)
	w.o.Logger.Info("worker started", "worker", w.o.Name, "server", w.o.URL, "agents", len(w.order))
	var claims, running sync.WaitGroup
	for _, a := range w.order {
		claims.Go(func() { w.claim(ctx, runs, a, &running) })
	}
	claims.Wait()
	w.setPhase(stopping)
	done := make(chan struct{})
	go func() { // ends with the last run
		running.Wait()
		close(done)
	}()
	timer := time.NewTimer(w.o.Grace)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		release(&stopped{released, "the worker stops"})
		<-done
	}
	w.o.Logger.Info("worker stopped", "worker", w.o.Name)
	w.o.Client.CloseIdleConnections()
	return nil
}

// check returns what is wrong with the settings.
func (w *Worker) check() error {
	if len(w.order) == 0 {
		return misuse("the worker has no agent: call Worker.Agent")
	}
	u, err := url.Parse(w.o.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return misuse("%q is not the URL of a server, such as http://127.0.0.1:8080", w.o.URL)
	}
	if w.o.Name != workerName(w.o.Name) {
		return misuse("the name %q must have at most 128 printable ASCII characters without spaces", w.o.Name)
	}
	if w.o.Grace < 0 {
		return misuse("the grace time %s is negative", w.o.Grace)
	}
	return nil
}
