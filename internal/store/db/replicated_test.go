package db_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// lonely is a store on a primary whose synchronous standbys are all gone: commits wait.
type lonely struct{ *effects }

func newLonely(t *testing.T) *lonely {
	t.Helper()
	short := func(c *store.Config) { c.StatementTimeout = 2 * time.Second }
	f := storetest.OpenOn(t, storetest.NewServer(t, nil), short)
	f.Exec(effectsTable)
	l := &lonely{&effects{Fixture: f}}
	l.LoseStandbys()
	return l
}

// waiting waits until a commit waits for a standby, and returns its process.
func (l *lonely) waiting() (pid int32) {
	l.T.Helper()
	for pid == 0 {
		pid = l.WaitingForStandby()
	}
	return pid
}

// visible reports whether others see the row.
func (l *lonely) visible(name string) bool {
	l.T.Helper()
	return storetest.Value[bool](l.Fixture, "SELECT EXISTS (SELECT FROM public.effects WHERE name = $1)", name)
}

// A caller that stops waiting does not make PostgreSQL give up the wait: others would see a transaction that a failover
// loses.
func TestCommitsAreNotCanceled(t *testing.T) {
	t.Parallel()
	l := newLonely(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- inTransaction(ctx, l.DB, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO public.effects (name) VALUES ('a')")
			return err
		})
	}()
	l.waiting()
	cancel()
	if err := <-done; err == nil {
		t.Error("a commit that no standby has is acknowledged")
	}
	if l.visible("a") {
		t.Error("others see a commit that no standby has")
	}
	l.wantNone("COMMIT that no standby has")
}

// PostgreSQL answers a commit whose wait was canceled with success, and a warning.
func TestCanceledWaitsAreNotAcknowledged(t *testing.T) {
	t.Parallel()
	for what, run := range map[string]func(context.Context, *db.DB, func(*db.Tx) error) error{
		"transaction": inTransaction, "statement that commits itself": autocommit,
	} {
		for kind, insert := range map[string]func(ctx context.Context, tx *db.Tx) error{
			"exec": func(ctx context.Context, tx *db.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO public.effects (name) VALUES ('a')")
				return err
			},
			"row": func(ctx context.Context, tx *db.Tx) error {
				var name string
				return tx.QueryRow(ctx, "INSERT INTO public.effects (name) VALUES ('a') RETURNING name").Scan(&name)
			},
			"rows": func(ctx context.Context, tx *db.Tx) error {
				rows, err := tx.Query(ctx, "INSERT INTO public.effects (name) VALUES ('a') RETURNING name")
				if err != nil {
					return err
				}
				defer rows.Close()
				for rows.Next() {
				}
				return rows.Err()
			},
		} {
			t.Run(what+", "+kind, func(t *testing.T) {
				t.Parallel()
				l := newLonely(t)
				done := make(chan error, 1)
				go func() {
					done <- run(t.Context(), l.DB, func(tx *db.Tx) error {
						tx.Wake("key")
						return insert(t.Context(), tx)
					})
				}()
				l.Exec("SELECT pg_cancel_backend($1)", l.waiting())
				err := <-done
				if !db.ConnectionLost(err) {
					t.Errorf("the commit that no standby has returns %v, want an unknown outcome", err)
				}
				if !l.visible("a") {
					t.Error("the transaction is not committed: the test tests nothing")
				}
				l.wantNone("a commit that no standby has")
				if err := l.DB.Confirm(t.Context()); err == nil {
					t.Error("what no standby has is confirmed")
				}
				l.NeedNoStandbys()
				if err := l.DB.Confirm(t.Context()); err != nil {
					t.Errorf("confirm: %v", err)
				}
			})
		}
	}
}

// A repeated write finds what the first try has stored, and is acknowledged only when that is on a standby.
func TestRepeatedWritesAreConfirmed(t *testing.T) {
	t.Parallel()
	l := newLonely(t)
	lost := errors.New("connection lost")
	write := func(try int) (struct{}, error) {
		if try == 1 {
			return struct{}{}, lost
		}
		return struct{}{}, nil // it was stored by the first try
	}
	if _, err := db.Repeat(t.Context(), l.DB, write); err == nil {
		t.Error("a repeated write is acknowledged, and no standby has it")
	}
	l.NeedNoStandbys()
	if _, err := db.Repeat(t.Context(), l.DB, write); err != nil {
		t.Errorf("repeat: %v", err)
	}
}
