package tasks

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// MostRemoteWorkers is how many remote workers of a tenant are recorded. Workers choose their names, so a client could
// invent any number.
const MostRemoteWorkers = 1000

// Heartbeat is what a server says about itself and about the remote workers that were in touch with it.
type Heartbeat struct {
	Name      string // as its leases have it
	Instance  string // different for each start, so that two servers of one name are two
	Version   string
	Host      string
	Slots     int     // attempts that may run at once
	Busy      int     // slots in use
	BusyShare float64 // 0 to 1: the part of the slots that was in use since the heartbeat before
	Remote    []RemoteWorker

	Commands     int           // attempts of commands that may run at once
	BusyCommands int           // slots for commands in use
	CommandsWait time.Duration // for how long tasks have waited for a slot for commands; 0: none does
}

// RemoteWorker is a worker that asks for tasks over HTTP.
type RemoteWorker struct {
	Tenant  string // of its credentials; not empty
	Name    string
	Version string   // what it says in User-Agent
	Agents  []string // that it asks for
}

// Heartbeat records that a server and the remote workers are there. A worker must not be listed twice.
func (s *Store) Heartbeat(ctx context.Context, h *Heartbeat) error {
	p := dbsqlc.HeartbeatParams{
		Name: h.Name, Instance: h.Instance, Version: h.Version, Host: h.Host, Slots: int32(h.Slots),
		Busy: int32(h.Busy), BusyShare: float32(h.BusyShare), MostRemote: MostRemoteWorkers,
		Commands: int32(h.Commands), BusyCommands: int32(h.BusyCommands), CommandsWait: db.PGInterval(h.CommandsWait),
		Tenants: []string{}, Names: []string{}, Versions: []string{}, Agents: []string{},
	}
	for _, w := range h.Remote {
		p.Tenants, p.Names = append(p.Tenants, w.Tenant), append(p.Names, w.Name)
		p.Versions, p.Agents = append(p.Versions, w.Version), append(p.Agents, strings.Join(w.Agents, ","))
	}
	_, err := db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) (none struct{}, err error) {
		now := p
		now.Clock = db.PGTime(time.Now()) // after the wait for a connection, so that the clocks can be compared
		return none, dbsqlc.New(tx).Heartbeat(ctx, now)
	})
	if err != nil {
		return fmt.Errorf("record a heartbeat: %w", db.Unavailable(err))
	}
	return nil
}

// Leave removes a server that has stopped.
func (s *Store) Leave(ctx context.Context, name, instance string) error {
	_, err := db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) (none struct{}, err error) {
		return none, dbsqlc.New(tx).WorkerLeave(ctx, name, instance)
	})
	if err != nil {
		return fmt.Errorf("remove a server that has stopped: %w", db.Unavailable(err))
	}
	return nil
}

// FreshHeartbeat is how old the last heartbeat of a server or worker may be that is in touch. There is one every 15 s.
const FreshHeartbeat = 40 * time.Second

// DeadServers returns the instances of servers that are not in touch, although they have not left.
func (s *Store) DeadServers(ctx context.Context) ([]string, error) {
	dead, err := dbsqlc.New(s.db.Reads()).ServersDead(ctx, db.PGInterval(FreshHeartbeat))
	if err != nil {
		return nil, fmt.Errorf("list dead servers: %w", db.Unavailable(err))
	}
	return dead, nil
}

// ForgetWorkers removes the servers and remote workers that were not in touch for a while.
func (s *Store) ForgetWorkers(ctx context.Context, older time.Duration) error {
	_, err := db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) (int64, error) {
		return dbsqlc.New(tx).WorkersForget(ctx, db.PGInterval(older))
	})
	if err != nil {
		return fmt.Errorf("forget workers: %w", db.Unavailable(err))
	}
	return nil
}
