-- The table of the migration tool, goose, as far as a query reads it. Only sqlc reads this file: goose creates the
-- table.
CREATE TABLE public.a2a_goose_version (
  id integer PRIMARY KEY,
  version_id bigint NOT NULL,
  is_applied boolean NOT NULL
);
