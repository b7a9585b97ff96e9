package store

import (
	"context"
	"fmt"

	"github.com/a2ad/a2ad/internal/store/dbsqlc"
)

// SuperuserLogin returns the login of the database URL if it is a superuser's: the roles that
// the server takes on bound what its statements may do, but a login that may do anything may
// also take on any role.
func (s *Store) SuperuserLogin(ctx context.Context) (login string, is bool, err error) {
	r, err := dbsqlc.New(s.work).LoginIsSuperuser(ctx)
	if err != nil {
		return "", false, fmt.Errorf("read login: %w", unavailable(err))
	}
	return r.Login, r.Super, nil
}
