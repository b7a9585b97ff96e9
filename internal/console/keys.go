package console

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// keysView is the page of API keys, and of the sessions that have not ended.
type keysView struct {
	Keys      []keyRow
	Sessions  []access.LiveSession
	MayChange bool
}

// keyRow is an API key; its secret is not stored.
type keyRow struct {
	access.Key
	State string // in force, expired or revoked
}

func (c *Console) showKeys(q *request) error {
	list, err := c.cfg.Store.Access.Keys(q.Context())
	if err != nil {
		return err
	}
	v := &keysView{MayChange: q.MayWrite()}
	for _, k := range list {
		row := keyRow{k, "in force"}
		switch {
		case !k.RevokedAt.IsZero():
			row.State = "revoked"
		case !k.ExpiresAt.IsZero() && time.Now().After(k.ExpiresAt):
			row.State = "expired"
		}
		v.Keys = append(v.Keys, row)
	}
	if v.Sessions, err = c.cfg.Store.Access.Sessions(q.Context()); err != nil {
		return err
	}
	return c.render(q, "keys", "API keys", v)
}

// confirmed adds the page that asks to confirm an action of operators, and the action itself. Both need a recent
// sign-in, and if the action is not about one task, the scope for all tenants. The page fills its form from its query,
// with what the viewer had written before signing in again.
func (c *Console) confirmed(path string, ofAll bool, ask, do func(*request) error) {
	may := func(h func(*request) error) func(*request) error {
		return func(q *request) error {
			switch {
			case !q.MayWrite():
				return errForbidden
			case ofAll && !q.Operator():
				return lacks(auth.ScopeOperatorRead)
			}
			return c.recently(h)(q)
		}
	}
	c.mux.HandleFunc("GET "+Prefix+path, c.page(may(ask)))
	c.mux.HandleFunc("POST "+Prefix+path, c.page(changes(may(func(q *request) error {
		if err := q.needsReason(); err != nil {
			return err
		}
		return do(q)
	}))))
}

func (c *Console) confirmations() {
	c.confirmed("/keys/new", true, c.askNewKey, c.createKey)
	c.confirmed("/keys/revoke", true, c.askRevokeKey, c.revokeKey)
	c.confirmed("/sessions/end", true, c.askEndSession, c.endSession)
	c.confirmed("/tasks/{id}/purge", false, c.askPurge, c.purgeTask)
}

// confirmation is the page that asks to confirm an action.
type confirmation struct {
	Action, Back string // paths
	ID           string // of what it is about, if the path does not name it
	What, Text   string
	Button       string
	Reason       string
}

func (c *Console) confirm(q *request, title string, v confirmation) error {
	v.Action, v.Reason = q.r.URL.Path, q.r.URL.Query().Get("reason")
	return c.render(q, "confirm", title, v)
}

func (c *Console) askRevokeKey(q *request) error {
	id := q.r.URL.Query().Get("id")
	list, err := c.cfg.Store.Access.Keys(q.Context())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(k access.Key) bool { return k.ID == id })
	if i < 0 {
		return errNotFound
	}
	return c.confirm(q, "Revoke an API key", confirmation{
		Back: Prefix + "/keys", ID: id, What: id + " of " + list[i].Tenant + "/" + list[i].Owner,
		Button: "Revoke the key",
		Text:   "Requests and sessions with the key are refused from then on, for good.",
	})
}

func (c *Console) revokeKey(q *request) error {
	err := c.cfg.Store.Access.RevokeKey(q.acting(), q.r.PostForm.Get("id"))
	if errors.Is(err, access.ErrNoKey) {
		return errNotFound
	}
	if err != nil {
		return err
	}
	return q.backTo("/keys")
}

func (c *Console) askEndSession(q *request) error {
	id := q.r.URL.Query().Get("id")
	list, err := c.cfg.Store.Access.Sessions(q.Context())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(s access.LiveSession) bool { return s.ID == id })
	if i < 0 {
		return errNotFound
	}
	return c.confirm(q, "End a session", confirmation{
		Back: Prefix + "/keys", ID: id, What: list[i].Actor() + " of " + list[i].Tenant + "/" + list[i].Owner,
		Button: "End the session",
		Text:   "The browser must sign in again. To keep a person out, withdraw its rights or revoke its key first.",
	})
}

func (c *Console) endSession(q *request) error {
	id := q.r.PostForm.Get("id")
	if id == "" {
		return errNotFound
	}
	if _, err := c.cfg.Store.Access.RevokeSessions(q.acting(), access.SessionFilter{ID: id}); err != nil {
		return err
	}
	return q.backTo("/keys")
}

func (c *Console) askPurge(q *request) error {
	t, err := c.find(q)
	if err != nil {
		return err
	}
	return c.confirm(q, "Purge a task", confirmation{
		Back: Prefix + "/tasks/" + t.ID.String(), What: t.ID.String() + " of " + t.Tenant + "/" + t.Owner,
		Button: "Remove it for good",
		Text: "The task, its messages, artifacts, events and webhooks are removed from the database. Nothing brings " +
			"them back. If it has not ended, it is canceled first.",
	})
}

func (c *Console) purgeTask(q *request) error {
	t, err := c.find(q)
	if err != nil {
		return err
	}
	n, err := c.cfg.Store.Tasks.Purge(q.acting(), tasks.PurgeFilter{Task: t.ID})
	if err != nil {
		return err
	}
	if n == 0 {
		return errNotFound // it was removed meanwhile
	}
	return q.backTo("/tasks")
}

// newKeyView is the form of a new key, and then the key.
type newKeyView struct {
	Form   url.Values
	Scopes []choice
	Lives  []choice
	Key    string // the secret, once; empty: there is no key yet
	ID     string
}

// Text returns a value of the form.
func (v *newKeyView) Text(name string) string { return v.Form.Get(name) }

// keyLives are how long a new key may be valid; 0 is for ever.
var keyLives = []struct {
	name string
	life time.Duration
}{{"30 days", 30 * 24 * time.Hour}, {"1 day", 24 * time.Hour}, {"1 year", 365 * 24 * time.Hour}, {"forever", 0}}

func (c *Console) askNewKey(q *request) error {
	v := &newKeyView{Form: q.r.URL.Query()}
	for _, s := range auth.Scopes() {
		v.Scopes = append(v.Scopes, choice{Value: string(s), On: slices.Contains(v.Form["scope"], string(s))})
	}
	for _, l := range keyLives {
		v.Lives = append(v.Lives, choice{Value: l.name, On: v.Text("life") == l.name})
	}
	return c.render(q, "newkey", "Create an API key", v)
}

// createKey makes a key and shows it, which no other page does.
func (c *Console) createKey(q *request) error {
	k, life, err := q.newKey()
	if err != nil {
		return err
	}
	made, err := auth.NewKey("live", nil)
	if err != nil {
		return err
	}
	k.ID = made.ID()
	if _, err := c.cfg.Store.Access.CreateKey(q.acting(), k, made.SecretHash(), life); err != nil {
		return err
	}
	return c.render(q, "newkey", "New API key", &newKeyView{Key: made.Reveal(), ID: k.ID})
}

// newKey reads the form of a new key. Who is here has both scopes of operators, and so may give any scope to a key.
func (q *request) newKey() (k access.Key, life time.Duration, err error) {
	form := q.r.PostForm
	k = access.Key{
		Tenant: strings.TrimSpace(form.Get("tenant")), Owner: strings.TrimSpace(form.Get("owner")),
		Name: strings.TrimSpace(form.Get("name")),
	}
	i := slices.IndexFunc(keyLives, func(l struct {
		name string
		life time.Duration
	}) bool {
		return l.name == form.Get("life")
	})
	switch {
	case !auth.ValidName(k.Tenant) || !auth.ValidName(k.Owner) || k.Name != "" && !auth.ValidName(k.Name):
		return k, 0, invalid("A tenant and an owner are needed. Each text has at most 200 bytes.")
	case len(form["scope"]) == 0:
		return k, 0, invalid("Choose what the key permits: at least one scope.")
	case i < 0:
		return k, 0, invalid("Choose how long the key is valid.")
	}
	for _, name := range form["scope"] {
		if !auth.Scope(name).Valid() {
			return k, 0, invalid("There is no scope %q.", name)
		}
		k.Scopes = append(k.Scopes, name)
	}
	slices.Sort(k.Scopes)
	k.Scopes = slices.Compact(k.Scopes)
	return k, keyLives[i].life, nil
}
