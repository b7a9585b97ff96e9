package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/push"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/stream"
)

// Service is shared by the commands of operators. They call the admin API of a server, or the same API in this process,
// on the database. So their output and exit codes are the same.
type Service struct {
	config.OperatorGroup
	APIKey   config.Secret `type:"setting" name:"api-key" kong:"-" secret:"yes"`
	Keys     seal.Ring     `type:"setting" name:"keys" kong:"-" secret:"yes"`
	Database `group:"database"`
}

// Bounds of a person at the terminal, who waits longer than a client of the API.
const (
	localSearchTimeout = time.Minute
	localMaxTask       = 1 << 30
)

// watchPoll is how often the log of a task is read that is followed here. A terminal needs no wake-ups.
const watchPoll = 250 * time.Millisecond

// withAdmin calls do with the admin API.
func (s *Service) withAdmin(ctx context.Context, app *App, do func(*admin.Client) error) error {
	if s.Server != "" {
		return do(admin.NewClient(string(s.Server), s.APIKey.Reveal(), http.DefaultTransport))
	}
	return s.withStore(ctx, app, func(st *store.Store) error {
		ctx, cancel := context.WithCancel(ctx)
		follower := stream.New(st.Tasks, &notify.Hub{}, watchPoll, slog.New(slog.DiscardHandler))
		var polls sync.WaitGroup
		polls.Go(func() { follower.Run(ctx) }) //nolint:errcheck // it only returns nil
		defer func() { cancel(); polls.Wait() }()
		return do(admin.Local(admin.New(s.local(st, follower))))
	})
}

// local configures the admin API in this process. Whoever has a login of the database is its operator.
func (s *Service) local(st *store.Store, follower *stream.Follower) admin.Config {
	operator := auth.Principal{
		Tenant: operatorName, Owner: operatorName, Kind: auth.KindOperator, Method: auth.MethodOperator,
		Name:   strings.TrimPrefix(actor(), operatorName+" "),
		Scopes: []auth.Scope{auth.ScopeOperatorRead, auth.ScopeOperatorWrite},
	}
	return admin.Config{
		Store: st, SignIn: func(*http.Request) (auth.Principal, error) { return operator, nil },
		MoveSecrets: s.moveSecrets, Streams: admin.Streams{Follower: follower},
		SearchTimeout: localSearchTimeout, MaxTask: localMaxTask,
	}
}

// moveSecrets encrypts the secrets of a webhook for the task that a retry makes.
func (s *Service) moveSecrets(from, to a2a.ID, x webhooks.Secrets) (webhooks.Secrets, error) {
	return push.Move(s.Keys, from, to, x)
}

// hasStatus reports whether the server has refused with an HTTP status.
func hasStatus(err error, status int) bool {
	var refused *admin.RequestError
	return errors.As(err, &refused) && refused.Status == status
}

// hasReason reports whether the server has refused for a reason.
func hasReason(err error, reason string) bool {
	var refused *admin.RequestError
	return errors.As(err, &refused) && refused.Reason == reason
}

// pageSize is how many rows are read at once.
const pageSize = 1000

// pages reads as many pages as it takes for most rows. next reads a page of at most size rows.
func pages[R any](most int, next func(size int) (rows []R, more bool, err error)) (all []R, err error) {
	for {
		rows, more, err := next(min(most-len(all), pageSize))
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
		if !more || len(all) >= most {
			return all, nil
		}
	}
}
