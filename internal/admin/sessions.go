package admin

import (
	"context"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
)

// SessionQuery selects sessions.
type SessionQuery struct {
	Tenant string `json:"tenant,omitempty" doc:"Only sessions of this tenant."`
	Owner  string `json:"owner,omitempty" doc:"Only sessions of this owner."`
}

// SessionList is sessions, the newest first.
type SessionList struct {
	Sessions []Session `json:"sessions"`
}

// Session is a browser that is signed in to the console. Its JSON does not change silently.
type Session struct {
	ID        string    `json:"id"`
	Actor     string    `json:"actor" doc:"How the audit log names who has it."`
	Tenant    string    `json:"tenant"`
	Owner     string    `json:"owner"`
	Scopes    []string  `json:"scopes"`
	CreatedAt time.Time `json:"createdAt"`
	UsedAt    time.Time `json:"usedAt" doc:"To the minute."`
	ExpiresAt time.Time `json:"expiresAt" doc:"It ends earlier if it is not used for 30 minutes."`
}

// RevokeSessions is the body that ends sessions.
type RevokeSessions struct {
	Why
	ID     string `json:"id,omitempty" doc:"The session. Give it, or a tenant and an owner."`
	Tenant string `json:"tenant,omitempty" doc:"The tenant of the owner."`
	Owner  string `json:"owner,omitempty" doc:"The owner whose sessions all end."`
}

// RevokedSessions says how many sessions have ended.
type RevokedSessions struct {
	Sessions int `json:"sessions"`
}

// listSessions serves GET /sessions.
func (a *API) listSessions(ctx context.Context, r *request) (any, error) {
	if err := r.mustBeForAllAgents("sessions are"); err != nil {
		return nil, err
	}
	q := r.query.(*SessionQuery) //nolint:forcetypeassert // the route says so
	found, err := a.store.Access.Sessions(ctx)
	if err != nil {
		return nil, err
	}
	list := SessionList{Sessions: []Session{}}
	for i := range found {
		s := &found[i]
		if (q.Tenant == "" || s.Tenant == q.Tenant) && (q.Owner == "" || s.Owner == q.Owner) {
			list.Sessions = append(list.Sessions, Session{
				ID: s.ID, Actor: s.Actor(), Tenant: s.Tenant, Owner: s.Owner, Scopes: s.Scopes, CreatedAt: s.CreatedAt,
				UsedAt: s.UsedAt, ExpiresAt: s.ExpiresAt,
			})
		}
	}
	return list, nil
}

// revokeSessions serves POST /sessions/revoke.
func (a *API) revokeSessions(ctx context.Context, r *request) (any, error) {
	if err := r.mustBeForAllAgents("sessions are"); err != nil {
		return nil, err
	}
	b := r.body.(*RevokeSessions) //nolint:forcetypeassert // the route says so
	if err := checkReason(b.Reason); err != nil {
		return nil, err
	}
	if (b.ID == "") == (b.Tenant == "" && b.Owner == "") || b.ID == "" && (b.Tenant == "" || b.Owner == "") {
		return nil, a2a.InvalidParams("id", "give the id of a session, or a tenant and an owner")
	}
	n, err := a.store.Access.RevokeSessions(ctx, access.SessionFilter{ID: b.ID, Tenant: b.Tenant, Owner: b.Owner})
	return RevokedSessions{n}, err
}
