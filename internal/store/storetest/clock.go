package storetest

import (
	"fmt"
	"strings"
	"time"
)

// TimeColumns returns the columns of schema a2a that store a time, as table.column.
func (f *Fixture) TimeColumns() []string {
	f.T.Helper()
	return f.Column(`SELECT table_name || '.' || column_name FROM information_schema.columns
		WHERE table_schema = 'a2a' AND data_type = 'timestamp with time zone' ORDER BY 1`)
}

// FarCron is the times of a schedule that ticks once a year and, in UTC, next in five or six months. A tick of its own
// never comes between those that a test makes due, whenever the test runs.
func FarCron() string {
	return fmt.Sprintf("0 0 1 %d *", (int(time.Now().UTC().Month())+5)%12+1)
}

// HourlyCron is the times of a schedule that ticks every hour, but not within 29 minutes of now.
func HourlyCron() string {
	return fmt.Sprintf("%d * * * *", time.Now().UTC().Add(30*time.Minute).Minute())
}

// SetClockBack has the effect of setting the database's clock back: it makes every stored time that much later.
func (f *Fixture) SetClockBack(by time.Duration) {
	f.T.Helper()
	sets := make(map[string][]string)
	for _, name := range f.TimeColumns() {
		table, column, _ := strings.Cut(name, ".")
		sets[table] = append(sets[table], fmt.Sprintf("%[1]s = %[1]s + $1::interval", column))
	}
	ctx := f.T.Context()
	tx, err := f.SQL.Begin(ctx)
	if err != nil {
		f.T.Fatalf("begin: %v", err)
	}
	defer tx.Rollback(ctx) //nolint:errcheck // after the commit it does nothing
	const withoutTriggers = "SET LOCAL session_replication_role = replica"
	if _, err := tx.Exec(ctx, withoutTriggers); err != nil {
		f.T.Fatalf("%s: %v", withoutTriggers, err)
	}
	for table, columns := range sets {
		if _, err := tx.Exec(ctx, "UPDATE a2a."+table+" SET "+strings.Join(columns, ", "), by); err != nil {
			f.T.Fatalf("%s: %v", table, err)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		f.T.Fatalf("commit: %v", err)
	}
}
