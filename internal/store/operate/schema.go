package operate

import (
	"context"
	"fmt"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate/dbsqlc"
)

// CheckSchema reports whether this binary can work on the database: the schema is at least the one that the binary
// needs, and it still serves binaries as old as this one. Its errors are ErrUnusable.
func (s *Store) CheckSchema(ctx context.Context) error {
	if err := s.checkSchema(ctx); err != nil {
		return db.MarkUnusable(err)
	}
	return nil
}

func (s *Store) checkSchema(ctx context.Context) error {
	have, err := dbsqlc.New(s.db.Work()).SchemaVersion(ctx)
	if db.IsCode(err, "42501") { // the schema is older than the roles
		err = s.db.AsLogin(ctx, func(tx *db.Tx) (err error) {
			have, err = dbsqlc.New(tx).SchemaVersion(ctx)
			return err
		})
	}
	if db.IsCode(err, "42P01") {
		have, err = 0, nil
	}
	if err != nil {
		return fmt.Errorf("read schema version: %w", db.Unavailable(err))
	}
	mine := SchemaVersion()
	if have < mine {
		return fmt.Errorf("the schema is at version %d and must be at %d: run a2ad migrate up", have, mine)
	}
	floor, err := dbsqlc.New(s.db.Work()).SchemaFloor(ctx)
	if err != nil {
		return fmt.Errorf("read schema floor: %w", db.Unavailable(err))
	}
	if mine < floor {
		return fmt.Errorf("the schema is at version %d, which serves a2ad from schema version %d on, "+
			"and this one is of version %d: upgrade a2ad", have, floor, mine)
	}
	return nil
}

// ReadSchemaVersion reads the version of the schema.
func ReadSchemaVersion(ctx context.Context, conn db.Conn) (int64, error) {
	return dbsqlc.New(conn).SchemaVersion(ctx)
}

// ReadSchemaFloor reads the oldest schema whose servers still work.
func ReadSchemaFloor(ctx context.Context, conn db.Conn) (int64, error) {
	return dbsqlc.New(conn).SchemaFloor(ctx)
}
