-- The system columns that queries use. PostgreSQL gives them to every table; only sqlc must be told, and it alone reads this.
ALTER TABLE a2a.task_ready ADD COLUMN ctid tid NOT NULL;
