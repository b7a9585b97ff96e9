package importer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite" // the driver "sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/wire/answer"
)

// tables are the tables of an SDK's store. The statements are the same for SQLite and PostgreSQL.
//
// Python's DatabaseTaskStore has the columns id, context_id, status, artifacts, history and metadata; since 1.0 also
// owner. The one of JavaScript has these and tenant. The columns are JSON, or text with JSON in it.
type tables struct {
	db      *sql.DB
	file    string // of SQLite
	names   Tables
	columns []string // of the tasks
	hooks   []string // of the webhooks; none: there is no such table
	// paged says that the tasks are read in the order of their rowid, a page at a time. A statement of SQLite that is
	// not at its end keeps others from writing.
	paged bool
}

func openSQLite(ctx context.Context, path string, names Tables) (Source, error) {
	// The driver creates a file that does not exist, unless it is told not to, and then names no file in its error.
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	at := url.URL{
		Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(),
		RawQuery: "mode=ro&_pragma=busy_timeout(60000)", // the old server may be writing
	}
	conns, err := sql.Open("sqlite", at.String())
	if err != nil {
		return nil, err
	}
	return openTables(ctx, &tables{db: conns, file: path, names: names, paged: true})
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
	return openTables(ctx, &tables{db: stdlib.OpenDB(*cfg), names: names})
}

func openTables(ctx context.Context, t *tables) (Source, error) {
	if err := t.describe(ctx); err != nil {
		t.db.Close()
		return nil, t.explain(err)
	}
	return t, nil
}

// explain names the file in an error of SQLite.
func (t *tables) explain(err error) error {
	if err == nil || t.file == "" {
		return err
	}
	var fault *sqlite.Error
	if errors.As(err, &fault) {
		switch fault.Code() & 0xff {
		case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR:
			return fmt.Errorf("%s: %w: copy it, with its -wal and -journal files, into a directory that you can write "+
				"to, and open it once with sqlite3", t.file, err)
		}
	}
	return fmt.Errorf("%s: %w", t.file, err)
}

func (t *tables) Close() { t.db.Close() }

// describe finds out which columns there are.
func (t *tables) describe(ctx context.Context) (err error) {
	if t.names.Tasks == "" {
		t.names.Tasks = "tasks"
	}
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
	if t.paged {
		query := "SELECT rowid FROM " + quoted(t.names.Tasks) + " WHERE 1 = 0" //nolint:gosec // as in columnsOf
		_, err := t.db.ExecContext(ctx, query)
		t.paged = err == nil // a view has none
	}
	return t.describeHooks(ctx)
}

// describeHooks looks at the table of webhooks. Many servers have no webhooks, and then no such table.
func (t *tables) describeHooks(ctx context.Context) (err error) {
	named := t.names.Webhooks != ""
	if !named {
		t.names.Webhooks = "push_notification_configs"
		if schema, _, ok := strings.Cut(t.names.Tasks, "."); ok {
			t.names.Webhooks = schema + "." + t.names.Webhooks
		}
	}
	t.hooks, err = t.columnsOf(ctx, t.names.Webhooks)
	if err != nil && (named || !noTable(err)) {
		return fmt.Errorf("read table %q: %w", t.names.Webhooks, err)
	}
	return nil
}

// noTable reports whether an error says that there is no such table. SQLite has no code for it.
func noTable(err error) bool {
	return db.IsCode(err, "42P01") || strings.Contains(err.Error(), "no such table")
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

// A page is what is read from SQLite by one statement.
const (
	pageTasks = 100
	pageBytes = 4 << 20
)

func (t *tables) Records(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for after, more := int64(math.MinInt64), true; more; {
			var page []taskRow
			bytes := 0
			err := t.read(ctx, after, func(row *taskRow) bool {
				if !t.paged {
					return yield(row.record(), nil)
				}
				page = append(page, *row)
				bytes += len(row.status) + len(row.artifacts) + len(row.history) + len(row.metadata)
				return len(page) < pageTasks && bytes < pageBytes
			})
			if err != nil {
				yield(Record{}, t.explain(err))
				return
			}
			for i := range page {
				if after = page[i].rowid; !yield(page[i].record(), nil) {
					return
				}
			}
			more = len(page) > 0
		}
	}
}

// read calls each with tasks until it returns false. If the tasks are read in pages, the first one is that after a
// rowid.
func (t *tables) read(ctx context.Context, after int64, each func(*taskRow) bool) error {
	var args []any
	if t.paged {
		args = append(args, after)
	}
	rows, err := t.db.QueryContext(ctx, t.statement(), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var row taskRow
		if err := rows.Scan(&row.rowid, &row.id, &row.context, &row.tenant, &row.owner, &row.size, &row.status,
			&row.artifacts, &row.history, &row.metadata); err != nil {
			return err
		}
		if !each(&row) {
			return nil
		}
	}
	return rows.Err()
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
	// In an order, so that an import that is repeated does the same again.
	rowid, order := "0", " ORDER BY "+quoted("id")
	if t.paged {
		rowid, order = "rowid", " WHERE rowid > $1 ORDER BY rowid"
	}
	return fmt.Sprintf("SELECT %s, %s, %s, %s, %s, %s, %s FROM %s", rowid, t.column("id"), t.column("context_id"),
		t.column("tenant"), t.column("owner"), size, strings.Join(values, ", "), quoted(t.names.Tasks)) + order
}

type taskRow struct {
	rowid                                int64 // 0: not paged
	id, context, tenant, owner           sql.NullString
	size                                 int64 // in characters, of at most four bytes
	status, artifacts, history, metadata []byte
}

// record writes the columns as a Task.
func (r *taskRow) record() Record {
	out := Record{Name: taskName(r.id.String), id: r.id.String, Tenant: r.tenant.String, Owner: r.owner.String}
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
			if err := rawjson.Check(m.value, answer.MaxDepth); err != nil {
				out.Fault = fmt.Errorf("its column %s cannot be read: %w", m.name, err)
				return out
			}
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
		return nil, fmt.Errorf("read the webhooks: %w", t.explain(err))
	}
	defer rows.Close()
	for rows.Next() {
		var id sql.NullString
		var data []byte
		if err := rows.Scan(&id, &data); err != nil {
			return nil, fmt.Errorf("read the webhooks: %w", err)
		}
		list = append(list, Hook{ID: id.String, Data: data})
	}
	return list, t.explain(rows.Err())
}
