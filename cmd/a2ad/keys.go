package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/term"
)

// KeysCmd is `a2ad keys`.
type KeysCmd struct {
	Rewrap KeysRewrapCmd `cmd:"" group:"commands" help:"Seal every stored secret with the first key of A2AD_KEYS."`
}

// KeysRewrapCmd is `a2ad keys rewrap`.
type KeysRewrapCmd struct {
	Keys     seal.Ring `type:"setting" name:"keys" kong:"-" secret:"yes"`
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*KeysRewrapCmd) Help() string {
	return `Put the new key in front of the old ones in A2AD_KEYS of all servers, run this with the same A2AD_KEYS, then take the old keys out. It may be repeated, and servers may go on meanwhile.`
}

// rewrapped is what programs are told.
type rewrapped struct {
	Sealed int    `json:"sealed"`
	Key    string `json:"key"`
}

var errNoRing = errors.New("A2AD_KEYS is not set: name the new key first and the old ones behind it")

// Run seals anew. It may be repeated, and servers may go on.
func (c *KeysRewrapCmd) Run(ctx context.Context, app *App) error {
	if c.Keys.Empty() {
		return &exitError{code: exitUsage, err: errNoRing}
	}
	return c.withOperator(ctx, app, func(op operator) error {
		n, err := op.Rewrap(ctx, c.Keys)
		if err != nil {
			return err
		}
		if c.json() {
			return term.JSON(app.Stdout, rewrapped{Sealed: n, Key: c.Keys.IDs()[0]})
		}
		_, err = fmt.Fprintf(app.Stdout, "%d webhooks and keys sealed with %s\n", n, c.Keys.IDs()[0])
		return err
	})
}
