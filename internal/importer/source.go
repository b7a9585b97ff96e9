package importer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
)

// MaxTask is how large a task of a source may be, in bytes of JSON. A larger one is not read into memory.
const MaxTask = 64 << 20

// Record is a task as a source has it.
type Record struct {
	Name   string // for messages, such as "line 3"
	Doc    []byte // a Task in JSON, of either generation
	Tenant string // empty: the source has none
	Owner  string
	Fault  error // the record cannot be read, and Doc is nil
	Older  bool  // the source has a newer version of the task, which came before

	id    string   // of the task, if the source has it beside Doc
	hooks []Hook   // those that came with the record
	left  []string // members beside the task that mean nothing
}

// Hook is a webhook as a source has it.
type Hook struct {
	ID   string
	Data []byte // a push notification config in JSON
}

// Source is where tasks come from.
type Source interface {
	// Records yields the tasks, each once. An error ends it.
	Records(ctx context.Context) iter.Seq2[Record, error]
	// Hooks returns the webhooks of a task that Records has yielded.
	Hooks(ctx context.Context, r *Record) ([]Hook, error)
	Close()
}

// Tables names the tables of a database. Empty names are those that the SDKs choose.
type Tables struct{ Tasks, Webhooks string }

var errNoSource = errors.New("must be sqlite:FILE, postgres://…, or the name of a file that ends in .jsonl")

// Open opens a source by its name: sqlite:FILE, postgres://…, or a .jsonl file. It accepts the URLs of SQLAlchemy,
// such as sqlite+aiosqlite:///tasks.db and postgresql+asyncpg://…, without parameters for a driver of Python.
func Open(ctx context.Context, name string, tables Tables) (Source, error) {
	if strings.HasSuffix(name, ".jsonl") && !strings.Contains(name, "://") {
		return openLines(name)
	}
	scheme, rest, ok := strings.Cut(name, ":")
	switch {
	case !ok && strings.ContainsAny(name, "=@"): // it may be a connection string, with a password
		return nil, fmt.Errorf("the source %w", errNoSource)
	case !ok:
		return nil, fmt.Errorf("%q %w", name, errNoSource)
	}
	scheme, _, _ = strings.Cut(scheme, "+") // the driver of SQLAlchemy
	switch scheme {
	case "sqlite":
		path := sqlitePath(rest)
		if path == "" || path == "//" {
			return nil, errNoSource
		}
		return openSQLite(ctx, path, tables)
	case "postgres", "postgresql":
		return openPostgres(ctx, scheme+":"+rest, tables)
	}
	return nil, fmt.Errorf("the source %w", errNoSource) // it may have a password anywhere
}

// sqlitePath reads what follows "sqlite:". SQLAlchemy puts three slashes before the path.
func sqlitePath(rest string) string {
	if path, ok := strings.CutPrefix(rest, "///"); ok {
		return path
	}
	return rest
}
