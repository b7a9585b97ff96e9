package e2e_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// smoke are the tests that remain under -short, at least one for each promise that spans processes. `make test-crash`
// runs all tests.
var smoke = []string{
	// crash and resume
	"TestKilledReplicaIsReplacedByAnother", "TestKilledReplicaAmongStepsAndWaits",
	// a lost COMMIT
	"TestLostCommitMakesOneTask",
	// two replicas
	"TestStreamResumesAcrossReplicas", "TestBlockingSendIsAnsweredByTheOtherReplicasWorker",
	"TestCopiesWithOneKeyMakeOneTask", "TestCancelFromTheOtherReplica",
	// webhooks
	"TestKilledBetweenAnswerAndRecord", "TestWebhooksOverTheWire",
	// protocol: three bindings, and what is refused
	"TestEachBindingLogsAndCountsRequestsAlike", "TestBadInputIsRefused", "TestForeignTasksLookUnknown",
	// operation
	"TestStopIsAnnouncedBeforeItHappens", "TestServeWaitsForASchema", "TestSecretsAppearInNoOutput",
	// documents that are compared with a running server
	"TestMetricsMatchTheDocumentation", "TestAlertsLinkToRunbooks",
	"TestSmokeTestsExist",
}

// onlySmoke restricts a run under -short to the tests of smoke, unless it names tests. TestMain calls it.
func onlySmoke() error {
	flag.Parse()
	run := flag.Lookup("test.run")
	if !testing.Short() || run.Value.String() != "" {
		return nil
	}
	fmt.Printf("short: %d tests; make test-crash runs all\n", len(smoke))
	return run.Value.Set("^(" + strings.Join(smoke, "|") + ")$")
}

func TestSmokeTestsExist(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	for _, name := range smoke {
		if !strings.Contains(all.String(), "\nfunc "+name+"(t *testing.T)") {
			t.Errorf("no test is named %s", name)
		}
	}
}

// The answer to the COMMIT of a new task is lost. The client repeats its message, to either replica, and there is one
// task.
func TestLostCommitMakesOneTask(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		t.Run(fmt.Sprintf("took effect %t", answered), func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			p, through := storetest.NewProxy(t, db.URL) // it ends after the cluster
			c := clusterOn(t, db)
			a, b := c.start("a", "A2AD_DATABASE_URL="+through), c.start("b")
			fired := p.Arm(storetest.Fault{Match: storetest.IsCommit, Answered: answered})
			cl := c.roamer("script", func(n int) *replica { return []*replica{a, b}[n%2] })
			message := client.SendParams{Message: play(`{"op":"chunk","id":"a","n":3}`), IdempotencyKey: "k"}
			message.Message.ID = "m"
			first, err := cl.Send(bounded(t), message)
			if err != nil {
				t.Fatal(err)
			}
			storetest.WantFired(t, fired)
			again, err := cl.Send(bounded(t), message)
			if err != nil {
				t.Fatal(err)
			}
			if first.TaskID != again.TaskID || one[int](c, `SELECT count(*) FROM audit.task`) != 1 {
				t.Errorf("tasks %s and %s, want the same, and no other", first.TaskID, again.TaskID)
			}
			c.awaitState(first.TaskID, "COMPLETED")
		})
	}
}
