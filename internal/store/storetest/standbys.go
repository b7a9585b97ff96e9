package storetest

import "context"

// LoseStandbys makes each commit wait for a synchronous standby that does not exist. The server belongs to the test.
func (f *Fixture) LoseStandbys() {
	f.T.Helper()
	f.setStandbys("nobody")
	// The wait begins once another process of the server has read the setting: a commit finds out.
	for {
		ctx, cancel := context.WithCancel(f.T.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = f.SQL.Exec(ctx, "SELECT pg_logical_emit_message(true, 'test', '')") // canceled if it waits
		}()
		waits := f.endedOrWaits(ended)
		cancel()
		<-ended
		for f.WaitingForStandby() != 0 {
			f.T.Log("the commit is being canceled")
		}
		if waits {
			return
		}
	}
}

// endedOrWaits reports whether a commit waits for a standby before ended is closed.
func (f *Fixture) endedOrWaits(ended <-chan struct{}) bool {
	f.T.Helper()
	for f.WaitingForStandby() == 0 {
		select {
		case <-ended:
			return false
		default:
		}
	}
	return true
}

// NeedNoStandbys ends what LoseStandbys began.
func (f *Fixture) NeedNoStandbys() {
	f.T.Helper()
	f.setStandbys("")
}

func (f *Fixture) setStandbys(names string) {
	f.T.Helper()
	f.Exec("ALTER SYSTEM SET synchronous_standby_names = '" + names + "'")
	f.Exec("SELECT pg_reload_conf()")
}

// WaitingForStandby returns a process that waits for a synchronous standby, or 0.
func (f *Fixture) WaitingForStandby() int32 {
	f.T.Helper()
	return Value[int32](f, "SELECT coalesce(min(pid), 0) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
}
