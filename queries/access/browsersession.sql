-- BrowserSessionInsert stores a new session of a browser. The token itself is never stored.
-- name: BrowserSessionInsert :exec
INSERT INTO a2a.browser_sessions (
  token_sha256, key_id, tenant, owner, subject, scopes, expires_at, authenticated_at)
VALUES (sqlc.arg(token_sha256), sqlc.arg(key_id), sqlc.arg(tenant), sqlc.arg(owner), sqlc.narg(subject),
  sqlc.narg(scopes)::text[], clock_timestamp() + sqlc.arg(life)::interval,
  clock_timestamp() - sqlc.narg(authenticated_ago)::interval);

-- BrowserSessionRead reads a session that has not ended. Its use is due to be recorded once a minute.
-- name: BrowserSessionRead :one
SELECT s.id, s.key_id, s.tenant, s.owner, coalesce(s.subject, '')::text AS subject, s.scopes,
  coalesce(s.authenticated_at > clock_timestamp() - sqlc.arg(recent)::interval, false)::boolean AS recent,
  (s.used_at < clock_timestamp() - interval '1 minute')::boolean AS use_due
FROM a2a.browser_sessions s
WHERE s.token_sha256 = sqlc.arg(token_sha256)
  AND s.expires_at > clock_timestamp()
  AND s.used_at > clock_timestamp() - sqlc.arg(idle)::interval;

-- BrowserSessionUse records the use of a session that has not ended, at most once a minute.
-- name: BrowserSessionUse :exec
UPDATE a2a.browser_sessions
SET used_at = clock_timestamp()
WHERE token_sha256 = sqlc.arg(token_sha256)
  AND expires_at > clock_timestamp()
  AND used_at > clock_timestamp() - sqlc.arg(idle)::interval
  AND used_at < clock_timestamp() - interval '1 minute';

-- BrowserSessionEnd ends a session.
-- name: BrowserSessionEnd :exec
DELETE FROM a2a.browser_sessions
WHERE token_sha256 = sqlc.arg(token_sha256);

-- BrowserSessionsDrop removes sessions that have expired. The time is read once, so that it bounds the scan of the index.
-- name: BrowserSessionsDrop :exec
DELETE FROM a2a.browser_sessions
WHERE expires_at < (SELECT clock_timestamp());

-- BrowserSignInUse records that a browser has come back from the identity provider. No row: it has done so before.
-- name: BrowserSignInUse :execrows
INSERT INTO a2a.browser_signins (state_sha256, expires_at)
VALUES (sqlc.arg(state_sha256), clock_timestamp() + sqlc.arg(life)::interval)
ON CONFLICT DO NOTHING;

-- BrowserSignInsDrop forgets sign-ins that are too old to be finished.
-- name: BrowserSignInsDrop :exec
DELETE FROM a2a.browser_signins
WHERE expires_at < (SELECT clock_timestamp());

-- BrowserSessionList reads the sessions that have not ended, the newest first, for the operator.
-- name: BrowserSessionList :many
SELECT s.id, s.key_id, coalesce(nullif(s.tenant, ''), k.tenant, '')::text AS tenant,
  coalesce(nullif(s.owner, ''), k.owner, '')::text AS owner, coalesce(s.subject, '')::text AS subject,
  coalesce(s.scopes, k.scopes, '{}')::text[] AS scopes, s.created_at, s.used_at, s.expires_at
FROM a2a.browser_sessions s
LEFT JOIN a2a.api_keys k ON k.id = ANY (ARRAY[s.key_id])
WHERE s.expires_at > clock_timestamp()
  AND s.used_at > clock_timestamp() - sqlc.arg(idle)::interval
ORDER BY s.created_at DESC, s.id
LIMIT sqlc.arg(max)::int;

-- BrowserSessionsRevoke ends the session with an id, or all sessions of an owner, for the operator.
-- name: BrowserSessionsRevoke :many
DELETE FROM a2a.browser_sessions s
WHERE s.id = sqlc.arg(id) OR sqlc.arg(id) = '' AND s.tenant = sqlc.arg(tenant) AND s.owner = sqlc.arg(owner)
RETURNING s.id, s.key_id, s.tenant, s.owner;
