-- What the migration tool keeps, in the part that a query of ours reads. This file is for
-- sqlc alone: the table is made by goose.
CREATE TABLE public.a2a_goose_version (
  id integer PRIMARY KEY,
  version_id bigint NOT NULL,
  is_applied boolean NOT NULL
);
