package db_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// A host of the URL accepts connections and then says nothing, like a machine that is paused. It must not delay every
// new connection until it is given up.
func TestSilentHostsDoNotDelayConnections(t *testing.T) {
	t.Parallel()
	const limit = 10 * time.Minute // to be given up
	f := storetest.Open(t)
	silent, silentURL := storetest.NewProxy(t, f.URL)
	var hosts, ports [2]string
	var server *pgx.ConnConfig
	for i, url := range []string{silentURL, f.URL} {
		cfg, err := pgx.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		hosts[i], ports[i], server = cfg.Host, fmt.Sprint(cfg.Port), cfg
	}
	url := fmt.Sprintf("host=%s,%s port=%s,%s user=%s password='%s' dbname=%s sslmode=disable "+
		"target_session_attrs=read-write",
		hosts[0], hosts[1], ports[0], ports[1], server.User, server.Password, server.Database)
	s := f.Replica("r1", func(c *store.Config) { c.URL, c.ConnectTimeout, c.StatementTimeout = url, limit, limit })
	silent.FreezeAll()
	silent.BreakAll(0)
	watch(t, s)
	want := hosts[1] + ":" + ports[1]
	waitUntil(t, "the host that answers is found", func() bool { return db.FoundHost(s.DB) == want })
	begin := time.Now()
	waitUntil(t, "ready", func() bool { return s.DB.Ready(t.Context()) == nil })
	release, err := db.FillWork(t.Context(), s.DB) // opens all connections
	if err != nil {
		t.Fatal(err)
	}
	release()
	if took := time.Since(begin); took > limit/2 {
		t.Errorf("connections took %v, and the silent host is given up after %v", took.Round(time.Millisecond), limit)
	}
}
