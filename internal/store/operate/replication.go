package operate

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate/dbsqlc"
)

// Standing says whether a server is a standby, and by how much it lags.
type Standing struct {
	Standby  bool
	Receives bool // a standby is connected to its primary
	Replayed bool // a standby has replayed all that it has received
	// Newest is the age of the newest transaction that a standby has replayed; negative: it has replayed none.
	Newest time.Duration
}

// Lag describes by how much a standby lags.
func (s Standing) Lag() string {
	age := "it has replayed no transaction"
	if s.Newest >= 0 {
		age = "its newest transaction is " + s.Newest.Round(time.Second).String() + " old"
	}
	switch {
	case !s.Receives:
		return "it receives nothing from its primary, and " + age
	case s.Replayed:
		return "it has replayed all that it has received"
	}
	return age
}

// ReadStanding reads whether a server is a standby.
func ReadStanding(ctx context.Context, conn db.Conn) (Standing, error) {
	r, err := dbsqlc.New(conn).ReadStanding(ctx)
	if err != nil {
		return Standing{}, fmt.Errorf("read whether the server is a standby: %w", db.Unavailable(err))
	}
	return Standing{
		Standby: r.Standby, Receives: r.Receives, Replayed: r.Replayed,
		Newest: time.Duration(r.NewestMs) * time.Millisecond,
	}, nil
}

// Standing reads whether the database of the store is a standby.
func (s *Store) Standing(ctx context.Context) (Standing, error) {
	return ReadStanding(ctx, s.db.Work())
}

// Standby is a server that follows the database.
type Standby struct {
	Name  string // its application_name
	State string // as in pg_stat_replication: streaming, catchup, startup
	Sync  bool   // commits may wait for it
	Bytes int64  // of WAL that it has not replayed
}

// Slot is a replication slot. It keeps WAL on the disk of the primary until its user has received it.
type Slot struct {
	Name   string
	Active bool
	Bytes  int64 // of WAL that it keeps
}

// Replication is the state of standbys, replication slots and the archive, as the primary sees it.
type Replication struct {
	Standbys       []Standby // that this login may see: with pg_read_all_stats, all
	Hidden         int       // standbys that this login may not see
	Slots          []Slot
	ArchiveFailing bool // the newest attempt to archive WAL has failed
	SyncWanted     int  // standbys that each commit waits for
}

// SyncMissing is how many standbys are missing that each commit waits for. It is 0 if the login may not see them all.
func (r *Replication) SyncMissing() int {
	missing := r.SyncWanted
	for _, s := range r.Standbys {
		if s.Sync && s.State == "streaming" {
			missing--
		}
	}
	if r.Hidden > 0 {
		return 0
	}
	return max(missing, 0)
}

// ReadReplication reads the state of standbys, replication slots and the archive. It needs the role of the login: the
// roles of a2ad see none of them.
func ReadReplication(ctx context.Context, conn db.Conn) (rep Replication, err error) {
	q := dbsqlc.New(conn)
	standbys, err := q.ListStandbys(ctx)
	if err != nil {
		return rep, fmt.Errorf("list the standbys: %w", db.Unavailable(err))
	}
	for _, s := range standbys {
		if s.State == "" {
			rep.Hidden++
			continue
		}
		rep.Standbys = append(rep.Standbys, Standby{
			Name: s.Name, State: s.State, Bytes: max(s.Bytes, 0),
			Sync: s.SyncState == "sync" || s.SyncState == "quorum",
		})
	}
	slots, err := q.ListSlots(ctx)
	if err != nil {
		return rep, fmt.Errorf("list the replication slots: %w", db.Unavailable(err))
	}
	for _, s := range slots {
		rep.Slots = append(rep.Slots, Slot(s))
	}
	archiving, err := q.ReadArchiving(ctx)
	if err != nil {
		return rep, fmt.Errorf("read the state of the archive: %w", db.Unavailable(err))
	}
	rep.ArchiveFailing, rep.SyncWanted = archiving.Failing, syncWanted(archiving.SyncNames)
	return rep, nil
}

var syncCount = regexp.MustCompile(`(?i)^\s*(?:any\s+|first\s+)?(\d+)\s*\(`)

// syncWanted returns how many standbys a commit waits for, with a value of synchronous_standby_names.
func syncWanted(names string) int {
	if strings.TrimSpace(names) == "" {
		return 0
	}
	if m := syncCount.FindStringSubmatch(names); m != nil {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			return 1
		}
		return n
	}
	return 1 // a list of names: the first that is connected
}
