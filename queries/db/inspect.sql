-- InspectBackend says which process of the server the connection has, and as whom.
-- name: InspectBackend :one
SELECT pg_catalog.pg_backend_pid()::int AS pid, current_user::text AS role;
