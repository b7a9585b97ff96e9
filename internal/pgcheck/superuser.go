package pgcheck

import (
	"context"
	"fmt"

	"github.com/a2ad/a2ad/internal/pgcheck/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/db"
)

// SuperuserLogin returns the login of the database URL if it is a superuser. The roles of the server limit what its
// statements may do, but a superuser may set any role.
func SuperuserLogin(ctx context.Context, conn db.Conn) (login string, is bool, err error) {
	r, err := dbsqlc.New(conn).LoginIsSuperuser(ctx)
	if err != nil {
		return "", false, fmt.Errorf("read login: %w", db.Unavailable(err))
	}
	return r.Login, r.Super, nil
}
