-- +goose Up

-- Why the newest request to a destination failed, for the operator; null when it did not, or when a server of the version
-- before recorded it.
ALTER TABLE a2a.push_destinations ADD COLUMN last_error text;

-- +goose Down
ALTER TABLE a2a.push_destinations DROP COLUMN last_error;
