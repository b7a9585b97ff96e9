package e2e_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/store/storetest"
)

// idleLine is a statement in PostgreSQL's log: its application, its transaction, and its name or beginning.
var idleLine = regexp.MustCompile(`(?m)^(a2ad-idle-\w+) (\d+/\d+) .*(?:execute [^:]*: -- name: (\w+) |statement: (.*))`)

// idleTransactions returns the number of a replica's transactions in a part of PostgreSQL's log, and the number of
// statements by name. Statements of one transaction share its number.
func idleTransactions(log string) (transactions int, names map[string]int) {
	seen := map[string]bool{}
	names = map[string]int{}
	for _, m := range idleLine.FindAllStringSubmatch(log, -1) {
		seen[m[2]] = true
		names[m[1]+" "+m[3]+m[4]]++
	}
	return len(seen), names
}

// An idle replica makes at most 5 transactions a second with the default settings, however many agents it serves. On
// a slow machine it makes fewer.
func TestIdleReplicaMakesFewTransactions(t *testing.T) {
	t.Parallel()
	defaults := []string{"A2AD_POLL_INTERVAL=1s", "A2AD_PUSH_POLL=1s", "A2AD_RESCUE_INTERVAL=1s",
		"A2AD_LISTENER_PING=5s", "A2AD_LEASE_TTL=30s"}
	for _, agents := range []int{0, 300} {
		t.Run(fmt.Sprint(agents+len(agentFiles), " agents"), func(t *testing.T) {
			t.Parallel()
			srv := storetest.NewServer(t, map[string]string{"log_statement": "all", "log_line_prefix": "%a %v ",
				"autovacuum": "off"})
			c := clusterOn(t, storetest.NewOn(t, srv))
			for i := range agents {
				c.agent(fmt.Sprintf("more-%03d", i), scriptAgent(fmt.Sprintf("more-%03d", i), ""))
			}
			c.start("idle", defaults...)
			read := func(from int) string {
				text, err := os.ReadFile(filepath.Join(srv.Dir(), "postgres.log"))
				if err != nil {
					t.Fatal(err)
				}
				return string(text)[from:]
			}
			await := func(from, polls int) (log string) {
				until(t, fmt.Sprint(polls, " polls"), func() bool {
					log = read(from)
					return strings.Count(log, "-- name: QueuesDue") >= polls
				})
				return log
			}
			from := len(await(0, 3)) // the statements of the start are over
			began := time.Now()
			log := await(from, 10)
			took := time.Since(began)
			n, names := idleTransactions(log)
			if most := 5 * took.Seconds(); float64(n) > most {
				t.Errorf("%d transactions in %s, want at most %.0f", n, took, most)
				for _, name := range slices.Sorted(maps.Keys(names)) {
					t.Logf("%4d %s", names[name], name)
				}
			}
			if n < 20 || names["a2ad-idle-worker PushPoll"] == 0 || names["a2ad-idle-worker LeaseRescue"] == 0 {
				t.Errorf("the log could not be parsed: %d transactions, %v", n, names)
			}
		})
	}
}
