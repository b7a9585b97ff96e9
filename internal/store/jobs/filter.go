package jobs

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
)

// Filter selects the tasks of a job. It is stored as JSON: a name that was stored keeps its meaning. Servers that do
// not know it leave the job to others.
type Filter struct {
	ID          string    `json:"id,omitempty"` // the beginning of an id
	IDs         []string  `json:"ids,omitempty"`
	State       []string  `json:"state,omitempty"`
	Agent       []string  `json:"agent,omitempty"`
	Tenant      string    `json:"tenant,omitempty"`
	Owner       string    `json:"owner,omitempty"`
	Context     string    `json:"context,omitempty"`
	Since       time.Time `json:"since,omitzero"`
	Until       time.Time `json:"until,omitzero"`
	Outcome     string    `json:"outcome,omitempty"`
	Text        string    `json:"text,omitempty"`
	Error       string    `json:"error,omitempty"`
	MetadataKey string    `json:"metadataKey,omitempty"`
	Parked      bool      `json:"parked,omitempty"`
	Roots       bool      `json:"roots,omitempty"`
	NotRetried  bool      `json:"notRetried,omitempty"`
}

// filterNames are the names of all filters.
func filterNames() (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Filter]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// Search returns the search for what the filter selects, without limit and timeout. Check with it what is to be stored:
// otherwise the job fails.
func (f *Filter) Search() (operate.TaskSearch, error) {
	out := operate.TaskSearch{
		Prefix: f.ID, Tenant: f.Tenant, Owner: f.Owner, ContextID: f.Context, Agents: f.Agent, Since: f.Since,
		Until: f.Until, Outcome: f.Outcome, Text: f.Text, Error: f.Error, MetadataKey: f.MetadataKey, Parked: f.Parked,
		Roots: f.Roots, NotRetried: f.NotRetried,
	}
	for _, x := range [...]struct{ name, text string }{
		{"agent", strings.Join(f.Agent, " ")}, {"tenant", f.Tenant}, {"owner", f.Owner}, {"context", f.Context},
		{"outcome", f.Outcome}, {"text", f.Text}, {"error", f.Error}, {"metadataKey", f.MetadataKey},
	} {
		if !utf8.ValidString(x.text) || strings.ContainsRune(x.text, 0) {
			return out, a2a.InvalidParams(x.name, "must be UTF-8 without NUL characters")
		}
	}
	for _, text := range f.IDs {
		id, err := a2a.ParseID(text)
		if err != nil {
			return out, a2a.InvalidParams("ids", "%q is no id of a task", text)
		}
		out.IDs = append(out.IDs, id)
	}
	for _, name := range f.State {
		s, err := ParseState(name)
		if err != nil {
			return out, err
		}
		out.States = append(out.States, s)
	}
	return out, nil
}

// ParseState reads a state in the spelling of a2ad, of A2A 0.3, or of A2A 1.0.
func ParseState(name string) (a2a.State, error) {
	plain := strings.ReplaceAll(strings.ToLower(name), "_", "-")
	s, ok := a2a.ParseState(strings.TrimPrefix(plain, "task-state-"))
	if !ok || s == a2a.StateNone {
		if r := []rune(strings.ToValidUTF8(name, "\uFFFD")); len(r) > 64 {
			name = string(r[:64]) + "…"
		}
		return s, a2a.InvalidParams("state", "%q is no state of a task", name)
	}
	return s, nil
}

// states are those in which an action can be done with a task.
var states = map[Action][]a2a.State{
	Cancel: unended,
	Retry:  {a2a.StateFailed, a2a.StateCanceled, a2a.StateRejected},
	Resume: unended,
}

var unended = []a2a.State{a2a.StateSubmitted, a2a.StateWorking, a2a.StateInputRequired, a2a.StateAuthRequired}

// Narrow leaves out the tasks that the action cannot be done with. It reports false if none can be left.
func (a Action) Narrow(f *operate.TaskSearch) bool {
	f.Parked = f.Parked || a == Resume
	f.NotRetried = f.NotRetried || a == Retry
	if f.States == nil {
		f.States = states[a]
		return true
	}
	f.States = slices.DeleteFunc(slices.Clone(f.States), func(s a2a.State) bool {
		return !slices.Contains(states[a], s)
	})
	return len(f.States) > 0
}

// Count is what a job would act on.
type Count struct {
	At     time.Time // tasks that were created since are not counted
	Tasks  int
	More   bool // there are more tasks than are counted
	Groups []Group
	Newest []operate.FoundTask // at most 10
}

// Group is how many of the counted tasks of one agent are in one state.
type Group struct {
	Agent string
	State a2a.State
	Tasks int
}

const (
	mostCounted = 10_000
	mostShown   = 10
)

// Count counts the tasks that a job with this action and filter would act on, up to 10,000, and changes nothing. It
// fails as SearchTasks does.
func (s *Store) Count(ctx context.Context, a Action, f *Filter, timeout time.Duration) (out Count, err error) {
	search, err := f.Search()
	if err != nil {
		return out, err
	}
	if out.At, err = s.now(ctx); err != nil {
		return out, err
	}
	if !a.Narrow(&search) {
		return out, nil
	}
	search.Limit, search.Timeout = mostCounted+1, timeout
	until(&search, out.At)
	found, err := s.operate.SearchTasks(ctx, search)
	if err != nil {
		return out, err
	}
	if out.More = len(found) > mostCounted; out.More {
		found = found[:mostCounted]
	}
	out.Tasks, out.Newest = len(found), slices.Clone(found[:min(len(found), mostShown)])
	for i := range found {
		t := &found[i]
		at := slices.IndexFunc(out.Groups, func(g Group) bool { return g.Agent == t.Agent && g.State == t.State })
		if at < 0 {
			at = len(out.Groups)
			out.Groups = append(out.Groups, Group{Agent: t.Agent, State: t.State})
		}
		out.Groups[at].Tasks++
	}
	slices.SortFunc(out.Groups, func(x, y Group) int { return y.Tasks - x.Tasks })
	return out, nil
}

// until leaves out tasks that were created at or after a time.
func until(f *operate.TaskSearch, at time.Time) {
	if f.Until.IsZero() || f.Until.After(at) {
		f.Until = at
	}
}

// now returns the database's time.
func (s *Store) now(ctx context.Context) (at time.Time, err error) {
	err = s.db.Browse(ctx, s.db.StatementTimeout(), func(ctx context.Context, tx *db.Tx) (err error) {
		at, err = tx.Now(ctx)
		return err
	})
	if err != nil {
		return at, fmt.Errorf("read the time: %w", db.Unavailable(err))
	}
	return at.UTC(), nil
}
