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
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// writing is a method of the store that writes, for the test of commits that fail. prepare makes what it needs and
// returns the call, which answers with the values that the method returned: all zero where there is an error.
type writing struct {
	method  string
	unit    func(request []byte) bool // what commits: commit, or execute for a statement by itself
	prepare func(w *witness) (call func(s *store.Store) (any, error))
	// stored says what is wrong if the call was answered without an error.
	stored func(w *witness, answer any) string
}

// witness is a fixture with what one store told others: runs that it began, wakes, events, counts.
type witness struct {
	*storetest.Fixture
	mu     sync.Mutex
	begun  []tasks.Lease // guarded by mu
	left   int           // guarded by mu; slots that were given back
	takes  bool          // new tasks go to the worker of this process
	told   map[a2a.ID][][]a2a.Entry
	roused []string
}

func (w *witness) config(c *store.Config) {
	c.Reserve = func(string) (tasks.Slot, bool) {
		if !w.takes {
			return tasks.Slot{}, false
		}
		return tasks.Slot{
			TTL: storetest.TTL,
			Start: func(l tasks.Lease, _ tasks.Input) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.begun = append(w.begun, l)
			},
			Release: func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.left++
			},
		}, true
	}
	c.Wake = func(keys ...string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.roused = append(w.roused, keys...)
	}
	c.Committed = func(id a2a.ID, events []a2a.Entry) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.told[id] = append(w.told[id], events)
	}
}

// commitFault is what becomes of a commit, or of every commit.
type commitFault struct {
	name     string
	answered bool // it takes effect, and its answer is lost
	always   bool // each repetition is lost too
}

var commitFaults = []commitFault{
	{"before it took effect", false, false},
	{"after it took effect", true, false},
	{"before it took effect, each time", false, true},
	{"after it took effect, each time", true, true},
}

// taskClaim is the statement by which tasks are claimed, and not the look at the queue before it.
func taskClaim(request []byte) bool {
	return storetest.IsExecute(request) && bytes.Contains(request, []byte("r1"))
}

// webhook is one without secrets.
func webhook(id string) *webhooks.NewWebhook {
	return &webhooks.NewWebhook{
		ConfigID: id, URL: "http://192.0.2.1/" + id, Origin: "http://192.0.2.1", Version: a2a.PushV10,
		Seal: func(a2a.ID) ([]byte, []byte, error) { return nil, nil, nil },
	}
}

// due returns a webhook of a new task as a claim of deliveries finds it.
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

// count compares the number of rows that a query finds.
func (w *witness) count(want int, query string, args ...any) string {
	w.T.Helper()
	if got := storetest.Value[int](w.Fixture, "SELECT count(*)::int FROM "+query, args...); got != want {
		return fmt.Sprintf("%d of %s, want %d", got, query, want)
	}
	return ""
}

// A call whose commits are lost answers with what is stored, or with an error alone; what the store did meanwhile is
// compared with what is stored.
func TestFailedCommitsTellNothing(t *testing.T) {
	t.Parallel()
	for _, op := range writings {
		for _, cf := range commitFaults {
			t.Run(op.method+"/"+cf.name, func(t *testing.T) {
				t.Parallel()
				w := &witness{Fixture: storetest.Open(t), told: map[a2a.ID][][]a2a.Entry{}}
				p, url := storetest.NewProxy(t, w.URL)
				s := w.Replica("r1", w.config, func(c *store.Config) { c.URL, c.PoolSize = url, 4 })
				call := op.prepare(w)
				before := s.Tasks.Counts()
				fired := p.Arm(storetest.Fault{Match: op.unit, Answered: cf.answered, Repeat: cf.always})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				answer, err := call(s)
				storetest.WantFired(t, fired)
				p.Disarm()
				if ctx.Err() != nil {
					t.Fatal("the call took too long")
				}
				for _, wrong := range w.compare(before, s.Tasks.Counts(), answer, err) {
					t.Error(wrong)
				}
				if err == nil {
					if wrong := op.stored(w, answer); wrong != "" {
						t.Errorf("answered %+v, but there are %s", answer, wrong)
					}
				}
				w.Invariants()
			})
		}
	}
}

// compare holds what the store has told against the database, and wants it to have told nothing of what failed. It returns
// what is wrong.
func (w *witness) compare(before, after tasks.Counts, answer any, err error) (wrong []string) {
	w.T.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for _, l := range w.begun {
		if text := w.count(1, "a2a.task_leases WHERE task_id = $1 AND epoch = $2 AND worker = 'r1'", l.TaskID, l.Epoch); text != "" {
			add("a run began of task %s: %s", l.TaskID, text)
		}
	}
	for id, calls := range w.told {
		for _, e := range slices.Concat(calls...) {
			if text := w.count(1, "a2a.task_events WHERE task_id = $1 AND seq = $2 AND event_uid = $3", id, e.Seq, e.UID); text != "" {
				add("event %d of task %s was told: %s", e.Seq, id, text)
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
		add("with the error %v it answered %+v", err, answer)
	}
	if len(w.begun)+len(w.roused)+len(w.told) > 0 {
		add("with the error %v it began %d runs, woke %v and told of %d tasks", err, len(w.begun), w.roused, len(w.told))
	}
	if !reflect.DeepEqual(before, after) {
		add("with the error %v it counted %+v, before %+v", err, after, before)
	}
	return wrong
}

// The comparison finds runs, events, wakes, counts and answers without a task, and does not find those with one.
func TestComparisonFindsWhatIsPlanted(t *testing.T) {
	t.Parallel()
	w := &witness{Fixture: storetest.Open(t), told: map[a2a.ID][][]a2a.Entry{}}
	l := w.RunningTask()
	log := w.Log(l.TaskID)
	unavailable := a2a.Errorf(a2a.CodeUnavailable, "planted")
	counted := tasks.Counts{Submits: tasks.Groups{Count: 1}}
	for name, tt := range map[string]struct {
		begun  []tasks.Lease
		told   []a2a.Entry
		wakes  []string
		counts tasks.Counts
		answer any
		err    error
		want   int
	}{
		"what is there":                 {begun: []tasks.Lease{*l}, told: log, wakes: []string{"push"}, counts: counted, answer: 1},
		"an error alone":                {answer: 0, err: unavailable},
		"a run without a task":          {begun: []tasks.Lease{{TaskID: db.NewTaskID(), Epoch: 1}}, want: 1},
		"a run of another claim":        {begun: []tasks.Lease{{TaskID: l.TaskID, Epoch: 7}}, want: 1},
		"an event that is not there":    {told: []a2a.Entry{{Seq: 2, UID: db.NewUID()}}, want: 1},
		"an answer with an error":       {answer: 1, err: unavailable, want: 1},
		"a wake with an error":          {wakes: []string{"push"}, err: unavailable, want: 1},
		"a count with an error":         {counts: counted, err: unavailable, want: 1},
		"an error that means something": {err: a2a.ErrTaskNotFound, want: 1},
	} {
		w.begun, w.roused, w.told = tt.begun, tt.wakes, map[a2a.ID][][]a2a.Entry{}
		if tt.told != nil {
			w.told[l.TaskID] = [][]a2a.Entry{tt.told}
		}
		if wrong := w.compare(tasks.Counts{}, tt.counts, tt.answer, tt.err); len(wrong) != tt.want {
			t.Errorf("%s: found %q, want %d", name, wrong, tt.want)
		}
	}
}

// Groups of new tasks whose commits are lost, of all shapes: with and without webhooks, keys and slots. Each
// answer without an error is a task, each run belongs to a task, and a key that is taken meanwhile by another replica is not
// answered with another task.
func TestFailedCommitsOfGroups(t *testing.T) {
	t.Parallel()
	for _, keyed := range []bool{false, true} {
		for _, hooks := range []int{0, 1, 4} { // of four
			for _, takes := range []bool{false, true} {
				for _, cf := range commitFaults {
					t.Run(fmt.Sprintf("keyed %t, %d hooks, claimed %t, %s", keyed, hooks, takes, cf.name), func(t *testing.T) {
						t.Parallel()
						failGroup(t, cf, keyed, hooks, takes)
					})
				}
			}
		}
	}
}

func failGroup(t *testing.T, cf commitFault, keyed bool, hooks int, takes bool) {
	w := &witness{Fixture: storetest.Open(t), told: map[a2a.ID][][]a2a.Entry{}, takes: takes}
	p, url := storetest.NewProxy(t, w.URL)
	s := w.Replica("r1", w.config, func(c *store.Config) { c.URL, c.PoolSize = url, 4 })
	const group = 4
	items := make([]tasks.Submission, group)
	for i := range items {
		items[i] = storetest.Submission(fmt.Sprint("item ", i))
		if keyed {
			items[i].Key = fmt.Sprint("h:", i)
		}
		if i < hooks {
			items[i].Push = webhook("h")
		}
	}
	unit := storetest.IsExecute
	if hooks > 0 {
		unit = storetest.IsCommit
	}
	hold := tasks.HoldSubmits
	if keyed {
		hold = tasks.HoldKeyed
	}
	queued, release := hold(s.Tasks)
	var others sync.Map // what another replica made of the keys meanwhile, by key
	taken := func() {
		if !keyed {
			return
		}
		if out, err := w.Tasks.Submit(t.Context(), items[0]); err != nil {
			t.Errorf("the repeat on another replica: %v", err)
		} else {
			others.Store(items[0].Key, out.Task)
		}
	}
	fired := p.Arm(storetest.Fault{Match: unit, Answered: cf.answered, Repeat: cf.always, Then: sync.OnceFunc(taken)})
	type answer struct {
		tasks.Submitted
		err error
	}
	answers := make([]answer, group)
	var wg sync.WaitGroup
	for i := range items {
		wg.Go(func() {
			out, err := s.Tasks.Submit(t.Context(), items[i])
			answers[i] = answer{out, err}
		})
		queued(i + 1)
	}
	release()
	wg.Wait()
	storetest.WantFired(t, fired)
	p.Disarm()
	told := map[a2a.ID]bool{}
	for i, a := range answers {
		if a.err != nil {
			storetest.WantCode(t, a.err, a2a.CodeUnavailable)
			if a.Submitted != (tasks.Submitted{}) {
				t.Errorf("item %d: with the error %v it answered %+v", i, a.err, a.Submitted)
			}
			continue
		}
		told[a.Task] = true
		if wrong := w.count(1, "a2a.tasks WHERE id = $1", a.Task); wrong != "" {
			t.Errorf("item %d was answered with task %s: %s", i, a.Task, wrong)
		}
		if other, ok := others.Load(items[i].Key); ok && other != a.Task {
			t.Errorf("key %s was answered with task %s and with task %s", items[i].Key, a.Task, other)
		}
	}
	for _, wrong := range w.compare(tasks.Counts{}, tasks.Counts{}, nil, nil) {
		t.Error(wrong)
	}
	for _, l := range w.begun {
		if !told[l.TaskID] {
			t.Errorf("a run of task %s began, which nobody was told of", l.TaskID)
		}
	}
	if takes && w.left+len(w.begun) == 0 && hooks < group {
		t.Error("no slot was asked for: the test tests nothing")
	}
	w.mu.Lock()
	wakes := slices.Clone(w.roused)
	w.mu.Unlock()
	if len(told) == 0 && len(wakes) > 0 {
		t.Errorf("nobody was answered, and %v were woken", wakes)
	}
	entered := s.Tasks.Counts().Entered
	made := 0
	for _, a := range answers {
		if a.err == nil && !a.Replay {
			made++
		}
	}
	if got := entered[a2a.StateSubmitted]; got != uint64(made) {
		t.Errorf("%d tasks were counted as submitted, %d were answered as new", got, made)
	}
	w.Invariants()
}

// Every method of the store that writes is in the table above: reached from it is a query that writes.
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
			t.Errorf("%s writes, and is not in the table of TestFailedCommitsTellNothing", name)
		}
		delete(tested, name)
	}
	for name := range tested {
		t.Errorf("%s is in the table, and no method of the store that writes", name)
	}
}
