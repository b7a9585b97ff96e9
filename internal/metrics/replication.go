package metrics

import "github.com/a2ad/a2ad/internal/store/operate"

// replication exposes values of standbys and replication slots, and of the archive.
func (s *sources) replication(read func(r *operate.Replication, show report)) func(show report) {
	return func(show report) {
		if g, ok := s.gauges.get(); ok {
			read(&g.Replication, show)
		}
	}
}

func (s *sources) describeReplication() {
	s.add("gauge", "a2ad_db_standby_lag_bytes",
		"WAL in bytes that a standby has not replayed yet, as far as the login may see it: pg_read_all_stats sees all.",
		[]string{"standby"}, s.replication(func(r *operate.Replication, show report) {
			// Several standbys may have one name. The one that lags most counts.
			most := make(map[string]int64)
			for _, b := range r.Standbys {
				most[b.Name] = max(most[b.Name], b.Bytes)
			}
			for name, bytes := range most {
				show(float64(bytes), name)
			}
		}))
	s.add("gauge", "a2ad_db_sync_standbys_missing",
		"Standbys that commits wait for and that are not there: while there are any, writes hang. "+
			"0 if the login may not see the standbys.",
		nil, s.replication(func(r *operate.Replication, show report) { show(float64(r.SyncMissing())) }))
	s.add("gauge", "a2ad_db_slot_bytes",
		"WAL in bytes that a replication slot keeps on the disk of the primary.",
		[]string{"slot"}, s.replication(func(r *operate.Replication, show report) {
			for _, slot := range r.Slots {
				show(float64(slot.Bytes), slot.Name)
			}
		}))
	s.add("gauge", "a2ad_db_archive_failing",
		"1 if the newest attempt to archive WAL has failed.",
		nil, s.replication(func(r *operate.Replication, show report) { show(flag(r.ArchiveFailing)) }))
}
