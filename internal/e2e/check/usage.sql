-- Usage that agents reported and a2ad does not have, and the reverse. An agent reports one request before each step. It may
-- report more than is recorded, because an attempt may end between the two.
SELECT r.task, format('agents reported %s requests, %s are recorded, and %s steps', r.requests, u.requests, s.steps)
FROM unnest($1::text[], $2::bigint[]) AS r (task, requests)
CROSS JOIN LATERAL (
  SELECT coalesce(sum(x.requests), 0) AS requests FROM audit.usage x WHERE x.task_id = r.task::uuid
) u
CROSS JOIN LATERAL (
  SELECT count(*) AS steps FROM audit.step x WHERE x.task_id = r.task::uuid AND x.kind = 'step'
) s
WHERE u.requests < s.steps OR u.requests > r.requests;
