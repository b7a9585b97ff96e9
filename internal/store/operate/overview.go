package operate

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// Overview is the state of the whole service in its database, for the operator. Its parts are of nearly the same
// moment.
type Overview struct {
	Tasks        []TaskCount // by agent and state
	Queues       []QueueDepth
	Unreachable  []Outage // agents that some replica cannot reach
	Stopped      []tasks.Stop
	Parked       []ParkedCount
	Waiting      []WaitingCount
	Workers      []WorkerLoad
	Runs         []RunSeen // at most a hundred, those that have been silent longest first
	Replicas     []ReplicaSeen
	Known        []Presence  // servers and remote workers
	Full         *Saturation // nil: there are free slots, or no task waits for one
	Push         PushBacklog
	Down         []DestinationDown // at most a hundred
	Bytes        int64             // of the database
	Tables       []TableSize       // the largest first
	Transactions []OpenTransaction // longer than a second, the oldest first
	Hidden       int               // connections whose transactions the login may not see: pg_read_all_stats sees all
}

// TaskCount is how many tasks of an agent are in a state.
type TaskCount struct {
	Agent     string
	State     a2a.State
	Tasks     int64
	Estimated bool // from a sample, as of tasks that have ended where the table has more than 128 MB
}

// CountedPages is how much of a table of tasks is read to count those that have ended: 128 MB, some 370,000 of them, in
// 0.15 s. A sample of that size is good to a hundredth.
const CountedPages = 16384

// CountTasks counts the tasks of each agent in each state. If their table has more than pages pages, it estimates the
// number of ended tasks from a sample.
func CountTasks(ctx context.Context, tx db.Conn, pages int64) ([]TaskCount, error) {
	rows, err := dbsqlc.New(tx).CountTasks(ctx, pages)
	list := make([]TaskCount, len(rows))
	for i, r := range rows {
		list[i] = TaskCount{Agent: r.Agent, State: a2a.State(r.State), Tasks: r.Tasks, Estimated: r.Estimated}
	}
	return list, err
}

// QueueDepth counts the tasks of an agent that wait for a worker.
type QueueDepth struct {
	Agent   string
	Waiting int64
	Due     int64         // of these, those that wait for nothing else
	Oldest  time.Duration // since the one that is due longest; negative: none is due yet
}

// Outage is an agent that some replica cannot reach.
type Outage = tasks.Outage

// WorkerLoad counts the runs of a worker.
type WorkerLoad struct {
	Worker  string
	Running int64
	Expired int64 // of these, those whose lease has expired
}

// RunSeen is a task that a worker holds under a lease.
type RunSeen struct {
	Task    a2a.ID
	Agent   string
	Worker  string
	Attempt int
	Age     time.Duration // since the claim
	LastSeq int64
	Silent  time.Duration // since its last event, which may be that of the claim
}

// ReplicaSeen is a server that is connected, by the names of its connections.
type ReplicaSeen struct {
	Name        string
	Connections int
	Listens     bool // it is notified of changes; else it finds them by polling
	Servers     int  // how many have this name. Each should have its own: see A2AD_REPLICA
}

// PushBacklog counts webhooks.
type PushBacklog struct {
	Webhooks int64 // with something to deliver
	Events   int64 // that these have to deliver
	Failing  int64 // of these webhooks, those whose last attempt failed
	Dead     int64
	Disabled int64
	Oldest   time.Duration // age of the oldest event that is to be delivered
}

// DestinationDown is a destination whose circuit breaker is open, or that is disabled.
type DestinationDown struct {
	Tenant     string
	Origin     string
	Fails      int
	OpenUntil  time.Time // zero: the breaker is closed
	DisabledAt time.Time // zero: it is not disabled
	LastError  string    // of the newest request; may be empty
}

// TableSize is how large a table is; rows and dead rows are those of the statistics.
type TableSize struct {
	Name       string
	Bytes      int64 // with indexes
	IndexBytes int64
	Rows, Dead int64
}

// OpenTransaction is an open transaction of a connection to the database.
type OpenTransaction struct {
	PID         int
	Login       string
	Application string
	State       string
	For         time.Duration
}

// Overview reads the state of the service.
func (s *Store) Overview(ctx context.Context) (*Overview, error) {
	o := &Overview{}
	err := s.db.Browse(ctx, s.db.StatementTimeout(), func(ctx context.Context, tx *db.Tx) error {
		for _, read := range []func(context.Context, *db.Tx) error{o.readWork, o.readPush, o.readSizes} {
			if err := read(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = s.db.AsLogin(ctx, func(tx *db.Tx) error { return o.readSessions(ctx, tx) })
	}
	if err != nil {
		return nil, fmt.Errorf("read overview: %w", db.Unavailable(err))
	}
	return o, nil
}

func (o *Overview) readWork(ctx context.Context, tx *db.Tx) (err error) {
	q := dbsqlc.New(tx)
	if o.Tasks, err = CountTasks(ctx, tx, CountedPages); err != nil {
		return err
	}
	if o.Queues, err = queueDepths(ctx, q); err != nil {
		return err
	}
	if o.Known, o.Full, err = readFullness(ctx, tx, o.Queues); err != nil {
		return err
	}
	if o.Unreachable, err = tasks.ReadOutages(ctx, tx); err != nil {
		return err
	}
	if o.Stopped, err = tasks.ReadStops(ctx, tx); err != nil {
		return err
	}
	if o.Parked, err = countParked(ctx, q); err != nil {
		return err
	}
	if o.Waiting, err = countWaiting(ctx, q, allWaitingPages); err != nil {
		return err
	}
	return o.readRuns(ctx, q, 100)
}

func queueDepths(ctx context.Context, q *dbsqlc.Queries) (list []QueueDepth, err error) {
	ready, err := q.CountReady(ctx)
	for _, r := range ready {
		list = append(list, QueueDepth{
			Agent: r.Queue, Waiting: r.Waiting, Due: r.Due, Oldest: time.Duration(r.OldestMs) * time.Millisecond,
		})
	}
	return list, err
}

// readRuns reads what each worker runs, and the runs that have been silent longest, at most most of them.
func (o *Overview) readRuns(ctx context.Context, q *dbsqlc.Queries, most int) error {
	leases, err := q.CountLeases(ctx)
	if err != nil {
		return err
	}
	for _, r := range leases {
		o.Workers = append(o.Workers, WorkerLoad(r))
	}
	runs, err := q.RunsBySilence(ctx, int32(most))
	for _, r := range runs {
		o.Runs = append(o.Runs, RunSeen{
			Task: r.TaskID.Bytes, Agent: r.Agent, Worker: r.Worker, Attempt: int(r.Attempt), LastSeq: r.LastSeq,
			Age: time.Duration(r.AgeMs) * time.Millisecond, Silent: time.Duration(r.SilentMs) * time.Millisecond,
		})
	}
	return err
}

func (o *Overview) readPush(ctx context.Context, tx *db.Tx) error {
	q := dbsqlc.New(tx)
	p, err := q.CountPushes(ctx)
	if err != nil {
		return err
	}
	o.Push = PushBacklog{
		Webhooks: p.Backlog, Events: p.Events, Failing: p.Failing, Dead: p.Dead, Disabled: p.Disabled,
		Oldest: time.Duration(p.OldestMs) * time.Millisecond,
	}
	return o.readDown(ctx, q)
}

func (o *Overview) readDown(ctx context.Context, q *dbsqlc.Queries) error {
	down, err := q.DestinationsDown(ctx, 100)
	for _, r := range down {
		o.Down = append(o.Down, DestinationDown{
			Tenant: r.Tenant, Origin: r.Origin, Fails: int(r.Fails), OpenUntil: db.TimeOrZero(r.OpenUntil),
			DisabledAt: db.TimeOrZero(r.DisabledAt), LastError: r.LastError,
		})
	}
	return err
}

func (o *Overview) readSizes(ctx context.Context, tx *db.Tx) (err error) {
	q := dbsqlc.New(tx)
	if o.Bytes, err = q.DatabaseSize(ctx); err != nil {
		return err
	}
	o.Tables, err = tableSizes(ctx, q)
	return err
}

func tableSizes(ctx context.Context, q *dbsqlc.Queries) (tables []TableSize, err error) {
	rows, err := q.TableSizes(ctx)
	for _, r := range rows {
		tables = append(tables, TableSize{
			Name: r.Name, Bytes: r.Bytes, IndexBytes: r.IndexBytes, Rows: r.Live, Dead: r.Dead,
		})
	}
	return tables, err
}

// ofReplica returns the name of the replica in an application_name that Pool or ConnConfig has set.
var ofReplica = regexp.MustCompile(`^a2ad-(.+)-(api|worker|claim|listener)$`)

// OperatorReplica is the name under which the operator's own commands connect.
const OperatorReplica = "operator"

// Session is a connection to the database.
type Session = dbsqlc.SessionsRow

// ReadSessions reads the connections to the database.
func ReadSessions(ctx context.Context, conn db.Conn) ([]Session, error) {
	return dbsqlc.New(conn).Sessions(ctx)
}

// ReplicasOf returns the servers that the connections belong to.
func ReplicasOf(all []Session) []ReplicaSeen {
	var list []ReplicaSeen
	at := make(map[string]int)
	for _, s := range all {
		m := ofReplica.FindStringSubmatch(s.Application)
		if m == nil || m[1] == OperatorReplica {
			continue
		}
		i, known := at[m[1]]
		if !known {
			i = len(list)
			at[m[1]] = i
			list = append(list, ReplicaSeen{Name: m[1]})
		}
		list[i].Connections++
		if m[2] == "listener" { // each server has one
			list[i].Listens = true
			list[i].Servers++
		}
	}
	for i := range list {
		list[i].Servers = max(list[i].Servers, 1)
	}
	return list
}

func (o *Overview) readSessions(ctx context.Context, tx *db.Tx) error {
	q := dbsqlc.New(tx)
	list, err := q.Sessions(ctx)
	if err != nil {
		return err
	}
	o.Replicas = ReplicasOf(list)
	o.Transactions = TransactionsOf(list, time.Second)
	for _, s := range list {
		if s.Hidden {
			o.Hidden++
		}
	}
	return nil
}

// TransactionsOf returns the transactions that are open for longer, the oldest first.
func TransactionsOf(all []Session, longer time.Duration) []OpenTransaction {
	var list []OpenTransaction
	for _, s := range all {
		t := OpenTransaction{
			Login: s.Login, Application: s.Application, State: s.State, For: time.Duration(s.TxMs) * time.Millisecond,
		}
		if s.Pid != nil {
			t.PID = int(*s.Pid)
		}
		if t.For > longer {
			list = append(list, t)
		}
	}
	slices.SortStableFunc(list, func(a, b OpenTransaction) int { return cmp.Compare(b.For, a.For) })
	return list
}
