-- +goose Up

-- The slots of a server for commands, which are fewer than all its slots, and whether tasks wait for one. A server of the
-- version before says nothing about them.
ALTER TABLE a2a.workers
  ADD COLUMN commands integer NOT NULL DEFAULT 0, -- of a server: attempts of commands that may run at once
  ADD COLUMN busy_commands integer NOT NULL DEFAULT 0, -- slots for commands in use
  ADD COLUMN commands_wait interval NOT NULL DEFAULT '0'; -- for how long tasks have waited for a slot for commands

-- +goose Down
ALTER TABLE a2a.workers DROP COLUMN commands, DROP COLUMN busy_commands, DROP COLUMN commands_wait;
