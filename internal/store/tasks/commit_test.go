package tasks_test

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/slowtest"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// writing is a method of the store that writes. prepare makes what the method needs and returns the call. The call
// returns what the method returned, which must be zero if there is an error.
type writing struct {
	method  string
	unit    func(request []byte) bool // the request that commits: IsCommit, or IsExecute for a single statement
	reads   int                       // requests of the same kind that only read and come first
	prepare func(w *witness) (call func(s *store.Store) (any, error))
	// stored returns what is wrong after a call without an error.
	stored func(w *witness, answer any) string
}

// afterReads returns the method with this number of reads.
func (op writing) afterReads(reads int) writing {
	op.reads = reads
	return op
}

// commits returns what matches the request that commits. A proxy calls it for one request at a time.
func (op writing) commits() func(request []byte) bool {
	reads := op.reads
	return func(request []byte) bool {
		if !op.unit(request) {
			return false
		}
		reads--
		return reads < 0
	}
}

// witness is a fixture that records what one store reports: runs that it starts, wake-ups and committed events.
type witness struct {
	*storetest.Fixture
	mu        sync.Mutex
	started   []tasks.Lease            // guarded by mu; runs
	unused    int                      // guarded by mu; slots that were given back
	hasSlots  bool                     // new tasks go to the worker of this process
	committed map[a2a.ID][][]a2a.Entry // guarded by mu
	woken     []string                 // guarded by mu
}

// newWitness returns a witness whose store reaches the database through the proxy.
func newWitness(t *testing.T) (w *witness, p *storetest.Proxy) {
	t.Helper()
	w = &witness{committed: map[a2a.ID][][]a2a.Entry{}}
	w.Fixture = storetest.Open(t, w.config, func(c *store.Config) {
		p, c.URL = storetest.NewProxy(t, c.URL)
		c.PoolSize = 4
	})
	return w, p
}

// forget forgets what the store has reported.
func (w *witness) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started, w.unused, w.woken = nil, 0, nil
	clear(w.committed)
}

// config makes the store report to the witness.
func (w *witness) config(c *store.Config) {
	c.Reserve = func(string) (tasks.Slot, bool) {
		if !w.hasSlots {
			return tasks.Slot{}, false
		}
		return tasks.Slot{
			TTL: storetest.TTL,
			Start: func(l tasks.Lease, _ tasks.Input, _ time.Time) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.started = append(w.started, l)
			},
			Release: func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.unused++
			},
		}, true
	}
	c.Wake = func(keys ...string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.woken = append(w.woken, keys...)
	}
	c.Committed = func(id a2a.ID, events []a2a.Entry) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.committed[id] = append(w.committed[id], events)
	}
}

// commitFault is what happens to a commit, or to every commit.
type commitFault struct {
	name     string
	answered bool // it takes effect, but its answer is lost
	always   bool // every repetition is lost, too
}

var commitFaults = []commitFault{
	{"before it took effect", false, false},
	{"after it took effect", true, false},
	{"before it took effect, each time", false, true},
	{"after it took effect, each time", true, true},
}

// notifying is the method that sends notifications and writes no table.
const notifying = "db.Notify"

// taskClaim matches the statement that claims tasks, and not the poll before it.
func taskClaim(request []byte) bool {
	return storetest.IsExecute(request) && bytes.Contains(request, []byte("r1"))
}

// webhook returns a webhook without secrets.
func webhook(id string) *webhooks.NewWebhook {
	return &webhooks.NewWebhook{
		ConfigID: id, URL: "http://192.0.2.1/" + id, Origin: "http://192.0.2.1", Version: a2a.PushV10,
		Seal: func(a2a.ID) ([]byte, []byte, error) { return nil, nil, nil },
	}
}

// due claims the webhook of a new task.
func (w *witness) due() *webhooks.Delivery {
	w.T.Helper()
	in := storetest.Submission("hello")
	in.Push = webhook("h")
	w.Submit(in)
	list, err := w.Webhooks.Claim(w.T.Context(), 1, 1, storetest.TTL)
	if err != nil || len(list) != 1 {
		w.T.Fatalf("claim webhooks: %d, %v", len(list), err)
	}
	return &list[0]
}

// count returns what is wrong if a query does not find that many rows.
func (w *witness) count(want int, query string, args ...any) string {
	w.T.Helper()
	if got := storetest.Value[int](w.Fixture, "SELECT count(*)::int FROM "+query, args...); got != want {
		return fmt.Sprintf("%d of %s, want %d", got, query, want)
	}
	return ""
}

// digest changes with every row of every table of the server.
func (w *witness) digest() string {
	w.T.Helper()
	return storetest.Value[string](w.Fixture, `
		SELECT string_agg(c.relname || ' ' || query_to_xml(
		  format('SELECT sum(hashtextextended(x::text, 0)) AS sum FROM a2a.%I x', c.relname), true, true, '')::text, '')
		FROM pg_class c
		WHERE c.relnamespace = 'a2a'::regnamespace AND c.relkind = 'r'`)
}

// A call whose commit is lost returns what is stored, or only an error. Whatever else the store reports must be stored,
// too.
func TestFailedCommitsReportNothing(t *testing.T) {
	t.Parallel()
	for _, op := range writings {
		for _, cf := range commitFaults {
			t.Run(op.method+"/"+cf.name, func(t *testing.T) {
				t.Parallel()
				if cf != commitFaults[1] {
					slowtest.Only(t, slowtest.Crash)
				}
				w, p := newWitness(t)
				s := w.Store
				call := op.prepare(w)
				w.forget()
				before, stored := s.Tasks.Counts(), w.digest()
				fired := p.Arm(storetest.Fault{Match: op.commits(), Answered: cf.answered, Repeat: cf.always})
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				answer, err := call(s)
				storetest.WantFired(t, fired)
				p.Disarm()
				if ctx.Err() != nil {
					t.Fatal("the call hangs")
				}
				if op.method != notifying && cf.answered && w.digest() == stored {
					t.Error("the call changed nothing in the database: the test tests nothing")
				}
				for _, wrong := range w.compare(before, s.Tasks.Counts(), answer, err) {
					t.Error(wrong)
				}
				if err == nil {
					if wrong := op.stored(w, answer); wrong != "" {
						t.Errorf("the call returned %+v, but there are %s", answer, wrong)
					}
				}
				w.Invariants()
			})
		}
	}
}

// compare compares what the store reported with the database. After an error the store must have reported nothing.
// compare returns what is wrong.
func (w *witness) compare(before, after tasks.Counts, answer any, err error) (wrong []string) {
	w.T.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for _, l := range w.started {
		const leases = "a2a.task_leases WHERE task_id = $1 AND epoch = $2 AND worker = 'r1'"
		if text := w.count(1, leases, l.TaskID, l.Epoch); text != "" {
			add("a run of task %s started: %s", l.TaskID, text)
		}
	}
	for id, calls := range w.committed {
		for _, e := range slices.Concat(calls...) {
			const stored = "a2a.task_events WHERE task_id = $1 AND seq = $2 AND event_uid = $3"
			if text := w.count(1, stored, id, e.Seq, e.UID); text != "" {
				add("event %d of task %s was reported: %s", e.Seq, id, text)
			}
		}
	}
	if err == nil {
		return wrong
	}
	if a2a.CodeOf(err) != a2a.CodeUnavailable {
		add("error = %v, want CodeUnavailable", err)
	}
	if answer != nil && !reflect.ValueOf(answer).IsZero() {
		add("with the error %v the call returned %+v", err, answer)
	}
	if len(w.started)+len(w.woken)+len(w.committed) > 0 {
		add("with the error %v the store started %d runs, woke %v and reported events of %d tasks",
			err, len(w.started), w.woken, len(w.committed))
	}
	if !reflect.DeepEqual(before, after) {
		add("with the error %v the store counted %+v, before %+v", err, after, before)
	}
	return wrong
}

// compare finds runs, events, wake-ups, counts and answers that are not stored, and accepts those that are.
func TestCompareFindsPlantedFaults(t *testing.T) {
	t.Parallel()
	w := &witness{Fixture: storetest.Open(t), committed: map[a2a.ID][][]a2a.Entry{}}
	l := w.RunningTask()
	log := w.Log(l.TaskID)
	unavailable := a2a.Errorf(a2a.CodeUnavailable, "planted")
	counted := tasks.Counts{Submits: tasks.Groups{Count: 1}}
	for name, tt := range map[string]struct {
		started []tasks.Lease
		events  []a2a.Entry
		wakes   []string
		counts  tasks.Counts
		answer  any
		err     error
		want    int
	}{
		"what is stored": {
			started: []tasks.Lease{*l}, events: log, wakes: []string{"push"}, counts: counted, answer: 1,
		},
		"an error alone":                {answer: 0, err: unavailable},
		"a run without a task":          {started: []tasks.Lease{{TaskID: db.NewTaskID(), Epoch: 1}}, want: 1},
		"a run of another claim":        {started: []tasks.Lease{{TaskID: l.TaskID, Epoch: 7}}, want: 1},
		"an event that is not there":    {events: []a2a.Entry{{Seq: 2, UID: db.NewUID()}}, want: 1},
		"an answer with an error":       {answer: 1, err: unavailable, want: 1},
		"a wake with an error":          {wakes: []string{"push"}, err: unavailable, want: 1},
		"a count with an error":         {counts: counted, err: unavailable, want: 1},
		"an error that means something": {err: a2a.ErrTaskNotFound, want: 1},
	} {
		w.started, w.woken, w.committed = tt.started, tt.wakes, map[a2a.ID][][]a2a.Entry{}
		if tt.events != nil {
			w.committed[l.TaskID] = [][]a2a.Entry{tt.events}
		}
		if wrong := w.compare(tasks.Counts{}, tt.counts, tt.answer, tt.err); len(wrong) != tt.want {
			t.Errorf("%s: found %q, want %d", name, wrong, tt.want)
		}
	}
}

// A method of the store writes if a query that writes is reached from it. All of them are in writings.
func TestEveryWritingMethodIsTestedWithFailedCommits(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	for _, op := range writings {
		name, _, _ := strings.Cut(op.method, " ")
		tested[name] = true
	}
	found := writingMethods(t)
	if len(found) < 20 {
		t.Fatalf("only %d methods write: the search for them finds nothing", len(found))
	}
	for _, name := range found {
		if !tested[name] {
			t.Errorf("%s writes, but is not in writings", name)
		}
		delete(tested, name)
	}
	for name := range tested {
		t.Errorf("%s is in writings, but is no method that writes", name)
	}
}
