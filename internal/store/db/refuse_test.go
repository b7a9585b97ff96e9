package db_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// If PostgreSQL refuses for a while, the caller gets an error that says to try again.
func TestDatabaseThatRefusesForAWhileIsUnavailable(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(f *storetest.Fixture){
		"no connections are allowed": func(f *storetest.Fixture) {
			cfg, err := pgx.ParseConfig(f.URL)
			if err != nil {
				f.T.Fatal(err)
			}
			database := cfg.Database
			cfg.Database = "postgres"
			conn, err := pgx.ConnectConfig(t.Context(), cfg)
			if err != nil {
				f.T.Fatal(err)
			}
			defer conn.Close(t.Context())
			for _, q := range []string{
				`ALTER DATABASE "` + database + `" ALLOW_CONNECTIONS false`,
				`SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
				WHERE a.datname = '` + database + `' AND a.application_name LIKE 'a2ad-r1-%'`,
			} {
				if _, err := conn.Exec(t.Context(), q); err != nil {
					f.T.Fatal(err)
				}
			}
		},
		"it takes no writes": func(f *storetest.Fixture) {
			f.Exec(`DO $$ BEGIN
				EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database());
			END $$`)
			f.Exec(`SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
				WHERE a.datname = current_database() AND a.application_name LIKE 'a2ad-r1-%'`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			refuse(f)
			_, err := f.Tasks.Submit(t.Context(), storetest.Submission("hello"))
			storetest.WantCode(t, err, a2a.CodeUnavailable)
		})
	}
}
