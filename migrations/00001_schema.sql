-- +goose Up
CREATE SCHEMA a2a;
CREATE SCHEMA audit;

-- +goose Down
DROP SCHEMA audit;
DROP SCHEMA a2a;
