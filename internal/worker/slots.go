package worker

import (
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/store/tasks"
)

// recordingFactor bounds the runs of a pool, in multiples of its slots, when executors end faster than
// their events can be recorded.
const recordingFactor = 4

// maxClaim bounds the tasks of one claim. Other replicas get their part of a burst, and the tasks that one statement
// reads are few.
const maxClaim = 256

// slots counts the runs of a pool and says how many more may start. A slot is reserved for a run before
// the run starts, and is free again when its executor has ended: slots bound the work of agents, and
// recording the end of a run is not theirs. A run of a command also needs one of the slots for commands.
type slots struct {
	maxHeld int64         // bytes of the tasks that runs may hold, and of one more task; 0: no limit
	freed   chan struct{} // capacity 1; read by the claimer: a slot is free again

	mu         sync.Mutex
	accepting  bool           // guarded by mu; from open to close. Otherwise nothing can be reserved
	all        places         // guarded by mu; of all runs
	commands   places         // guarded by mu; of the runs that are processes on this machine, which count in all, too
	waiting    time.Time      // guarded by mu; since when tasks have waited for a slot for commands; zero: none does
	recording  int            // guarded by mu; runs whose executor has ended and that are not finished
	held       int64          // guarded by mu; bytes of the tasks of unfinished runs
	used       time.Duration  // guarded by mu; what all slots together were in use for, until usedAt
	usedAt     time.Time      // guarded by mu
	unfinished sync.WaitGroup // reserved slots and unfinished runs; Add under mu while accepting
}

// places counts the slots of one kind.
type places struct {
	limit     int // executors at once
	reserved  int // for runs that are about to start
	executing int // runs whose executor has not ended
}

func (p *places) free() int { return p.limit - p.executing - p.reserved }

func newSlots(all, commands int, maxHeld int64) *slots {
	return &slots{
		maxHeld: maxHeld, freed: make(chan struct{}, 1),
		all: places{limit: all}, commands: places{limit: min(commands, all)},
	}
}

// open lets slots be reserved.
func (s *slots) open() { s.accept(true) }

// close lets no more slots be reserved.
func (s *slots) close() { s.accept(false) }

func (s *slots) accept(accepting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepting = accepting
}

// allFinished returns a channel that is closed when all reserved slots are released and all runs have
// finished. It is called after close.
func (s *slots) allFinished() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.unfinished.Wait()
	}()
	return done
}

// anyFree reports whether a run of some agent could start now.
func (s *slots) anyFree() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free() > 0
}

// free returns how many runs may start now, of any agent. The caller holds mu.
func (s *slots) free() int {
	if !s.accepting || s.maxHeld > 0 && s.held >= s.maxHeld {
		return 0
	}
	runs := s.all.executing + s.all.reserved + s.recording
	return min(s.all.free(), recordingFactor*s.all.limit-runs)
}

// freeFor returns how many runs of q may start now. The caller holds mu.
func (s *slots) freeFor(q *queue) int {
	n := s.free()
	if q.Command {
		n = min(n, s.commands.free())
	}
	if q.limits.Concurrency > 0 {
		n = min(n, q.limits.Concurrency-q.running)
	}
	return max(n, 0)
}

// reserve promises n slots to runs of q, or takes back the promise of -n. The caller holds mu.
func (s *slots) reserve(q *queue, n int) {
	s.all.reserved += n
	if q.Command {
		s.commands.reserved += n
	}
	q.running += n
	s.unfinished.Add(n)
}

// execute changes the number of executors that run for q by n. The caller holds mu.
func (s *slots) execute(q *queue, n int) {
	s.addUse()
	s.all.executing += n
	if q.Command {
		s.commands.executing += n
	}
}

// reserveForClaim reserves slots for a claim and returns how many. Without a backlog it keeps half of the
// slots free for tasks that reserveForSubmit brings meanwhile.
func (s *slots) reserveForClaim(q *queue) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.freeFor(q)
	if !q.backlog {
		n = (n + 1) / 2
	}
	n = min(n, q.most)
	s.reserve(q, n)
	return n
}

// reserveForSubmit reserves a slot for a task that is being submitted. It refuses while queued tasks of
// the agent may wait for a slot: they came first.
func (s *slots) reserveForSubmit(q *queue) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.backlog = q.backlog || s.freeFor(q) == 0
	if q.backlog {
		return false
	}
	s.reserve(q, 1)
	return true
}

// release frees reserved slots that are not needed.
func (s *slots) release(q *queue, n int) {
	s.mu.Lock()
	s.reserve(q, -n)
	s.mu.Unlock()
	signal(s.freed)
}

// fit returns how many of the first tasks of a claim may be read and run: as many as the memory for tasks has room for.
// The first one always may. There was room when its slot was reserved, and a large task would wait forever while there
// are runs.
//
// It also bounds the next claim of q, because each task that does not fit is claimed and released for nothing. A claim
// that leaves no room for twice as many such tasks is followed by a claim of one. Any other may be followed by one of
// twice as many, so that free memory is soon used.
func (s *slots) fit(q *queue, leases []tasks.Lease) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.maxHeld == 0 {
		return len(leases)
	}
	var size int64
	for i := range leases {
		if i > 0 && s.held+size+leases[i].Bytes > s.maxHeld {
			q.most, q.backlog = 1, true
			return i
		}
		size += leases[i].Bytes
	}
	if q.most = min(max(q.most, 2*len(leases)), maxClaim); s.held+3*size > s.maxHeld {
		q.most = 1
	}
	return len(leases)
}

// expectBacklog notes that tasks of an agent may have waited before it was added.
func (s *slots) expectBacklog(q *queue) { s.setBacklog(q, true) }

// setBacklog notes whether more tasks may wait than there was room for.
func (s *slots) setBacklog(q *queue, backlog bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.backlog = backlog
}

// noteWaiting notes whether tasks of commands wait. They wait for a slot if none is free for commands.
func (s *slots) noteWaiting(tasks bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !tasks || s.commands.free() > 0:
		s.waiting = time.Time{}
	case s.waiting.IsZero():
		s.waiting = time.Now()
	}
}

// started turns a reserved slot into one with an executor. The run holds a task of this size.
func (s *slots) started(q *queue, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.execute(q, 1)
	s.all.reserved--
	if q.Command {
		s.commands.reserved--
	}
	s.held += bytes
}

// executorEnded frees the slot of a run.
func (s *slots) executorEnded(q *queue) {
	s.mu.Lock()
	s.execute(q, -1)
	s.recording++
	q.running--
	s.mu.Unlock()
	signal(s.freed)
}

// finished notes that a run has ended and that its end is recorded. Its slot was freed before, its memory is free now.
func (s *slots) finished(bytes int64) {
	s.mu.Lock()
	s.recording--
	s.held -= bytes
	s.mu.Unlock()
	s.unfinished.Done()
	signal(s.freed)
}

// addUse adds the time since the last call. It comes before each change of executing. The caller holds mu.
func (s *slots) addUse() {
	now := time.Now()
	s.used += time.Duration(s.all.executing) * now.Sub(s.usedAt)
	s.usedAt = now
}

// load returns how many slots are in use, and for how long all of them together were in use since the start.
func (s *slots) load() Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addUse()
	l := Load{
		Slots: s.all.limit, Busy: s.all.executing, Used: s.used,
		Commands: s.commands.limit, BusyCommands: s.commands.executing, HeldBytes: s.held,
	}
	if !s.waiting.IsZero() {
		l.Waiting = time.Since(s.waiting)
	}
	return l
}
