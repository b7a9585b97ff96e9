-- ChoreLock locks one maintenance job for the rest of the transaction. It does not wait; false means that another
-- replica has the lock.
-- name: ChoreLock :one
SELECT pg_try_advisory_xact_lock(sqlc.arg(class)::int, sqlc.arg(chore)::int);

-- Now reads the database's clock. No other clock decides about ages.
-- name: Now :one
SELECT clock_timestamp()::timestamptz AS now;
