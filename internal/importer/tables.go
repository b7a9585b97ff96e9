package importer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/a2ad/a2ad/internal/rawjson"
)

// tables are the tables of an SDK's store. The statements are the same for SQLite and PostgreSQL.
//
// Python's DatabaseTaskStore has the columns id, context_id, status, artifacts, history and metadata; since 1.0 also
// owner. The one of JavaScript has these and tenant. The columns are JSON, or text with JSON in it.
type tables struct {
	db      *sql.DB
	names   Tables
	columns []string // of the tasks
	hooks   []string // of the webhooks; none: there is no such table
}

func openSQLite(ctx context.Context, path string, names Tables) (Source, error) {
	// The driver creates a file that does not exist, unless it is told not to, and then names no file in its error.
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	at := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: "mode=ro"}
	conns, err := sql.Open("sqlite", at.String())
	if err != nil {
		return nil, err
	}
	return openTables(ctx, conns, names)
}

// errPostgresURL is all that is said about a URL that cannot be read. The driver's error may quote the password, and so
// may the name of a host: of a password with an @ that is not encoded, the driver takes the end for the host.
var errPostgresURL = errors.New("the URL of PostgreSQL cannot be read: " +
	"write postgres://USER:PASSWORD@HOST:PORT/DATABASE, encode special characters (@ is %40), and check the parameters")

func openPostgres(ctx context.Context, dsn string, names Tables) (Source, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil || !strings.Contains(dsn, "://") {
		return nil, errPostgresURL
	}
	hosts := cfg.Host
	for _, f := range cfg.Fallbacks {
		hosts += f.Host
	}
	if strings.Contains(hosts, "@") {
		return nil, errPostgresURL
	}
	return openTables(ctx, stdlib.OpenDB(*cfg), names)
}

func openTables(ctx context.Context, conns *sql.DB, names Tables) (Source, error) {
	if names.Tasks == "" {
		names.Tasks = "tasks"
	}
	if names.Webhooks == "" {
		names.Webhooks = "push_notification_configs"
	}
	t := &tables{db: conns, names: names}
	if err := t.describe(ctx); err != nil {
		conns.Close()
		return nil, err
	}
	return t, nil
}

func (t *tables) Close() { t.db.Close() }

// describe finds out which columns there are.
func (t *tables) describe(ctx context.Context) (err error) {
	if err := t.db.PingContext(ctx); err != nil {
		return err
	}
	if t.columns, err = t.columnsOf(ctx, t.names.Tasks); err != nil {
		return fmt.Errorf("read table %q: %w", t.names.Tasks, err)
	}
	for _, name := range []string{"id", "context_id", "status", "artifacts", "history", "metadata"} {
		if !slices.Contains(t.columns, name) {
			return fmt.Errorf("table %q has no column %q: it is not a task store of an SDK", t.names.Tasks, name)
		}
	}
	// Many servers have no webhooks, and then no such table.
	t.hooks, _ = t.columnsOf(ctx, t.names.Webhooks)
	return nil
}

func (t *tables) columnsOf(ctx context.Context, table string) ([]string, error) {
	query := "SELECT * FROM " + quoted(table) + " WHERE 1 = 0" //nolint:gosec // the operator's table, quoted
	rows, err := t.db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	return columns, errors.Join(err, rows.Err())
}

// quoted writes a name, which may have a schema before it.
func quoted(name string) string {
	parts := strings.Split(name, ".")
	for i, p := range parts {
		parts[i] = `"` + strings.ReplaceAll(p, `"`, `""`) + `"`
	}
	return strings.Join(parts, ".")
}

// column is the text of a column, or of no value if the table does not have it.
func (t *tables) column(name string) string {
	if !slices.Contains(t.columns, name) {
		return "NULL"
	}
	return "CAST(" + quoted(name) + " AS TEXT)"
}

func (t *tables) Records(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		rows, err := t.db.QueryContext(ctx, t.statement())
		if err != nil {
			yield(Record{}, err)
			return
		}
		defer rows.Close()
		for rows.Next() {
			var row taskRow
			if err := rows.Scan(&row.id, &row.context, &row.tenant, &row.owner, &row.size, &row.status, &row.artifacts,
				&row.history, &row.metadata); err != nil {
				yield(Record{}, err)
				return
			}
			if !yield(row.record(), nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(Record{}, err)
		}
	}
}

// statement reads the tasks. Of one that is too large it reads the size alone, so that it takes no memory here.
func (t *tables) statement() string {
	content := []string{"status", "artifacts", "history", "metadata"}
	var sizes, values []string
	for _, name := range content {
		sizes = append(sizes, "coalesce(length("+t.column(name)+"), 0)")
	}
	size := strings.Join(sizes, " + ")
	for _, name := range content {
		values = append(values, fmt.Sprintf("CASE WHEN %s <= %d THEN %s END", size, MaxTask/4, t.column(name)))
	}
	// In the order of ids, so that an import that is repeated does the same again.
	return fmt.Sprintf("SELECT %s, %s, %s, %s, %s, %s FROM %s ORDER BY %s", t.column("id"), t.column("context_id"),
		t.column("tenant"), t.column("owner"), size, strings.Join(values, ", "), quoted(t.names.Tasks), quoted("id"))
}

type taskRow struct {
	id, context, tenant, owner           sql.NullString
	size                                 int64 // in characters, of at most four bytes
	status, artifacts, history, metadata []byte
}

// record writes the columns as a Task. The columns are JSON, which the reader of tasks checks.
func (r *taskRow) record() Record {
	out := Record{Name: "task " + r.id.String, id: r.id.String, Tenant: r.tenant.String, Owner: r.owner.String}
	if r.size > MaxTask/4 {
		out.Fault = fmt.Errorf("has %d characters, more than %d", r.size, MaxTask/4)
		return out
	}
	doc := rawjson.AppendString([]byte(`{"id":`), strings.ToValidUTF8(r.id.String, "�"))
	if r.context.String != "" {
		doc = rawjson.AppendString(append(doc, `,"contextId":`...), strings.ToValidUTF8(r.context.String, "�"))
	}
	for _, m := range []struct {
		name  string
		value []byte
	}{{"status", r.status}, {"artifacts", r.artifacts}, {"history", r.history}, {"metadata", r.metadata}} {
		if len(m.value) > 0 {
			doc = append(append(append(append(doc, `,"`...), m.name...), `":`...), m.value...)
		}
	}
	out.Doc = append(doc, '}')
	return out
}

// Hooks reads the webhooks of a task. The store of JavaScript has them by owner.
func (t *tables) Hooks(ctx context.Context, r *Record) (list []Hook, err error) {
	if len(t.hooks) == 0 {
		return nil, nil
	}
	query := fmt.Sprintf("SELECT config_id, config_data FROM %s WHERE task_id = $1", quoted(t.names.Webhooks))
	args := []any{r.id}
	if slices.Contains(t.hooks, "tenant") {
		query += " AND tenant = $2 AND owner = $3"
		args = append(args, r.Tenant, r.Owner)
	}
	rows, err := t.db.QueryContext(ctx, query+" ORDER BY config_id", args...)
	if err != nil {
		return nil, fmt.Errorf("read the webhooks: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var h Hook
		if err := rows.Scan(&h.ID, &h.Data); err != nil {
			return nil, fmt.Errorf("read the webhooks: %w", err)
		}
		list = append(list, h)
	}
	return list, rows.Err()
}
