-- Notify sends wakes to the other replicas. It is never part of a transaction that writes:
-- NOTIFY holds a database-wide lock across the commit.
-- name: Notify :exec
SELECT pg_notify('a2ad', p.payload) FROM unnest(sqlc.arg(payloads)::text[]) AS p(payload);
