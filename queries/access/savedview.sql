-- SavedViewInsert names a filter of tasks. No row means that the name is in use, or that there are too many views. Two
-- inserts at once may exceed the limit by one, which harms nothing.
-- name: SavedViewInsert :one
INSERT INTO a2a.saved_views (name, query, saved_by)
SELECT sqlc.arg(name)::text, sqlc.arg(query)::text, sqlc.arg(saved_by)::text
WHERE (SELECT count(*) FROM a2a.saved_views) < sqlc.arg(most)::bigint
ON CONFLICT (name) DO NOTHING
RETURNING saved_at;

-- SavedViewRemove removes a view. No row means that there is none with this name.
-- name: SavedViewRemove :one
DELETE FROM a2a.saved_views v
WHERE v.name = sqlc.arg(name)::text
RETURNING v.query;

-- SavedViews lists the views. There are few.
-- name: SavedViews :many
SELECT v.name, v.query, v.saved_by, v.saved_at
FROM a2a.saved_views v
ORDER BY v.name
LIMIT 1000;
