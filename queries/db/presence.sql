-- PresenceLock gives the session a share of the lock on the name of a process, until the session ends. It waits only for
-- others that just ask whether the lock is free. The keepalives end the session soon after its host is gone.
-- name: PresenceLock :exec
SELECT set_config('tcp_keepalives_idle', '5', false), set_config('tcp_keepalives_interval', '2', false),
  set_config('tcp_keepalives_count', '3', false), set_config('lock_timeout', '1s', false),
  pg_advisory_lock_shared(hashtextextended(sqlc.arg(instance)::text, 0));
