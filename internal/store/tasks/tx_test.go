package tasks_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
)

// effects notes which effects of a transaction ran, and whether its row was visible to others by then.
type effects struct {
	*fixture
	ran []string
}

const effectsTable = "CREATE TABLE public.effects (name text NOT NULL UNIQUE DEFERRABLE INITIALLY DEFERRED); GRANT ALL ON public.effects TO public"

func newEffects(t *testing.T) *effects {
	f := newFixture(t)
	f.exec(effectsTable)
	return &effects{fixture: f}
}

// register inserts a row in the transaction and registers two effects and two wakes for it.
func (e *effects) register(tx *db.Tx, name string) error {
	tx.Wake("key", name, "key")
	tx.After(func() {
		stored := value[bool](e.fixture, "SELECT EXISTS (SELECT FROM public.effects WHERE name = $1)", name)
		e.ran = append(e.ran, name+" stored: "+map[bool]string{true: "yes", false: "no"}[stored])
	})
	tx.After(func() { e.ran = append(e.ran, name+" again") })
	_, err := tx.Exec(e.ctx, "INSERT INTO public.effects (name) VALUES ($1)", name)
	return err
}

func (e *effects) wantNone(what string) {
	e.t.Helper()
	if wakes := e.takeWakes(); len(e.ran)+len(wakes) > 0 {
		e.t.Errorf("%s: effects %q ran, and %q were woken", what, e.ran, wakes)
	}
}

func TestEffectsRunInOrderAfterTheCommit(t *testing.T) {
	t.Parallel()
	for what, run := range map[string]func(context.Context, *store.Store, func(*db.Tx) error) error{
		"transaction": inTransaction, "statement that commits itself": byItself,
	} {
		e := newEffects(t)
		if err := run(e.ctx, e.Store, func(tx *db.Tx) error { return e.register(tx, "a") }); err != nil {
			t.Fatal(err)
		}
		if want := []string{"a stored: yes", "a again"}; !slices.Equal(e.ran, want) {
			t.Errorf("%s: effects %q ran, want %q", what, e.ran, want)
		}
		same(t, what+": wakes", []string{"a", "key"}, e.takeWakes())
	}
}

func TestEffectsOfARolledBackTransactionNeverRun(t *testing.T) {
	t.Parallel()
	e := newEffects(t)
	refused := errors.New("refused")
	err := inTransaction(e.ctx, e.Store, func(tx *db.Tx) error { return errors.Join(e.register(tx, "a"), refused) })
	if !errors.Is(err, refused) {
		t.Errorf("error = %v, want %v", err, refused)
	}
	e.wantNone("rolled back by its function")

	err = byItself(e.ctx, e.Store, func(tx *db.Tx) error { return errors.Join(e.register(tx, "b"), refused) })
	if !errors.Is(err, refused) {
		t.Errorf("error = %v, want %v", err, refused)
	}
	e.wantNone("a statement whose function failed")
}

// The constraint is deferred: COMMIT itself returns the error.
func TestEffectsOfARefusedCommitNeverRun(t *testing.T) {
	t.Parallel()
	e := newEffects(t)
	e.exec("INSERT INTO public.effects (name) VALUES ('a')")
	err := inTransaction(e.ctx, e.Store, func(tx *db.Tx) error { return e.register(tx, "a") })
	if err == nil {
		t.Error("the commit was not refused")
	}
	e.wantNone("refused by COMMIT")
}

func TestEffectsOfALostCommitNeverRun(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		e := newEffects(t)
		p, url := newProxy(t, e.url)
		s := e.replica("r2", func(c *store.Config) { c.URL = url })
		fired := p.arm(fault{match: commit, answered: answered})
		err := inTransaction(e.ctx, s, func(tx *db.Tx) error { return e.register(tx, "a") })
		if err == nil {
			t.Error("the commit was not lost")
		}
		wantFired(t, fired)
		e.wantNone("COMMIT without an answer")
	}
}
