-- StatementsMayTake gives the statements of the rest of the transaction so many milliseconds each.
-- name: StatementsMayTake :exec
SELECT set_config('statement_timeout', sqlc.arg(ms)::text, true);
