package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/push"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store"
)

func (o *dbOperator) Pushes(ctx context.Context, f pushFilter) ([]pushRow, error) {
	in := store.PushFilter{Tenant: f.Tenant, Owner: f.Owner, Origin: f.Origin, State: f.State, Limit: f.Limit}
	var err error
	if f.Task != "" {
		if in.Task, err = parseTaskID(f.Task); err != nil {
			return nil, err
		}
	}
	if f.Before != "" {
		if in.Before, err = parsePushID(f.Before); err != nil {
			return nil, err
		}
	}
	found, err := o.store.ListPushes(ctx, in)
	if err != nil {
		return nil, err
	}
	rows := make([]pushRow, len(found))
	for i, p := range found {
		rows[i] = pushRow{
			ID: p.Row.String(), TaskID: p.Task.String(), ConfigID: p.ConfigID, Tenant: p.Tenant, Owner: p.Owner, URL: p.URL, Origin: p.Origin,
			State: p.State, Reason: p.Reason, Cursor: p.Cursor, Head: p.Head, Attempt: p.Attempt, NextAttemptAt: orNil(p.NextAttemptAt),
			CreatedAt: p.CreatedAt, DeletedAt: orNil(p.DeletedAt), OpenUntil: orNil(p.OpenUntil), DisabledAt: orNil(p.DisabledAt),
		}
	}
	return rows, nil
}

func parsePushID(id string) (a2a.ID, error) {
	p, err := a2a.ParseID(id)
	if err != nil {
		return p, fmt.Errorf("webhook %s: not the id of a webhook", id)
	}
	return p, nil
}

func (o *dbOperator) PushAttempts(ctx context.Context, id string, limit int) ([]pushTryRow, error) {
	p, err := parsePushID(id)
	if err != nil {
		return nil, err
	}
	found, err := o.store.PushTries(ctx, p, limit)
	if err != nil {
		return nil, fmt.Errorf("webhook %s: %w", id, err)
	}
	rows := make([]pushTryRow, len(found))
	for i, t := range found {
		rows[i] = pushTryRow{
			From: t.From, Seq: t.Seq, Outcome: t.Outcome, Attempt: t.Attempt, Trigger: t.Trigger, StartedAt: t.StartedAt, Ms: t.Took.Milliseconds(), RemoteIP: t.RemoteIP,
			Status: t.Status, Class: t.Class, Reason: t.Reason, Answer: string(t.Answer),
		}
	}
	return rows, nil
}

func (o *dbOperator) ReplayPush(ctx context.Context, id string, after int64) error {
	p, err := parsePushID(id)
	if err != nil {
		return err
	}
	if after < 0 {
		after = math.MaxInt64
	}
	err = o.store.ReplayPush(ctx, p, after)
	switch {
	case errors.Is(err, store.ErrNothingToReplay):
		return fmt.Errorf("webhook %s: %w: say with --after behind which event it is to come again (0: from the first)", id, store.ErrNothingToReplay)
	case err != nil:
		return fmt.Errorf("webhook %s: %w", id, err)
	}
	return nil
}

func (o *dbOperator) EnableDestination(ctx context.Context, tenant, origin string) (bool, error) {
	return o.store.EnableDestination(ctx, tenant, origin)
}

func (o *dbOperator) Rewrap(ctx context.Context, ring seal.Ring) (int, error) {
	n, err := o.store.ResealPushes(ctx, func(row a2a.ID, s store.PushSecrets) (store.PushSecrets, bool, error) {
		return push.Reseal(ring, row, s)
	})
	keys, keysErr := push.ResealKeys(ctx, o.store, ring)
	err = errors.Join(err, keysErr)
	if n+keys > 0 {
		err = errors.Join(err, o.store.Record(ctx, store.Action{Name: store.ActionKeysRewrap, Detail: map[string]any{"key": ring.IDs()[0], "sealed": n + keys}}))
	}
	return n + keys, err
}

func (o *dbOperator) SealedWith(ctx context.Context) ([]store.Sealed, error) {
	return o.store.SealedWith(ctx)
}
