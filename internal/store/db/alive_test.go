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

// localTransactions returns how many transactions the server has begun for a connection, including its own.
func localTransactions(t *testing.T, conn *pgx.Conn) int {
	t.Helper()
	var id string // backend/number
	const query = "SELECT virtualtransaction FROM pg_locks WHERE pid = pg_backend_pid() LIMIT 1"
	if err := conn.QueryRow(t.Context(), query).Scan(&id); err != nil {
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
		t.Errorf("10 calls of Alive were %d transactions, want none", n)
	}
	if err := conn.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := localTransactions(t, conn) - before - 2; n != 1 {
		t.Errorf("a ping was %d transactions, want 1: the count is wrong", n)
	}
}

func TestAliveFailsAfterTheServerEndedTheConnection(t *testing.T) {
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
		t.Errorf("Alive = %v, closed %v, want an error and a closed connection", err, conn.IsClosed())
	}
}
