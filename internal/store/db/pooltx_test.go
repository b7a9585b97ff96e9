package db_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// firsts are the ways to run the first statement of a transaction, with which BEGIN is sent.
var firsts = map[string]func(ctx context.Context, tx *db.Tx, sql string) error{
	"exec": func(ctx context.Context, tx *db.Tx, sql string) error {
		_, err := tx.Exec(ctx, sql)
		return err
	},
	"query": func(ctx context.Context, tx *db.Tx, sql string) error {
		rows, err := tx.Query(ctx, sql)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
		}
		return rows.Err()
	},
	"query of a row": func(ctx context.Context, tx *db.Tx, sql string) error {
		var name string
		return tx.QueryRow(ctx, sql).Scan(&name)
	},
}

// The first statement and the ones after it are one transaction.
func TestFirstStatementIsInTheTransaction(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for what, first := range firsts {
		f := storetest.Open(t)
		f.Exec(effectsTable)
		for _, end := range []error{refused, nil} {
			err := inTransaction(t.Context(), f.DB, func(tx *db.Tx) error {
				for n := range 3 {
					insert := fmt.Sprintf("INSERT INTO public.effects (name) VALUES ('%d') RETURNING name", n)
					if err := first(t.Context(), tx, insert); err != nil {
						return err
					}
				}
				return end
			})
			if !errors.Is(err, end) {
				t.Errorf("%s: error %v, want %v", what, err, end)
			}
			want := map[bool]int{true: 3, false: 0}[end == nil]
			if got := storetest.Value[int](f, "SELECT count(*) FROM public.effects"); got != want {
				t.Errorf("%s, after %v: %d rows, want %d", what, end, got, want)
			}
		}
	}
}

// Its error is that of the statement, and the connection can be used again.
func TestFirstStatementIsRefused(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.Exec(effectsTable)
	for what, first := range firsts {
		before := storetest.Value[int](f, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
		for _, bad := range []string{"SELECT name FROM public.nothing", "SELECT (1 / (random() * 0)::int)::text"} {
			for range 20 {
				err := inTransaction(t.Context(), f.DB, func(tx *db.Tx) error { return first(t.Context(), tx, bad) })
				if !db.IsCode(err, "42P01", "22012") {
					t.Fatalf("%s: %s: error %v", what, bad, err)
				}
			}
		}
		if err := inTransaction(t.Context(), f.DB, func(tx *db.Tx) error {
			return first(t.Context(), tx, "SELECT 'x'")
		}); err != nil {
			t.Errorf("%s, after errors: %v", what, err)
		}
		after := storetest.Value[int](f, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
		if after > before+1 {
			t.Errorf("%s: %d connections, %d before: refused statements cost connections", what, after, before)
		}
	}
}

func TestTransactionWithoutAStatement(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	if err := inTransaction(t.Context(), f.DB, func(*db.Tx) error { return nil }); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := errors.New("ended")
	err := inTransaction(ctx, f.DB, func(*db.Tx) error { cancel(ended); return nil })
	if !errors.Is(err, ended) {
		t.Errorf("after the end of its context: %v, want %v", err, ended)
	}
}
