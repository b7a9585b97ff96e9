package worker

import "sync"

// recordingFactor bounds the runs of a pool, in multiples of its slots, when executors end faster than
// their events can be recorded.
const recordingFactor = 4

// slots counts the runs of a pool and says how many more may start. A slot is reserved for a run before
// the run starts, and is free again when its executor has ended: slots bound the work of agents, and
// recording the end of a run is not theirs.
type slots struct {
	limit int           // executors at once
	freed chan struct{} // capacity 1; read by the claimer: a slot is free again

	mu         sync.Mutex
	accepting  bool           // guarded by mu; from open to close. Otherwise nothing can be reserved
	reserved   int            // guarded by mu; for runs that are about to start
	executing  int            // guarded by mu; runs whose executor has not ended
	recording  int            // guarded by mu; runs whose executor has ended and that are not finished
	unfinished sync.WaitGroup // reserved slots and unfinished runs; Add under mu while accepting
}

func newSlots(limit int) *slots { return &slots{limit: limit, freed: make(chan struct{}, 1)} }

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
	if !s.accepting {
		return 0
	}
	runs := s.executing + s.recording
	return min(s.limit-s.executing, recordingFactor*s.limit-runs) - s.reserved
}

// freeFor returns how many runs of q may start now. The caller holds mu.
func (s *slots) freeFor(q *queue) int {
	n := s.free()
	if q.limits.Concurrency > 0 {
		n = min(n, q.limits.Concurrency-q.running)
	}
	return max(n, 0)
}

// reserve promises n slots to runs of q. The caller holds mu.
func (s *slots) reserve(q *queue, n int) {
	s.reserved += n
	q.running += n
	s.unfinished.Add(n)
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
	s.reserved -= n
	q.running -= n
	s.unfinished.Add(-n)
	s.mu.Unlock()
	signal(s.freed)
}

// expectBacklog notes that tasks of an agent may have waited before it was added.
func (s *slots) expectBacklog(q *queue) { s.setBacklog(q, true) }

// setBacklog notes whether more tasks may wait than there was room for.
func (s *slots) setBacklog(q *queue, backlog bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.backlog = backlog
}

// started turns a reserved slot into one with an executor.
func (s *slots) started() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved--
	s.executing++
}

// executorEnded frees the slot of a run.
func (s *slots) executorEnded(q *queue) {
	s.mu.Lock()
	s.executing--
	s.recording++
	q.running--
	s.mu.Unlock()
	signal(s.freed)
}

// finished notes that a run has ended and that its end is recorded. Its slot was freed before.
func (s *slots) finished() {
	s.mu.Lock()
	s.recording--
	s.mu.Unlock()
	s.unfinished.Done()
	signal(s.freed)
}
