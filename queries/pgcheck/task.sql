-- LoginIsSuperuser reports whether the connection logged in as somebody whom no policy holds,
-- whatever role it has taken on since.
-- name: LoginIsSuperuser :one
SELECT session_user::text AS login, (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = session_user)::boolean AS super;
