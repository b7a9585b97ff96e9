package a2ad

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	maxConcurrency = 10_000
	connectTimeout = 10 * time.Second
)

// Options are the settings of a worker. The zero value is usable.
type Options struct {
	URL    string // of the server; default A2AD_URL, or http://127.0.0.1:8080
	APIKey string // default A2AD_API_KEY
	Name   string // what the server shows in the list of attempts; default host and process id
	// Grace is how long runs may continue when the worker stops. Those that do not end in time return to the queue. 0
	// means the default, 20 s; for no time at all, set 1 ns.
	Grace time.Duration
	// Health is an address such as ":8081" for /livez, /readyz and /status. Default none: see also [Worker.Health].
	Health string
	Logger *slog.Logger // default slog.Default()
	// Client sends the requests. Its Timeout does not count, because each request has its own, and redirects are never
	// followed. The default Transport keeps its connections, and uses HTTP_PROXY, HTTPS_PROXY and NO_PROXY.
	Client *http.Client
	Trace  Trace // default none
}

// Worker claims and executes the tasks of agents whose file has the executor pull. Register all agents before Run or
// Serve. Then the methods may be called from several goroutines.
type Worker struct {
	o      Options
	client *client
	agents []*registered
	began  time.Time

	mu    sync.Mutex
	phase phase // guarded by mu
}

// AgentOption is an option of an agent.
type AgentOption func(*registered)

// Concurrency is how many tasks of the agent run in this process at once, from 1 to 10,000. The default is 8. It panics
// if n is out of range.
func Concurrency(n int) AgentOption {
	if n < 1 || n > maxConcurrency {
		panic(fmt.Sprintf("a2ad: Concurrency must be between 1 and %d, not %d", maxConcurrency, n))
	}
	return func(r *registered) { r.slots = make(chan struct{}, n) }
}

// NewWorker returns a worker without agents. Run and Serve check the options.
func NewWorker(o Options) *Worker {
	getenv := os.Getenv //nolint:forbidigo // a worker is a command of its user, with the usual variables
	o.URL = strings.TrimRight(cmp.Or(o.URL, getenv("A2AD_URL"), "http://127.0.0.1:8080"), "/")
	o.APIKey = cmp.Or(o.APIKey, getenv("A2AD_API_KEY"))
	if o.Name == "" {
		host, _ := os.Hostname() // the process is enough
		o.Name = unprintable.ReplaceAllString(fmt.Sprintf("%.100s-%d", host, os.Getpid()), "-")
	}
	o.Grace = cmp.Or(o.Grace, 20*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	var h http.Client
	if o.Client != nil {
		h = *o.Client
	}
	if h.Timeout = 0; h.Transport == nil { // a claim waits for a task
		h.Transport = transport()
	}
	// A redirect is the answer of a proxy. To follow it could send the key elsewhere.
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Worker{
		o: o, began: time.Now(), client: &client{http: &h, url: o.URL, apiKey: o.APIKey, logger: o.Logger},
	}
}

// transport keeps a connection for each run that streams. It does not use HTTP/2, whose one connection may be dead for
// minutes before that is noticed.
func transport() *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: connectTimeout}).DialContext,
		TLSHandshakeTimeout: connectTimeout, MaxIdleConnsPerHost: 1000, IdleConnTimeout: 90 * time.Second,
		DisableCompression: true, Protocols: &protocols,
	}
}

// Agent registers a function for whole tasks of an agent. It runs again from its start after a crash and after each
// wait, without repeating what is recorded. [Task.Message] is the first message of the turn.
//
// Agent panics if the name is invalid or already registered, or if fn is nil.
func (w *Worker) Agent(name string, fn AgentFunc, options ...AgentOption) {
	w.register(name, fn, false, options)
}

// Handler registers a function for single messages of an agent that keeps its own state.
//
// It is like Agent, but [Task.Message] is the newest message, and the function begins at the last [Task.Checkpoint],
// which [Task.Saved] returns. It does so after a crash and after each wait. What it wrote to an artifact since that
// checkpoint, or since a step that wrote to the same artifact, is then removed. Statuses and usage are not, so they are
// sent again.
//
// [Task.Ask] and [Task.AuthRequired] do not return the answer: the function gets it as its next message. If none comes
// in time, they return [ErrTimeout] when it runs again with the same message. Steps, calls and waits are recorded for
// the message and the checkpoint.
func (w *Worker) Handler(name string, fn AgentFunc, options ...AgentOption) {
	w.register(name, fn, true, options)
}

func (w *Worker) register(name string, fn AgentFunc, handler bool, options []AgentOption) {
	if err := checkAgent(name); err != nil {
		panic("a2ad: " + err.Error())
	}
	if fn == nil {
		panic(fmt.Sprintf("a2ad: the agent %q has no function", name))
	}
	for _, a := range w.agents {
		if a.name == name {
			panic(fmt.Sprintf("a2ad: the agent %q is already registered", name))
		}
	}
	a := &registered{name: name, fn: fn, handler: handler, slots: make(chan struct{}, 8)}
	for _, set := range options {
		set(a)
	}
	w.agents = append(w.agents, a)
}

// Run works until the process gets SIGTERM or SIGINT, or the context ends. A second signal ends the process at once.
// Otherwise it is like [Worker.Serve].
func (w *Worker) Run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // so that a second signal has its usual effect
	return w.Serve(ctx)
}

// Serve works until the context ends. Then it stops claiming, and runs may continue for the time of Options.Grace.
// Those that do not end in time return to the queue, and their contexts end.
//
// It returns an error only if the worker cannot start, such as a [UsageError] for a wrong option. It retries while the
// server is unreachable or refuses its claims. A function that ignores that its run has ended does not keep Serve from
// returning.
func (w *Worker) Serve(ctx context.Context) error {
	if err := w.check(); err != nil {
		return err
	}
	if !w.enter() {
		return misuse("the worker is already running")
	}
	defer w.setPhase(halted)
	if w.o.Health != "" {
		closeHealth, err := w.serveHealth(ctx)
		if err != nil {
			return err
		}
		defer closeHealth()
	}
	w.o.Logger.Info("worker started", "worker", w.o.Name, "url", w.o.URL, "agents", w.names())
	runs, release := context.WithCancelCause(context.WithoutCancel(ctx))
	defer release(nil)
	var claims, running sync.WaitGroup
	for _, a := range w.agents {
		claims.Go(func() { w.claim(ctx, runs, a, &running) })
	}
	<-ctx.Done()
	w.setPhase(stopping)
	claims.Wait()
	w.drain(&running, release)
	w.client.http.CloseIdleConnections()
	w.o.Logger.Info("worker stopped", "worker", w.o.Name)
	return nil
}

// drain waits for the runs to end. It releases those that do not.
func (w *Worker) drain(running *sync.WaitGroup, release context.CancelCauseFunc) {
	done := make(chan struct{})
	go func() { // ends with the last run
		running.Wait()
		close(done)
	}()
	timer := time.NewTimer(w.o.Grace)
	defer timer.Stop()
	select {
	case <-done:
		return
	case <-timer.C:
	}
	release(&stopped{outcome: released, text: "the worker stops"})
	<-done // each run is released within a bounded time
}

func (w *Worker) names() string {
	names := make([]string, len(w.agents))
	for i, a := range w.agents {
		names[i] = a.name
	}
	return strings.Join(names, ", ")
}

var (
	unprintable = regexp.MustCompile(`[^!-~]`)
	printable   = regexp.MustCompile(`^[!-~]+$`)
)

// check returns what is wrong with the options.
func (w *Worker) check() error {
	u, err := url.Parse(w.o.URL)
	switch {
	case len(w.agents) == 0:
		return misuse("the worker has no agent: call Agent or Handler")
	case err != nil:
		return misuse("URL must be a URL such as http://127.0.0.1:8080: %v", errors.Unwrap(err))
	case u.User != nil: // a2ad has no use for it, and it would be in logs
		return misuse("URL must not contain a user name or password: use APIKey")
	case u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		return misuse("URL must be a URL such as http://127.0.0.1:8080, not %.200q", w.o.URL)
	case w.o.APIKey != "" && !printable.MatchString(w.o.APIKey):
		return misuse("APIKey must be printable ASCII without spaces")
	case len(w.o.Name) > 128 || !printable.MatchString(w.o.Name):
		return misuse("Name must be 1 to 128 printable ASCII characters: %.200q", w.o.Name)
	}
	return checkDuration(w.o.Grace, "Grace")
}
