-- StatementsMayTake sets the timeout, in milliseconds, of each statement in the rest of the transaction.
-- name: StatementsMayTake :exec
SELECT set_config('statement_timeout', sqlc.arg(ms)::text, true);
