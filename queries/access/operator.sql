-- SealedWith counts the encrypted secrets by the id of their key, with one secret of each key to try. It is for the
-- operator.
-- name: SealedWith :many
SELECT x.key_id::text AS key_id, count(*) AS secrets, ((array_agg(x.place))[1])::text AS place,
  ((array_agg(x.name))[1])::text AS name, ((array_agg(x.sealed))[1])::bytea AS sealed
FROM (
  -- A secret begins with a byte for its format, a byte with the length of the key's id, and that id: package seal.
  SELECT convert_from(substring(p.token FROM 3 FOR get_byte(p.token, 1)), 'SQL_ASCII') AS key_id,
    'token' AS place, p.id::text AS name, p.token AS sealed
  FROM a2a.push_configs p
  WHERE length(p.token) > 2 AND p.deleted_at IS NULL
  UNION ALL
  SELECT convert_from(substring(p.credentials FROM 3 FOR get_byte(p.credentials, 1)), 'SQL_ASCII'),
    'credentials', p.id::text, p.credentials
  FROM a2a.push_configs p
  WHERE length(p.credentials) > 2 AND p.deleted_at IS NULL
  UNION ALL
  SELECT convert_from(substring(p.query FROM 3 FOR get_byte(p.query, 1)), 'SQL_ASCII'),
    'query', p.id::text, p.query
  FROM a2a.push_configs p
  WHERE length(p.query) > 2 AND p.deleted_at IS NULL
  UNION ALL
  SELECT convert_from(substring(k.key FROM 3 FOR get_byte(k.key, 1)), 'SQL_ASCII'),
    'signing', k.name, k.key
  FROM a2a.server_keys k
  WHERE k.name LIKE 'signing/%' AND length(k.key) > 2
) x
GROUP BY x.key_id
ORDER BY x.key_id;
