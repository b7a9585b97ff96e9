package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/push"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/term"
)

// KeysCmd is `a2ad keys`.
type KeysCmd struct {
	Rewrap KeysRewrapCmd `cmd:"" group:"commands" help:"Encrypt all stored secrets with the first key of A2AD_KEYS."`
}

// KeysRewrapCmd is `a2ad keys rewrap`.
type KeysRewrapCmd struct {
	Keys     seal.Ring `type:"setting" name:"keys" kong:"-" secret:"yes"`
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*KeysRewrapCmd) Help() string {
	return `To rotate keys, add the new key before the old ones in A2AD_KEYS of all servers, run this with the same ` +
		`A2AD_KEYS, then remove the old keys. It can be repeated, and servers can keep running.`
}

// rewrapped is the result for programs.
type rewrapped struct {
	Sealed int    `json:"sealed"`
	Key    string `json:"key"`
}

var errNoKeys = errors.New("A2AD_KEYS is not set: name the new key first and the old ones after it")

// Run encrypts again.
func (c *KeysRewrapCmd) Run(ctx context.Context, app *App) error {
	if c.Keys.Empty() {
		return &exitError{code: exitUsage, err: errNoKeys}
	}
	return c.withStore(ctx, app, func(s *store.Store) error {
		n, err := rewrap(ctx, s, c.Keys)
		if err != nil {
			return err
		}
		if c.json() {
			return term.JSON(app.Stdout, rewrapped{Sealed: n, Key: c.Keys.IDs()[0]})
		}
		_, err = fmt.Fprintf(app.Stdout, "%d webhooks and keys encrypted with %s\n", n, c.Keys.IDs()[0])
		return err
	})
}

// rewrap returns how much it encrypted with the first key of the ring, also when it fails at the rest.
func rewrap(ctx context.Context, s *store.Store, ring seal.Ring) (int, error) {
	reseal := func(row a2a.ID, sealed webhooks.Secrets) (webhooks.Secrets, bool, error) {
		return push.Reseal(ring, row, sealed)
	}
	n, err := s.Webhooks.Reseal(ctx, reseal)
	keys, keysErr := push.ResealKeys(ctx, s, ring)
	err = errors.Join(err, keysErr)
	if n += keys; n > 0 {
		detail := map[string]any{"key": ring.IDs()[0], "sealed": n}
		err = errors.Join(err, s.Access.Record(ctx, access.Action{Name: access.ActionKeysRewrap, Detail: detail}))
	}
	return n, err
}
