package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/store/access/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/db"
)

// SessionIdle is for how long a session may be unused.
const SessionIdle = 30 * time.Minute

// maxSessions bounds a list of sessions.
const maxSessions = 1000

// ErrNoSession says that a browser has no session with a token: it never had one, or the session has ended.
var ErrNoSession = errors.New("no such session")

// Session is a session of a browser: of an API key, or of a person whom the identity provider has signed in.
type Session struct {
	ID            string // names it to operators; no secret. The database makes it
	KeyID         string // empty: it is that of a person
	Tenant, Owner string
	Subject       string   // of a person
	Scopes        []string // of a person; a key has its own
	Recent        bool     // who has it has proved who it is a short time ago
	UseDue        bool     // its last recorded use is more than a minute ago
}

// LiveSession is a session that has not ended, for operators.
type LiveSession struct {
	Session
	CreatedAt, UsedAt, ExpiresAt time.Time // UsedAt is to the minute or so
}

// Actor is how the audit log names who has the session.
func (n *Session) Actor() string {
	if n.KeyID != "" {
		return "key " + n.KeyID
	}
	return "oidc " + n.Subject
}

// NewSession is a session that begins.
type NewSession struct {
	Session
	Token string // of the browser. Only its hash is stored
	Life  time.Duration
	// AuthenticatedAgo is how long ago the person has proved who it is; nil: not known.
	AuthenticatedAgo *time.Duration
	Replaces         string // the token of a session that ends; may be empty
}

// OpenSession stores a session. It also removes sessions that have expired.
func (s *Store) OpenSession(ctx context.Context, n NewSession) error {
	p := dbsqlc.BrowserSessionInsertParams{
		TokenSha256: hashOf(n.Token), KeyID: n.KeyID, Tenant: n.Tenant, Owner: n.Owner, Life: db.PGInterval(n.Life),
	}
	if n.KeyID == "" {
		p.Subject, p.Scopes = &n.Subject, n.Scopes
	}
	if n.AuthenticatedAgo != nil {
		p.AuthenticatedAgo = pgtype.Interval{Microseconds: max(n.AuthenticatedAgo.Microseconds(), 0), Valid: true}
	}
	err := db.DoInTx(ctx, s.db.Work(), func(tx *db.Tx) error {
		q := dbsqlc.New(tx)
		if err := q.BrowserSessionsDrop(ctx); err != nil {
			return err
		}
		if n.Replaces != "" {
			if err := q.BrowserSessionEnd(ctx, hashOf(n.Replaces)); err != nil {
				return err
			}
		}
		if err := q.BrowserSessionInsert(ctx, p); err != nil {
			return err
		}
		return Record(ctx, tx, Action{Actor: n.Actor(), Name: ActionSessionOpen, Tenant: n.Tenant, Owner: n.Owner})
	})
	if err != nil {
		return fmt.Errorf("open session: %w", db.Unavailable(err))
	}
	return nil
}

// FindSession returns the session of a token. Recent says whether its person has proved who it is within that time. It
// returns ErrNoSession if the session has ended, expired, or was not used for SessionIdle. It writes nothing: see
// UseSession.
func (s *Store) FindSession(ctx context.Context, token string, recent time.Duration) (Session, error) {
	var r dbsqlc.BrowserSessionReadRow
	err := s.db.RepeatRead(ctx, func() (err error) {
		r, err = dbsqlc.New(s.db.SignIns()).BrowserSessionRead(ctx, dbsqlc.BrowserSessionReadParams{
			TokenSha256: hashOf(token), Idle: db.PGInterval(SessionIdle), Recent: db.PGInterval(recent),
		})
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Session{}, ErrNoSession
	}
	if err != nil {
		return Session{}, fmt.Errorf("read session: %w", err)
	}
	return Session{
		ID: r.ID, KeyID: r.KeyID, Tenant: r.Tenant, Owner: r.Owner, Subject: r.Subject, Scopes: r.Scopes,
		Recent: r.Recent, UseDue: r.UseDue,
	}, nil
}

// UseSession records that a session was used, at most once a minute.
func (s *Store) UseSession(ctx context.Context, token string) error {
	err := dbsqlc.New(s.db.Work()).BrowserSessionUse(ctx, hashOf(token), db.PGInterval(SessionIdle))
	if err != nil {
		return fmt.Errorf("note the use of a session: %w", db.Unavailable(err))
	}
	return nil
}

// EndSession ends a session on all replicas. It is no error if the session has already ended.
func (s *Store) EndSession(ctx context.Context, token string) error {
	if err := dbsqlc.New(s.db.Work()).BrowserSessionEnd(ctx, hashOf(token)); err != nil {
		return fmt.Errorf("end session: %w", db.Unavailable(err))
	}
	return nil
}

// Sessions lists the sessions that have not ended, the newest first, at most a thousand.
func (s *Store) Sessions(ctx context.Context) ([]LiveSession, error) {
	var rows []dbsqlc.BrowserSessionListRow
	err := s.db.Lookup(ctx, s.db.StatementTimeout(), func(ctx context.Context, tx *db.Tx) (err error) {
		rows, err = dbsqlc.New(tx).BrowserSessionList(ctx, db.PGInterval(SessionIdle), maxSessions)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", db.Unavailable(err))
	}
	list := make([]LiveSession, len(rows))
	for i, r := range rows {
		list[i] = LiveSession{
			Session: Session{
				ID: r.ID, KeyID: r.KeyID, Tenant: r.Tenant, Owner: r.Owner, Subject: r.Subject, Scopes: r.Scopes,
			},
			CreatedAt: r.CreatedAt.Time.UTC(), UsedAt: r.UsedAt.Time.UTC(), ExpiresAt: r.ExpiresAt.Time.UTC(),
		}
	}
	return list, nil
}

// SessionFilter selects the session with an ID, or all sessions of an owner.
type SessionFilter struct{ ID, Tenant, Owner string }

// RevokeSessions ends sessions on all replicas, and returns how many there were.
func (s *Store) RevokeSessions(ctx context.Context, f SessionFilter) (int, error) {
	n, err := db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (int, error) {
		rows, err := dbsqlc.New(tx).BrowserSessionsRevoke(ctx, dbsqlc.BrowserSessionsRevokeParams{
			ID: f.ID, Tenant: f.Tenant, Owner: f.Owner,
		})
		if err != nil {
			return 0, err
		}
		for _, r := range rows {
			detail := map[string]any{"session": r.ID}
			if r.KeyID != "" {
				detail["key"] = r.KeyID
			}
			a := Action{Name: ActionSessionRevoke, Tenant: r.Tenant, Owner: r.Owner, Detail: detail}
			if err := Record(ctx, tx, a); err != nil {
				return 0, err
			}
		}
		return len(rows), nil
	})
	if err != nil {
		return 0, fmt.Errorf("revoke sessions: %w", db.Unavailable(err))
	}
	return n, nil
}

// UseSignIn records that a browser has come back from the identity provider with a state, and reports whether this is
// the first time on any replica. A state is remembered for life.
func (s *Store) UseSignIn(ctx context.Context, state string, life time.Duration) (first bool, err error) {
	n, err := db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (int64, error) {
		q := dbsqlc.New(tx)
		if err := q.BrowserSignInsDrop(ctx); err != nil {
			return 0, err
		}
		return q.BrowserSignInUse(ctx, hashOf(state), db.PGInterval(life))
	})
	if err != nil {
		return false, fmt.Errorf("use sign-in: %w", db.Unavailable(err))
	}
	return n > 0, nil
}

func hashOf(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}
