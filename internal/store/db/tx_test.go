package db_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// effects records which effects of a transaction ran, and whether others saw its row by then.
type effects struct {
	*storetest.Fixture
	ran []string
}

const effectsTable = `
	CREATE TABLE public.effects (name text NOT NULL UNIQUE DEFERRABLE INITIALLY DEFERRED);
	GRANT ALL ON public.effects TO public`

func newEffects(t *testing.T) *effects {
	f := storetest.Open(t)
	f.Exec(effectsTable)
	return &effects{Fixture: f}
}

// register inserts a row in the transaction and registers two effects and two wakes for it.
func (e *effects) register(tx *db.Tx, name string) error {
	tx.Wake("key", name, "key")
	tx.After(func() {
		stored := storetest.Value[bool](e.Fixture, "SELECT EXISTS (SELECT FROM public.effects WHERE name = $1)", name)
		e.ran = append(e.ran, name+" stored: "+map[bool]string{true: "yes", false: "no"}[stored])
	})
	tx.After(func() { e.ran = append(e.ran, name+" again") })
	_, err := tx.Exec(e.T.Context(), "INSERT INTO public.effects (name) VALUES ($1)", name)
	return err
}

func (e *effects) wantNone(what string) {
	e.T.Helper()
	if wakes := e.TakeWakes(); len(e.ran)+len(wakes) > 0 {
		e.T.Errorf("%s: effects %q ran, and %q were woken", what, e.ran, wakes)
	}
}

func TestEffectsRunInOrderAfterTheCommit(t *testing.T) {
	t.Parallel()
	for what, run := range map[string]func(context.Context, *db.DB, func(*db.Tx) error) error{
		"transaction": inTransaction, "statement that commits itself": autocommit,
	} {
		e := newEffects(t)
		if err := run(t.Context(), e.DB, func(tx *db.Tx) error { return e.register(tx, "a") }); err != nil {
			t.Fatal(err)
		}
		if want := []string{"a stored: yes", "a again"}; !slices.Equal(e.ran, want) {
			t.Errorf("%s: effects %q ran, want %q", what, e.ran, want)
		}
		storetest.Same(t, what+": wakes", []string{"a", "key"}, e.TakeWakes())
	}
}

func TestEffectsOfARolledBackTransactionNeverRun(t *testing.T) {
	t.Parallel()
	e := newEffects(t)
	refused := errors.New("refused")
	err := inTransaction(t.Context(), e.DB, func(tx *db.Tx) error { return errors.Join(e.register(tx, "a"), refused) })
	if !errors.Is(err, refused) {
		t.Errorf("error = %v, want %v", err, refused)
	}
	e.wantNone("rolled back by its function")

	err = autocommit(t.Context(), e.DB, func(tx *db.Tx) error { return errors.Join(e.register(tx, "b"), refused) })
	if !errors.Is(err, refused) {
		t.Errorf("error = %v, want %v", err, refused)
	}
	e.wantNone("a statement whose function failed")
}

// The constraint is deferred: COMMIT itself returns the error.
func TestEffectsOfARefusedCommitNeverRun(t *testing.T) {
	t.Parallel()
	e := newEffects(t)
	e.Exec("INSERT INTO public.effects (name) VALUES ('a')")
	err := inTransaction(t.Context(), e.DB, func(tx *db.Tx) error { return e.register(tx, "a") })
	if err == nil {
		t.Error("the commit was not refused")
	}
	e.wantNone("refused by COMMIT")
}

func TestEffectsOfALostCommitNeverRun(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		e := newEffects(t)
		p, url := storetest.NewProxy(t, e.URL)
		s := e.Replica("r2", func(c *store.Config) { c.URL = url })
		fired := p.Arm(storetest.Fault{Match: storetest.IsCommit, Answered: answered})
		err := inTransaction(t.Context(), s.DB, func(tx *db.Tx) error { return e.register(tx, "a") })
		if err == nil {
			t.Error("the commit was not lost")
		}
		storetest.WantFired(t, fired)
		e.wantNone("COMMIT without an answer")
	}
}

// inTransaction runs do in a transaction.
func inTransaction(ctx context.Context, d *db.DB, do func(tx *db.Tx) error) error {
	return db.DoInTx(ctx, d.Work(), do)
}

// autocommit runs do with statements that commit themselves.
func autocommit(ctx context.Context, d *db.DB, do func(tx *db.Tx) error) error {
	_, err := db.Autocommit(ctx, d.Work(), func(tx *db.Tx) (struct{}, error) { return struct{}{}, do(tx) })
	return err
}
