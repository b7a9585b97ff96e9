-- SessionSet gives a connection its settings, in their order, for as long as it lives. "role" may be one of them.
-- name: SessionSet :exec
SELECT pg_catalog.set_config(s.name, s.value, false)
FROM (SELECT unnest(sqlc.arg(names)::text[]) AS name, unnest(sqlc.arg(vals)::text[]) AS value) s;
