package db_test

import (
	"testing"

	"github.com/a2ad/a2ad/internal/store/storetest"
)

func TestPresenceIsLockedAgain(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	if name := f.DB.Holder(); name != "" {
		t.Errorf("without Watch, leases are taken in the name of %s", name)
	}
	watch(t, f.Store)
	locked := func(times int64) func() bool {
		return func() bool { return f.DB.PresenceLocks() >= times && f.DB.Holder() == f.DB.Instance() }
	}
	waitUntil(t, "lock", locked(1))
	terminate := func() {
		f.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'a2ad-r1-watch' " +
			"AND datname = current_database()")
	}
	terminate()
	waitUntil(t, "lock again", locked(2))

	// While another session asks whether the server is gone, Watch waits, and tries again.
	asks := make(chan func())
	go func() { asks <- f.Lock("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f.DB.Instance()) }()
	f.WaitBlocked(1)
	terminate()
	release := <-asks
	waitUntil(t, "lose the session", func() bool { return f.DB.Holder() == "" })
	release()
	waitUntil(t, "lock after the question", locked(3))
}
