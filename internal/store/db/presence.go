package db

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/a2ad/a2ad/internal/store/db/dbsqlc"
)

// Instance names this start of the process. Two servers of one name have two.
func (s *DB) Instance() string { return s.instance }

// Holder is the name under which this process takes leases: its instance while Watch holds the presence lock, else
// empty. Others may take the leases over as soon as no session of the process holds the lock.
func (s *DB) Holder() string {
	if s.reach.present.Load() {
		return s.instance
	}
	return ""
}

// PresenceLocks returns how often a session of this process has asked for the presence lock. A new number means that
// the sessions of other processes, too, may have ended a moment ago.
func (s *DB) PresenceLocks() int64 { return s.reach.presenceLocks.Load() }

// LockPresence gives conn a share of the presence lock of this process, for as long as conn is open: the lock is free
// when the process has ended. Watch holds it; another session that does keeps the process from being taken for gone
// while Watch connects again.
func (s *DB) LockPresence(ctx context.Context, conn *pgx.Conn) error {
	s.reach.presenceLocks.Add(1) // before others can see that the lock is held
	return dbsqlc.New(conn).PresenceLock(ctx, s.instance)
}

// lockPresence locks if the connection has not yet. If PostgreSQL refuses that, leases name no holder.
func (w *watcher) lockPresence(ctx context.Context) error {
	s := w.store
	if s.reach.present.Load() {
		return nil
	}
	err := s.LockPresence(ctx, w.conn)
	var refused *pgconn.PgError
	switch {
	case err == nil:
		s.reach.present.Store(true)
	case errors.As(err, &refused) && !w.conn.IsClosed():
		s.cfg.Logger.WarnContext(ctx,
			"no presence lock: if this replica is killed, its tasks wait until their leases expire", "err", err)
		return nil
	}
	return err
}
