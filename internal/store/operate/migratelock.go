package operate

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate/dbsqlc"
	"github.com/a2ad/a2ad/migrations"
)

// A statement that waits for a lock on a table blocks all statements that come after it, readers too. So a step waits
// for a short time, fails and is repeated; between the tries servers continue. An autovacuum releases its lock only
// after deadlock_timeout, which is one second, so a longer wait is needed then. An index that is built or dropped
// CONCURRENTLY blocks no other statement, and waits without a limit.
const (
	stepLockWait   = 500 * time.Millisecond
	vacuumLockWait = 2 * time.Second
	holdersEvery   = 100 * time.Millisecond
	noticeEvery    = 10 * time.Second
)

var stepPause = backoff.Policy{Base: time.Second, Max: 5 * time.Second}

var (
	concurrently = regexp.MustCompile(`(?im)^\s*(CREATE\s+(UNIQUE\s+)?|DROP\s+)INDEX\s+CONCURRENTLY\b`)
	builtIndexes = regexp.MustCompile(
		`(?im)^\s*CREATE\s+(?:UNIQUE\s+)?INDEX\s+CONCURRENTLY\s+(?:IF\s+NOT\s+EXISTS\s+)?(\w+)`)
)

// migrator is one process's attempt to change the schema.
type migrator struct {
	cfg    *pgx.ConnConfig
	notice func(string) // told now and then what a step waits for

	mu       sync.Mutex
	pids     []int32      // guarded by mu; of its connections
	holders  []lockHolder // guarded by mu; which sessions a statement was last seen waiting for
	noticed  time.Time    // guarded by mu
	lockWait time.Duration
}

type lockHolder dbsqlc.LockHoldersRow

func (h *lockHolder) String() string {
	who := fmt.Sprintf("process %d", h.Pid)
	switch {
	case h.Pid == 0:
		return "a prepared transaction"
	case h.Application != "":
		who += " (" + h.Application + ")"
	case h.Kind != "" && h.Kind != "client backend":
		who += " (" + h.Kind + ")"
	}
	if h.Seconds > 0 {
		who += fmt.Sprintf(", whose transaction is %s old", (time.Duration(h.Seconds) * time.Second).String())
	}
	return who
}

// open returns the migrator's connections in the form that goose needs. They have no statement timeout: building an
// index or filling a column may take long.
func (m *migrator) open() *sql.DB {
	connected := stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		m.mu.Lock()
		m.pids = append(m.pids, int32(conn.PgConn().PID()))
		m.mu.Unlock()
		return dbsqlc.New(conn).SessionSet(ctx, []string{"statement_timeout"}, []string{"0"})
	})
	return sql.OpenDB(migrateConnector{stdlib.GetConnector(*m.cfg, connected), m})
}

// migrateConnector opens connections whose statements wait for locks as described above.
type migrateConnector struct {
	driver.Connector
	m *migrator
}

func (c migrateConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &migrateConn{conn.(*stdlib.Conn), c.m}, nil //nolint:forcetypeassert // it is what stdlib makes
}

type migrateConn struct {
	*stdlib.Conn
	m *migrator
}

// ExecContext runs a statement of a step.
func (c *migrateConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.m.mu.Lock()
	wait := fmt.Sprintf("%dms", c.m.lockWait.Milliseconds())
	c.m.mu.Unlock()
	if concurrently.MatchString(query) {
		wait = "0"
	}
	// Each time, because a failed transaction reverts the setting.
	if err := dbsqlc.New(c.Conn.Conn()).SessionSet(ctx, []string{"lock_timeout"}, []string{wait}); err != nil {
		return nil, err
	}
	return c.Conn.ExecContext(ctx, query, args)
}

// repeat runs a step until it does not fail because of a lock, or until ctx is done.
func (m *migrator) repeat(ctx context.Context, step func() error) error {
	m.setLockWait(false)
	for try := 0; ; try++ {
		err := m.watched(ctx, step)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && db.IsCode(err, "55P03") {
			m.setLockWait(true)
			if pause(ctx, backoff.Jitter(stepPause.Ceiling(try), nil)) {
				continue
			}
		}
		if who := m.lastHolders(); who != "" && (ctx.Err() != nil || db.IsCode(err, "55P03")) {
			err = errors.Join(context.Cause(ctx), err)
			return fmt.Errorf("a step waited for a lock that is held by %s: %w", who, err)
		}
		return err
	}
}

// setLockWait says how long the next statements wait for a lock.
func (m *migrator) setLockWait(failed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lockWait = stepLockWait
	for i := range m.holders {
		if failed && strings.HasPrefix(m.holders[i].Kind, "autovacuum") {
			m.lockWait = vacuumLockWait
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// watched runs a step, and polls meanwhile which sessions it waits for.
func (m *migrator) watched(ctx context.Context, step func() error) error {
	watch, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { m.watch(watch) })
	defer watching.Wait()
	defer stop()
	return step()
}

// watch polls which sessions the step waits for. If that fails, nothing is reported.
func (m *migrator) watch(ctx context.Context) {
	if !pause(ctx, holdersEvery) {
		return // most steps take no time
	}
	conn, err := pgx.ConnectConfig(ctx, m.cfg)
	if err != nil {
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for {
		m.mu.Lock()
		pids := append([]int32(nil), m.pids...)
		m.mu.Unlock()
		rows, err := dbsqlc.New(conn).LockHolders(ctx, pids)
		if err != nil {
			return
		}
		m.saw(rows)
		if !pause(ctx, holdersEvery) {
			return
		}
	}
}

// saw records the sessions, and reports them now and then.
func (m *migrator) saw(rows []dbsqlc.LockHoldersRow) {
	if len(rows) == 0 {
		return
	}
	m.mu.Lock()
	m.holders = nil
	for _, r := range rows {
		m.holders = append(m.holders, lockHolder(r))
	}
	tell := m.notice != nil && time.Since(m.noticed) >= noticeEvery
	if tell {
		m.noticed = time.Now()
	}
	m.mu.Unlock()
	if tell {
		m.notice("a migration waits for a lock that is held by " + m.lastHolders() + "; servers go on meanwhile")
	}
}

func (m *migrator) lastHolders() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var who []string
	for i := range m.holders {
		who = append(who, m.holders[i].String())
	}
	return strings.Join(who, " and ")
}

// dropInvalid drops indexes that an interrupted try has left unusable, because a repeated step would find that their
// names exist. The session holds the lock for migrations, so no other process is building them.
func dropInvalid(ctx context.Context, conn *pgx.Conn) error {
	q := dbsqlc.New(conn)
	invalid, err := q.IndexesInvalid(ctx, indexesBuilt())
	if err != nil || len(invalid) == 0 {
		return err
	}
	if err := q.SessionSet(ctx, []string{"lock_timeout"}, []string{"0"}); err != nil {
		return err
	}
	for _, index := range invalid {
		name := pgx.Identifier{"a2a", index}.Sanitize()
		if _, err := conn.Exec(ctx, "DROP INDEX CONCURRENTLY IF EXISTS "+name); err != nil {
			return fmt.Errorf("drop the unusable index %s: %w", index, err)
		}
	}
	return nil
}

// indexesBuilt names the indexes that migrations build CONCURRENTLY.
func indexesBuilt() (names []string) {
	files, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		return nil // the pattern is good
	}
	for _, file := range files {
		text, err := fs.ReadFile(migrations.FS, file)
		if err != nil {
			continue // it is embedded
		}
		for _, m := range builtIndexes.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	return names
}
