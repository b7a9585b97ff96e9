package metrics

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/push"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/stream"
	"github.com/a2ad/a2ad/internal/worker"
	"github.com/a2ad/a2ad/internal/workerapi"
)

// Sources are the parts with counters. All are required.
type Sources struct {
	Store     *store.Store
	Engine    *engine.Engine
	Follower  *stream.Follower
	Pool      *worker.Pool
	Slots     int
	Workers   *workerapi.API
	Publisher *notify.Publisher
	Listener  *notify.Listener
	Deliverer *push.Deliverer
	Budget    *budget.Budget
	Agents    func() []string                // served agents; the queues of all others are summed up as "other"
	Ready     func(ctx context.Context) bool // whether the server is ready at the time of the scrape
	Logger    *slog.Logger
}

// Attach exposes the sources from now on.
func (m *Metrics) Attach(src Sources) {
	s := &sources{Sources: src}
	s.gauges = &cached[operate.Gauges]{read: src.Store.Operate.Gauges, log: src.Logger}
	s.tasks = &cached[map[a2a.State]int64]{read: src.Store.Operate.TasksByState, log: src.Logger}
	s.describe()
	m.registry.MustRegister(s)
}

// sources collects the counters of the parts for each scrape.
type sources struct {
	Sources
	gauges *cached[operate.Gauges]
	tasks  *cached[map[a2a.State]int64]
	shown  []*family
}

// report exposes one value of a metric, with the values of its labels.
type report func(v float64, labels ...string)

// family is a metric that is read for each scrape.
type family struct {
	kind string // counter, gauge or histogram
	desc *prometheus.Desc
	read func(show report)   // nil: a histogram
	size func() tasks.Groups // nil: no histogram
}

func (s *sources) add(kind, name, help string, labels []string, read func(show report)) {
	s.shown = append(s.shown, &family{
		kind: kind, desc: prometheus.NewDesc(name, help, labels, nil), read: read,
	})
}

func (s *sources) groups(name, help string, read func() tasks.Groups) {
	s.shown = append(s.shown, &family{
		kind: "histogram", desc: prometheus.NewDesc(name, help, nil, nil), size: read,
	})
}

// one exposes a value without labels.
func one[N int | int64 | uint64 | float64](read func() N) func(report) {
	return func(show report) { show(float64(read())) }
}

// Describe sends the descriptions of what Collect sends.
func (s *sources) Describe(out chan<- *prometheus.Desc) {
	for _, f := range s.shown {
		out <- f.desc
	}
}

// Collect reads the sources.
func (s *sources) Collect(out chan<- prometheus.Metric) {
	for _, f := range s.shown {
		if f.size != nil {
			g := f.size()
			buckets := make(map[float64]uint64, len(tasks.GroupBounds))
			for i, bound := range tasks.GroupBounds {
				buckets[bound] = g.Buckets[i]
			}
			out <- prometheus.MustNewConstHistogram(f.desc, g.Count, float64(g.Sum), buckets)
			continue
		}
		kind := prometheus.GaugeValue
		if f.kind == "counter" {
			kind = prometheus.CounterValue
		}
		f.read(func(v float64, labels ...string) { out <- prometheus.MustNewConstMetric(f.desc, kind, v, labels...) })
	}
}

// cached is a value from the database that is read at most every 15 s. If a read is slow the pause
// grows, so that reads take at most a hundredth of the time.
type cached[T any] struct {
	read func(ctx context.Context) (T, error)
	log  *slog.Logger

	mu      sync.Mutex
	value   T         // guarded by mu
	ok      bool      // guarded by mu; value has been read
	next    time.Time // guarded by mu
	failed  uint64    // guarded by mu
	reading bool      // guarded by mu; a read is in progress, and other callers use the old value
}

const (
	cacheTime = 15 * time.Second
	readShare = 100
	readLimit = 10 * time.Second
)

// get returns the newest value, and whether there is one. A value that could not be read again is
// dropped. It does not hold the mutex while it reads, because a hanging statement would block every
// scrape.
func (c *cached[T]) get() (value T, ok bool) {
	c.mu.Lock()
	if c.reading || time.Now().Before(c.next) {
		defer c.mu.Unlock()
		return c.value, c.ok
	}
	c.reading = true
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), readLimit)
	defer cancel()
	start := time.Now()
	value, err := c.read(ctx)
	end := time.Now()
	if err != nil {
		c.log.WarnContext(ctx, "metrics from the database", "err", err)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = false
	c.next = end.Add(max(cacheTime-end.Sub(start), readShare*end.Sub(start)))
	if c.ok = err == nil; err != nil {
		c.failed++
		c.next = end.Add(cacheTime)
		return value, false
	}
	c.value = value
	return value, true
}

func (c *cached[T]) failures() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// queues exposes a value for the queue of each served agent, and the sum for all others.
func (s *sources) queues(value func(operate.Queue) float64, add func(a, b float64) float64) func(report) {
	return func(show report) {
		g, ok := s.gauges.get()
		if !ok {
			return
		}
		served := s.Agents()
		by := make(map[string]float64, len(served)+1)
		for _, name := range served {
			by[name] = 0
		}
		for _, q := range g.Queues {
			name := q.Agent
			if !slices.Contains(served, name) {
				name = "other"
			}
			by[name] = add(by[name], value(q))
		}
		for name, v := range by {
			show(v, name)
		}
	}
}

// unreachable exposes for each served agent whether it is unreachable. Agents that were removed are not shown.
func (s *sources) unreachable(show report) {
	g, ok := s.gauges.get()
	if !ok {
		return
	}
	for _, name := range s.Agents() {
		down := slices.ContainsFunc(g.Unreachable, func(o operate.Outage) bool { return o.Agent == name })
		show(flag(down), name)
	}
}

// byAgent exposes what each reads for each served agent, and the sum for all others.
func (s *sources) byAgent(each func(g *operate.Gauges, add func(agent string, n int64))) func(report) {
	return func(show report) {
		g, ok := s.gauges.get()
		if !ok {
			return
		}
		by := map[string]int64{}
		for _, name := range s.Agents() {
			by[name] = 0
		}
		each(&g, func(agent string, n int64) {
			if _, served := by[agent]; !served {
				agent = "other"
			}
			by[agent] += n
		})
		for name, n := range by {
			show(float64(n), name)
		}
	}
}

// counted exposes counters of the served agents, for each of what they count. They begin with zero, so that the first
// one is an increase and not a new series.
func (s *sources) counted(
	whats []string, read func(c *tasks.Counts) map[tasks.AgentCount]uint64,
) func(report) {
	return func(show report) {
		counts := s.Store.Tasks.Counts()
		by := read(&counts)
		for _, agent := range s.Agents() {
			for _, what := range whats {
				show(float64(by[tasks.AgentCount{Agent: agent, What: what}]), agent, what)
			}
		}
	}
}

// gauge exposes one value of the gauges from the database.
func (s *sources) gauge(read func(g *operate.Gauges) float64) func(show report) {
	return func(show report) {
		if g, ok := s.gauges.get(); ok {
			show(read(&g))
		}
	}
}

// tables exposes a value of each table.
func (s *sources) tables(read func(t operate.TableSize) int64) func(show report) {
	return func(show report) {
		if g, ok := s.gauges.get(); ok {
			for _, t := range g.Tables {
				show(float64(read(t)), t.Name)
			}
		}
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
