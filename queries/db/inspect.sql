-- InspectBackend reads which process of the server the connection has, and in which role.
-- name: InspectBackend :one
SELECT pg_catalog.pg_backend_pid()::int AS pid, current_user::text AS role;
