-- LoginIsSuperuser reports whether the login of the connection is a superuser, to whom no row policy applies, whatever
-- role it has set since.
-- name: LoginIsSuperuser :one
SELECT session_user::text AS login,
  (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = session_user)::boolean AS super;
