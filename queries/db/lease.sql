-- ChoreLock takes the lock of one maintenance job for the rest of the transaction, if it is free.
-- name: ChoreLock :one
SELECT pg_try_advisory_xact_lock(sqlc.arg(class)::int, sqlc.arg(chore)::int);

-- Now reads the database's clock, which alone decides about age.
-- name: Now :one
SELECT clock_timestamp()::timestamptz AS now;
