package tasks_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
)

// What is lost before its commit cannot be there, and is done again: a follow-up and a cancel
// too, which are not safe to repeat behind it.
func TestFollowUpAndCancelThatWereLostBeforeTheirCommit(t *testing.T) {
	t.Parallel()
	for _, ft := range faults {
		t.Run(ft.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			s, p := f.behindProxy(t)
			l := f.running()
			f.append(l, status(a2a.StateInputRequired, "?"))
			ft.fault.match = execute // the first statement of the transaction
			fired := p.arm(ft.fault)
			in := submission("answer")
			in.Task, in.ContextID = l.TaskID, ""
			out, err := s.Tasks.Submit(f.ctx, in)
			wantFired(t, fired)
			if err != nil || out.State != a2a.StateSubmitted {
				t.Errorf("follow-up = %+v, %v", out, err)
			}
			if n := len(f.snapshot(l.TaskID).History); n != 3 {
				t.Errorf("%d messages, want 3", n)
			}
			fired = p.arm(ft.fault)
			state, err := s.Tasks.Cancel(f.ctx, ann, agent, l.TaskID)
			wantFired(t, fired)
			if err != nil || state != a2a.StateCanceled {
				t.Errorf("cancel = %s, %v", state, err)
			}
			f.invariants()
		})
	}
}

// What PostgreSQL refuses for a while is not the request's fault, and not ours: its caller is
// told that it can come again.
func TestDatabaseThatRefusesForAWhileIsUnavailable(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(f *fixture){
		"no connections are allowed": func(f *fixture) {
			cfg, err := pgx.ParseConfig(f.url)
			if err != nil {
				f.t.Fatal(err)
			}
			database := cfg.Database
			cfg.Database = "postgres"
			conn, err := pgx.ConnectConfig(f.ctx, cfg)
			if err != nil {
				f.t.Fatal(err)
			}
			defer conn.Close(f.ctx)
			for _, q := range []string{
				`ALTER DATABASE "` + database + `" ALLOW_CONNECTIONS false`,
				`SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a WHERE a.datname = '` + database + `' AND a.application_name LIKE 'a2ad-r1-%'`,
			} {
				if _, err := conn.Exec(f.ctx, q); err != nil {
					f.t.Fatal(err)
				}
			}
		},
		"it takes no writes": func(f *fixture) {
			f.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`)
			f.exec(`SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a WHERE a.datname = current_database() AND a.application_name LIKE 'a2ad-r1-%'`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			refuse(f)
			if _, err := f.Tasks.Submit(f.ctx, submission("hello")); a2a.CodeOf(err) != a2a.CodeUnavailable {
				t.Errorf("submit: %v", err)
			}
		})
	}
}
