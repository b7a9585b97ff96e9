-- APIKeyInsert stores a new API key with the hash of its secret. The secret itself is never stored.
-- name: APIKeyInsert :one
INSERT INTO a2a.api_keys (id, secret_sha256, tenant, owner, name, scopes, agents, expires_at)
VALUES (sqlc.arg(id), sqlc.arg(secret_sha256), sqlc.arg(tenant), sqlc.arg(owner), sqlc.arg(name),
  sqlc.arg(scopes)::text[], sqlc.narg(agents)::text[], clock_timestamp() + sqlc.narg(life)::interval)
RETURNING created_at, expires_at;

-- APIKeyByID reads a key for the sign-in of its holder, also one that is revoked or expired. left_ms says for how long
-- it is valid; 0 is no limit.
-- name: APIKeyByID :one
SELECT k.secret_sha256, k.tenant, k.owner, k.scopes, k.agents, k.revoked_at,
  coalesce(k.expires_at <= clock_timestamp(), false)::boolean AS expired,
  coalesce(ceil(extract(epoch FROM k.expires_at - clock_timestamp()) * 1000), 0)::bigint AS left_ms
FROM a2a.api_keys k
WHERE k.id = sqlc.arg(id);

-- APIKeyList reads all keys for the operator.
-- name: APIKeyList :many
SELECT k.id, k.tenant, k.owner, k.name, k.scopes, k.agents, k.created_at, k.expires_at, k.revoked_at, k.last_used_at
FROM a2a.api_keys k
ORDER BY k.created_at, k.id;

-- APIKeyUsed records that a key was used, at most once a minute.
-- name: APIKeyUsed :exec
UPDATE a2a.api_keys
SET last_used_at = clock_timestamp()
WHERE id = sqlc.arg(id) AND (last_used_at IS NULL OR last_used_at < clock_timestamp() - interval '1 minute');

-- APIKeyRevoke revokes a key, and says whether it was revoked before. No row means that there is no such key.
-- name: APIKeyRevoke :one
UPDATE a2a.api_keys k
SET revoked_at = coalesce(k.revoked_at, clock_timestamp())
FROM (
  SELECT b.id, b.revoked_at
  FROM a2a.api_keys b
  WHERE b.id = sqlc.arg(id)
  FOR UPDATE
) b
WHERE k.id = ANY (ARRAY[b.id])
RETURNING k.tenant, k.owner, (b.revoked_at IS NOT NULL)::boolean AS before;

-- ServerKeyMake stores a key under a name unless another replica was first.
-- name: ServerKeyMake :exec
INSERT INTO a2a.server_keys (name, key)
VALUES (sqlc.arg(name), sqlc.arg(key))
ON CONFLICT DO NOTHING;

-- ServerKey reads the key that all replicas share.
-- name: ServerKey :one
SELECT k.key
FROM a2a.server_keys k
WHERE k.name = sqlc.arg(name);

-- ServerKeys reads the keys whose names begin with prefix, oldest first.
-- name: ServerKeys :many
SELECT k.name, k.key, k.created_at, clock_timestamp()::timestamptz AS now
FROM a2a.server_keys k
WHERE k.name LIKE sqlc.arg(prefix)::text || '%'
ORDER BY k.created_at, k.name;

-- ServerKeyDrop removes a key that no replica needs any more.
-- name: ServerKeyDrop :exec
DELETE FROM a2a.server_keys
WHERE name = sqlc.arg(name);

-- ServerKeyReseal stores a key encrypted with another key, unless it changed meanwhile.
-- name: ServerKeyReseal :exec
UPDATE a2a.server_keys
SET key = sqlc.arg(new_key)
WHERE name = sqlc.arg(name) AND key = sqlc.arg(old_key);
