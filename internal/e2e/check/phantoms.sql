-- Tasks that clients, agents and receivers of webhooks know, and the database does not.
SELECT DISTINCT a.id, 'a client was answered with it'
FROM unnest($1::text[]) AS a (id)
WHERE NOT EXISTS (SELECT FROM audit.task t WHERE t.id::text = a.id)
UNION ALL
SELECT DISTINCT e.id, format('an agent ran it under claim %s', e.token)
FROM unnest($2::text[], $3::bigint[]) AS e (id, token)
WHERE NOT EXISTS (
  SELECT FROM audit.attempt a
  JOIN audit.task t ON t.id = a.task_id
  WHERE a.task_id::text = e.id AND a.token = e.token
)
UNION ALL
SELECT DISTINCT d.id, 'a webhook told of it'
FROM unnest($4::text[]) AS d (id)
WHERE NOT EXISTS (SELECT FROM audit.task t WHERE t.id::text = d.id);
