package admin

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/store/access"
)

// KeyQuery selects API keys.
type KeyQuery struct {
	Tenant string `json:"tenant,omitempty" doc:"Only keys of this tenant."`
}

// KeyList is API keys, the oldest first.
type KeyList struct {
	Keys []Key `json:"keys"`
}

// Key is an API key without its secret. Its JSON does not change silently.
type Key struct {
	ID         string     `json:"id"`
	Tenant     string     `json:"tenant"`
	Owner      string     `json:"owner"`
	Name       string     `json:"name,omitempty"`
	Scopes     []string   `json:"scopes"`
	Agents     []string   `json:"agents,omitempty" doc:"The only agents that it may use; missing: all."`
	CreatedAt  time.Time  `json:"createdAt"`
	LastUsedAt *time.Time `json:"lastUsedAt,omitempty"`
	ExpiresAt  *time.Time `json:"expiresAt,omitempty"`
	RevokedAt  *time.Time `json:"revokedAt,omitempty"`
}

func newKey(k *access.Key) Key {
	return Key{
		ID: k.ID, Tenant: k.Tenant, Owner: k.Owner, Name: k.Name, Scopes: k.Scopes, Agents: k.Agents,
		CreatedAt: k.CreatedAt, LastUsedAt: orNil(k.UsedAt),
		ExpiresAt: orNil(k.ExpiresAt), RevokedAt: orNil(k.RevokedAt),
	}
}

// NewKey is the body that makes an API key.
type NewKey struct {
	Why
	Tenant      string   `json:"tenant" doc:"The organization that the key belongs to: 1 to 200 bytes."`
	Owner       string   `json:"owner" doc:"The user or program that signs in with it: 1 to 200 bytes."`
	Scopes      []string `json:"scopes" doc:"What it allows. The caller must have the scopes of operators itself."`
	Agents      []string `json:"agents,omitempty" doc:"The only agents that it may use; all unless given."`
	Name        string   `json:"name,omitempty" doc:"A note that helps to find the key again: at most 200 bytes."`
	ExpiresInMs int64    `json:"expiresInMs,omitempty" doc:"How long it is valid; forever unless given."`
	Env         string   `json:"env,omitempty" doc:"A word in the key: live unless given."`
}

// CreatedKey is a new key, at the only moment when its secret is known.
type CreatedKey struct {
	ID        string     `json:"id"`
	Key       string     `json:"key" doc:"The secret. It is not stored, and no other request shows it."`
	Tenant    string     `json:"tenant"`
	Owner     string     `json:"owner"`
	Name      string     `json:"name,omitempty"`
	Scopes    []string   `json:"scopes"`
	Agents    []string   `json:"agents,omitempty" doc:"The only agents that it may use; missing: all."`
	CreatedAt time.Time  `json:"createdAt"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
}

var errNoKey = refusal{http.StatusNotFound, reasonNotFound, access.ErrNoKey.Error()}

// maxKeyText bounds the tenant, the owner and the name of a key, in bytes.
const maxKeyText = 200

// maxKeyLife bounds the life of a key: a century, which the database can add to any time.
const maxKeyLife = 100 * 365 * 24 * time.Hour

// listKeys serves GET /keys.
func (a *API) listKeys(ctx context.Context, r *request) (any, error) {
	if err := r.mustBeForAllAgents("API keys are"); err != nil {
		return nil, err
	}
	q := r.query.(*KeyQuery) //nolint:forcetypeassert // the route says so
	found, err := a.store.Access.Keys(ctx)
	if err != nil {
		return nil, err
	}
	list := KeyList{Keys: []Key{}}
	for i := range found {
		if q.Tenant == "" || found[i].Tenant == q.Tenant {
			list.Keys = append(list.Keys, newKey(&found[i]))
		}
	}
	return list, nil
}

// check returns an error that names the member that is wrong.
func (k *NewKey) check() error {
	for _, f := range []struct {
		name, text string
		least      int
	}{{"tenant", k.Tenant, 1}, {"owner", k.Owner, 1}, {"name", k.Name, 0}} {
		if len(f.text) < f.least || len(f.text) > maxKeyText {
			return a2a.InvalidParams(f.name, "must have %d to %d bytes", f.least, maxKeyText)
		}
	}
	if len(k.Scopes) == 0 {
		return a2a.InvalidParams("scopes", "must name a scope")
	}
	for _, s := range k.Scopes {
		if !auth.Scope(s).Valid() {
			return a2a.InvalidParams("scopes", "%q is no scope", clip(s))
		}
	}
	if k.Agents != nil && len(k.Agents) == 0 {
		return a2a.InvalidParams("agents", "must name an agent")
	}
	for _, name := range k.Agents {
		if !agents.ValidName(name) {
			return a2a.InvalidParams("agents", "%q cannot be the name of an agent", clip(name))
		}
	}
	if k.ExpiresInMs < 0 || k.ExpiresInMs > maxKeyLife.Milliseconds() {
		return a2a.InvalidParams("expiresInMs", "must be from 0 to %d", maxKeyLife.Milliseconds())
	}
	if k.Env != "" && !auth.ValidEnv(k.Env) {
		return a2a.InvalidParams("env", "must have 1 to 16 lower-case letters and digits")
	}
	return checkReason(k.Reason)
}

// createKey serves POST /keys.
func (a *API) createKey(ctx context.Context, r *request) (any, error) {
	if err := r.mustBeForAllAgents("API keys are"); err != nil {
		return nil, err
	}
	b := r.body.(*NewKey) //nolint:forcetypeassert // the route says so
	if err := b.check(); err != nil {
		return nil, err
	}
	slices.Sort(b.Scopes)
	slices.Sort(b.Agents)
	stored := access.Key{
		Tenant: b.Tenant, Owner: b.Owner, Name: b.Name, Scopes: slices.Compact(b.Scopes),
		Agents: slices.Compact(b.Agents),
	}
	env := b.Env
	if env == "" {
		env = "live"
	}
	key, err := auth.NewKey(env, nil)
	if err != nil {
		return nil, err
	}
	stored.ID = key.ID()
	made, err := a.store.Access.CreateKey(ctx, stored, key.SecretHash(), time.Duration(b.ExpiresInMs)*time.Millisecond)
	if err != nil {
		return nil, err
	}
	return CreatedKey{
		ID: made.ID, Key: key.Reveal(), Tenant: made.Tenant, Owner: made.Owner, Name: made.Name, Scopes: made.Scopes,
		Agents: made.Agents, CreatedAt: made.CreatedAt, ExpiresAt: orNil(made.ExpiresAt),
	}, nil
}

// revokeKey serves POST /keys/{key}/revoke.
func (a *API) revokeKey(ctx context.Context, r *request) (any, error) {
	if err := r.mustBeForAllAgents("API keys are"); err != nil {
		return nil, err
	}
	if err := checkReason(r.body.(*Why).Reason); err != nil { //nolint:forcetypeassert // the route says so
		return nil, err
	}
	id := r.PathValue("key")
	if err := a.store.Access.RevokeKey(ctx, id); errors.Is(err, access.ErrNoKey) {
		return nil, errNoKey
	} else if err != nil {
		return nil, err
	}
	keys, err := a.store.Access.Keys(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(keys, func(k access.Key) bool { return k.ID == id })
	if i < 0 {
		return nil, errNoKey
	}
	return newKey(&keys[i]), nil
}
