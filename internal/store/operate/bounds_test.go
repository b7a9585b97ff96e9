package operate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// beginsWith reports whether parts are the beginning of a text that is much longer.
func beginsWith(parts []a2a.Part, text string) bool {
	if len(parts) != 1 {
		return false
	}
	got, cut := strings.CutSuffix(parts[0].Text, "…")
	return cut && len(got) > 1000 && len(got) <= 2000 && strings.HasPrefix(text, got)
}

// says returns a status with a text.
func says(state a2a.State, text string) *a2a.StatusUpdate {
	u := storetest.Status(state, text)
	u.Status.Message.ID = "m"
	return u
}

// TestReadsForOperatorsHaveTheBeginningsOfTexts: a page of a thousand tasks takes little memory, whatever their agents
// and clients say.
func TestReadsForOperatorsHaveTheBeginningsOfTexts(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	long := strings.Repeat("long ", 200_000)
	in := storetest.Submission(long)
	in.Message.ID = "m"
	id := f.Submit(in).Task
	f.Append(f.ClaimTask(id), says(a2a.StateFailed, long))
	f.Exec(`UPDATE a2a.task_attempts SET error = $1`, long)

	failures, err := f.Operate.Failures(t.Context(), "", time.Time{}, 10)
	if err != nil || len(failures) != 1 || !beginsWith(failures[0].Message, long) || len(failures[0].Error) != 2000 {
		t.Errorf("failures: %v, %.200v", err, failures)
	}
	found, err := f.Operate.SearchTasks(t.Context(), operate.TaskSearch{Limit: 10, Timeout: time.Minute})
	if err != nil || len(found) != 1 || len(found[0].Error) > 2000 {
		t.Errorf("search: %v, %.200v", err, found)
	}
	tl, err := f.Operate.Timeline(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	last := tl.Events[len(tl.Events)-1].Event.(*a2a.StatusUpdate).Status
	if last.State != a2a.StateFailed || !beginsWith(last.Message.Parts, long) {
		t.Errorf("the last event is %.200v", last)
	}
	if len(tl.Messages) != 1 || !beginsWith(tl.Messages[0].Message.Parts, long) || len(tl.Attempts[0].Error) != 2000 {
		t.Errorf("messages %.200v and attempts %.200v", tl.Messages, tl.Attempts)
	}
	if tl.Cut || tl.Bytes < 6000 || tl.Bytes > 20_000 {
		t.Errorf("the timeline takes %d bytes; cut: %t", tl.Bytes, tl.Cut)
	}
}

func TestTimelineHasTheNewestRows(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	id := f.NewTask()
	const most = 20_000
	f.Exec(`INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, committed_at, body)
		SELECT $1, n, gen_random_uuid(), a2a.kind_status(), a2a.state_working(), a2a.source_server(), now(), '{}'
		FROM generate_series(2, $2) n`, id.String(), most)
	f.Exec(`INSERT INTO a2a.task_signals (task_id, seq, name, key, digest, sender)
		SELECT $1, n, 'go', n, '', 'x' || n FROM generate_series(1, 3000) n`, id.String())
	f.Say(id, "at the end")
	f.Exec(`UPDATE a2a.messages SET at_seq = $1 WHERE seq = 2`, most)
	tl, err := f.Operate.Timeline(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(tl.Events); !tl.Cut || n < 10_000 || n > 17_000 || tl.Events[n-1].Seq != most ||
		tl.Events[0].Seq != most-int64(n)+1 || tl.Bytes > 12<<20 {
		t.Errorf("%d events from %d, cut: %t, %d bytes", n, tl.Events[0].Seq, tl.Cut, tl.Bytes)
	}
	if n := len(tl.Signals); n != 2000 || tl.Signals[n-1].Sender != "x3000" {
		t.Errorf("%d signals, the last %+v", n, tl.Signals[n-1])
	}
	if len(tl.Messages) != 1 || tl.Messages[0].Seq != 2 { // the first one belongs to an event that is left out
		t.Errorf("the messages are %+v", tl.Messages)
	}
}

func TestQuestionsOfAPageShareItsBytes(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	long := strings.Repeat("long ", 200_000)
	f.Append(f.ClaimTask(f.NewTask()), says(a2a.StateInputRequired, long))
	f.Append(f.ClaimTask(f.NewTask()), storetest.Status(a2a.StateInputRequired, "short?"))
	list, err := f.Operate.Questions(t.Context(), operate.QuestionFilter{Limit: 31})
	if err != nil || len(list) != 2 {
		t.Fatalf("%d questions, %v", len(list), err)
	}
	if !list[0].Large || !beginsWith(list[0].Message, long) {
		t.Errorf("the long question in a list: large %t, %.200v", list[0].Large, list[0].Message)
	}
	if list[1].Large || list[1].Message[0].Text != "short?" {
		t.Errorf("the short question: large %t, %.200v", list[1].Large, list[1].Message)
	}
	list, err = f.Operate.Questions(t.Context(), operate.QuestionFilter{Limit: 1})
	if err != nil || list[0].Large || list[0].Message[0].Text != long {
		t.Errorf("the long question alone: %v, large %t, %.200v", err, list[0].Large, list[0].Message)
	}
}
