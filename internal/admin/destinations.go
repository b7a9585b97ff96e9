package admin

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// DestinationQuery selects destinations of webhooks.
type DestinationQuery struct {
	Tenant string `json:"tenant,omitempty" doc:"Only destinations of webhooks of this tenant."`
	Origin string `json:"origin,omitempty" doc:"Only this destination: scheme://host:port."`
	Limit  int    `json:"limit,omitempty" doc:"At most this many destinations: 50 unless given." range:"1-1000"`
	Cursor string `json:"cursor,omitempty" doc:"The next page: what the page before calls next."`
}

// DestinationList is a page of destinations, by tenant and origin.
type DestinationList struct {
	Destinations []Destination `json:"destinations"`
	Next         string        `json:"next,omitempty" doc:"The cursor of the next page; missing on the last one."`
}

// Destination is where webhooks of a tenant are delivered to.
type Destination struct {
	Tenant     string     `json:"tenant"`
	Origin     string     `json:"origin" doc:"scheme://host:port"`
	Active     int64      `json:"active" doc:"Webhooks that deliver, or wait for events."`
	Dead       int64      `json:"dead" doc:"Webhooks that have used up their retries."`
	Disabled   int64      `json:"disabled" doc:"Webhooks whose receiver has asked to stop."`
	Backlog    int64      `json:"backlog" doc:"Events that the active webhooks have to deliver."`
	Failures   int        `json:"failures" doc:"In a row."`
	OpenUntil  *time.Time `json:"circuitOpenUntil,omitempty" doc:"No request is sent until then."`
	DisabledAt *time.Time `json:"disabledAt,omitempty" doc:"No request is sent since then."`
	LastError  string     `json:"lastError,omitempty" doc:"Of the newest request; missing if it succeeded."`
	NextAt     *time.Time `json:"nextAttemptAt,omitempty" doc:"Missing while there is nothing to deliver."`
}

// EnableDestination is the body that enables a destination.
type EnableDestination struct {
	Why
	Tenant string `json:"tenant" doc:"The tenant of the webhooks."`
	Origin string `json:"origin" doc:"The destination: scheme://host:port."`
}

// EnabledDestination is a destination that is called again.
type EnabledDestination struct {
	Tenant  string `json:"tenant"`
	Origin  string `json:"origin"`
	Enabled bool   `json:"enabled"`
}

// ReplayDestination is the body of a replay of all webhooks of a destination.
type ReplayDestination struct {
	Why
	Tenant string    `json:"tenant" doc:"The tenant of the webhooks."`
	Origin string    `json:"origin" doc:"The destination: scheme://host:port."`
	Since  time.Time `json:"since" doc:"Deliver again the events that were stored at or after this time."`
	Cursor string    `json:"cursor,omitempty" doc:"Continue: what the answer before calls next."`
}

// ReplayedDestination says how many webhooks deliver again.
type ReplayedDestination struct {
	Webhooks int    `json:"webhooks" doc:"At most 1,000."`
	Next     string `json:"next,omitempty" doc:"The cursor to continue with; missing if there are no more webhooks."`
}

// ReasonAlreadyEnabled is the reason of a refused enabling.
const ReasonAlreadyEnabled = "ALREADY_ENABLED"

// maxReplayed is how many webhooks one request replays at most.
const maxReplayed = 1000

func newDestination(d *webhooks.Destination) Destination {
	return Destination{
		Tenant: d.Tenant, Origin: d.Origin, Active: d.Active, Dead: d.Dead, Disabled: d.Disabled, Backlog: d.Backlog,
		Failures: d.Fails, OpenUntil: orNil(d.OpenUntil), DisabledAt: orNil(d.DisabledAt), LastError: d.LastError,
		NextAt: orNil(d.NextAt),
	}
}

// listDestinations serves GET /destinations.
func (a *API) listDestinations(ctx context.Context, r *request) (any, error) {
	q := r.query.(*DestinationQuery) //nolint:forcetypeassert // the route says so
	f := webhooks.DestinationFilter{
		Tenant: q.Tenant, Origin: q.Origin, Limit: defaultLimit, Timeout: a.cfg.SearchTimeout,
	}
	if q.Limit > 0 {
		f.Limit = q.Limit
	}
	if q.Cursor != "" {
		b, err := base64.RawURLEncoding.DecodeString(q.Cursor)
		tenant, origin, ok := strings.Cut(string(b), "\x00")
		if err != nil || !ok || strings.ContainsRune(origin, 0) {
			return nil, a2a.InvalidParams("cursor", "is not the next of an answer")
		}
		f.AfterTenant, f.AfterOrigin = tenant, origin
	}
	list := DestinationList{Destinations: []Destination{}}
	if ok, err := r.ownTenant(&f.Tenant); !ok || err != nil {
		return list, err
	}
	f.Limit++ // to see whether there is a next page
	found, err := a.store.Webhooks.Destinations(ctx, f)
	if err != nil {
		return nil, searchError(err)
	}
	if len(found) == f.Limit {
		found = found[:f.Limit-1]
		last := &found[len(found)-1]
		list.Next = base64.RawURLEncoding.EncodeToString([]byte(last.Tenant + "\x00" + last.Origin))
	}
	for i := range found {
		list.Destinations = append(list.Destinations, newDestination(&found[i]))
	}
	return list, nil
}

// enableDestination serves POST /destinations/enable.
func (a *API) enableDestination(ctx context.Context, r *request) (any, error) {
	b := r.body.(*EnableDestination) //nolint:forcetypeassert // the route says so
	if err := checkReason(b.Reason); err != nil {
		return nil, err
	}
	if err := cmp.Or(r.mustBeOwn(b.Tenant), r.mustBeForAllAgents("webhooks are")); err != nil {
		return nil, err
	}
	changed, err := a.store.Webhooks.EnableDestination(ctx, b.Tenant, b.Origin)
	if err == nil && !changed {
		err = refusal{http.StatusConflict, ReasonAlreadyEnabled, "the destination is already enabled"}
	}
	if err != nil {
		return nil, err
	}
	return EnabledDestination{b.Tenant, b.Origin, true}, nil
}

// replayDestination serves POST /destinations/replay.
func (a *API) replayDestination(ctx context.Context, r *request) (any, error) {
	b := r.body.(*ReplayDestination) //nolint:forcetypeassert // the route says so
	if err := checkReason(b.Reason); err != nil {
		return nil, err
	}
	if err := cmp.Or(r.mustBeOwn(b.Tenant), r.mustBeForAllAgents("webhooks are")); err != nil {
		return nil, err
	}
	in := webhooks.ReplayRange{
		Tenant: b.Tenant, Origin: b.Origin, Since: b.Since, Limit: maxReplayed, Timeout: a.cfg.SearchTimeout,
	}
	if b.Cursor != "" {
		var err error
		if in.From, err = a2a.ParseID(b.Cursor); err != nil {
			return nil, a2a.InvalidParams("cursor", "is not the next of an answer")
		}
	}
	done, err := a.store.Webhooks.ReplaySince(ctx, in)
	if err != nil {
		return nil, searchError(err)
	}
	out := ReplayedDestination{Webhooks: done.Webhooks}
	if done.More {
		out.Next = done.Last.String()
	}
	return out, nil
}
