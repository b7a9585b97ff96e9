-- Notify sends wake-ups to the other replicas. It is never part of a transaction that writes, because NOTIFY holds a
-- lock of the whole database across the commit.
-- name: Notify :exec
SELECT pg_notify('a2ad', p.payload)
FROM unnest(sqlc.arg(payloads)::text[]) AS p(payload);
