package main

import (
	"bytes"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// checked runs the checks on the server of the tests, with parameters of the connection or another login.
func checked(t *testing.T, change func(u *url.URL)) (output string, code int) {
	t.Helper()
	u, err := url.Parse(storetest.NewEmpty(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	change(u)
	var out bytes.Buffer
	code = run(t.Context(), u.String(), true, &out)
	return out.String(), code
}

func parameter(name, value string) func(u *url.URL) {
	return func(u *url.URL) {
		q := u.Query()
		q.Set(name, value)
		u.RawQuery = q.Encode()
	}
}

func TestPostgreSQLFits(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	code := run(t.Context(), storetest.NewServer(t, nil).URL("postgres"), true, &b) // durable, unlike that of the tests
	out := b.String()
	if code != 0 || strings.Contains(out, "\nno ") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	for _, c := range checks {
		if !strings.Contains(out, "yes   "+c.name) {
			t.Errorf("no result of the check %q:\n%s", c.name, out)
		}
	}
}

func TestServicesThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(u *url.URL){
		"durability": parameter("synchronous_commit", "off"),
		"isolation":  parameter("default_transaction_isolation", "serializable"),
		"databases":  parameter("role", "pg_monitor"), // which may create nothing
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, code := checked(t, change)
			if code != 1 || !strings.Contains(out, "\nno    "+name+" ") {
				t.Errorf("exit code %d:\n%s", code, out)
			}
		})
	}
}

// Nothing is left on a service, whatever the checks find.
func TestChecksLeaveNoDatabase(t *testing.T) {
	t.Parallel()
	srv := storetest.NewServer(t, map[string]string{"max_connections": "50"})
	var out bytes.Buffer
	if code := run(t.Context(), srv.URL("postgres"), true, &out); code != 1 ||
		!strings.Contains(out.String(), "no    connections  max_connections is 50") {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
	conn, err := pgx.Connect(t.Context(), srv.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var left int
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_database WHERE datname LIKE 'a2ad%'`).
		Scan(&left); err != nil || left != 0 {
		t.Errorf("%d databases are left: %v", left, err)
	}
}
