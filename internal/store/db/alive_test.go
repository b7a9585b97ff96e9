package db_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// localTransactions returns how many transactions the server has begun for a connection, with this one.
func localTransactions(t *testing.T, conn *pgx.Conn) int {
	t.Helper()
	var id string // backend/number
	if err := conn.QueryRow(t.Context(), "SELECT virtualtransaction FROM pg_locks WHERE pid = pg_backend_pid() LIMIT 1").Scan(&id); err != nil {
		t.Fatal(err)
	}
	_, number, _ := strings.Cut(id, "/")
	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAliveIsNoTransaction(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), storetest.New(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	localTransactions(t, conn) // prepares the statement
	before := localTransactions(t, conn)
	for range 10 {
		if err := db.Alive(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
	}
	if n := localTransactions(t, conn) - before - 1; n != 0 {
		t.Errorf("10 proofs of life were %d transactions", n)
	}
	if err := conn.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := localTransactions(t, conn) - before - 2; n != 1 {
		t.Errorf("a ping was %d transactions: the count does not work", n)
	}
}

func TestAliveSaysThatTheServerHasGone(t *testing.T) {
	t.Parallel()
	pg := storetest.New(t)
	conn, err := pgx.Connect(t.Context(), pg.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	other, err := pgx.Connect(t.Context(), pg.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background())
	if _, err := other.Exec(t.Context(), "SELECT pg_terminate_backend($1, 30000)", conn.PgConn().PID()); err != nil {
		t.Fatal(err)
	}
	if err := db.Alive(t.Context(), conn); err == nil || !conn.IsClosed() {
		t.Errorf("Alive of a connection that was terminated: %v, closed %v", err, conn.IsClosed())
	}
}
