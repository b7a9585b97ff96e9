package push

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

const signed = "sig=s3cret%2Fsignature&se=2026"

// hookWithQuery submits a task with a webhook whose URL has a query, encrypted as a server does it.
func (b *bed) hookWithQuery(base string) a2a.ID {
	b.t.Helper()
	p := b.newPush(a2a.PushConfig{URL: base + "/hook?" + signed})
	p.SealURL = func(row a2a.ID) (string, []byte, error) { return SealURL(b.ring, row, p.URL) }
	out, err := b.Tasks.Submit(b.t.Context(), tasks.Submission{
		Caller: ann, Agent: "words", ContextID: "ctx", Message: a2a.Message{ID: "m", Role: a2a.RoleUser,
			Parts: []a2a.Part{{Kind: a2a.PartText, Text: "hello"}}},
		Push: p,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out.Task
}

// stored returns as text what the database has of webhooks and their attempts.
func (b *bed) stored() (text string) {
	b.t.Helper()
	err := b.sql.QueryRow(b.t.Context(), `SELECT coalesce((SELECT string_agg(p::text, ' ') FROM a2a.push_configs p), '')
		|| coalesce((SELECT string_agg(v::text, ' ') FROM audit.push_config v), '')
		|| coalesce((SELECT string_agg(a::text || coalesce(convert_from(a.answer, 'UTF8'), ''), ' ')
			FROM a2a.push_attempts a), '')`).Scan(&text)
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

// TestQueryOfAWebhookURLIsASecret: only the receiver gets the query of its URL, even if its answer
// repeats it.
func TestQueryOfAWebhookURLIsASecret(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var got string
	s := newSink(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.URL.RawQuery
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, "not so: %s %s %s", r.URL.String(), r.URL.Query().Get("sig"), r.URL.RawQuery)
	})
	task := b.hookWithQuery(s.URL)
	b.deliver()
	row := b.await(task, "tried", func(p webhooks.Row) bool { return p.Attempt > 0 })
	if got != signed {
		t.Errorf("the receiver got the query %q, want %q", got, signed)
	}
	want := s.URL + "/hook?[redacted]"
	list, err := b.Webhooks.OfTask(t.Context(), ann, task, "")
	if err != nil || len(list) != 1 || list[0].URL != want {
		t.Errorf("its owner sees %+v, %v, want %s", list, err, want)
	}
	if row.URL != want {
		t.Errorf("the operator sees %s, want %s", row.URL, want)
	}
	line, err := b.Operate.Timeline(t.Context(), task)
	if err != nil || len(line.Tries) == 0 || line.Tries[0].URL != want {
		t.Errorf("the timeline has %+v, %v", line, err)
	}
	for what, text := range map[string]string{"the database": b.stored(), "the log": b.logged(),
		"the timeline": fmt.Sprintf("%+v", line)} {
		if strings.Contains(text, "s3cret") {
			t.Errorf("%s shows the query: %s", what, text)
		}
	}
	if origin := s.URL; row.Origin != origin {
		t.Errorf("origin %s, want %s", row.Origin, origin)
	}
}

// TestUnencryptedQueryIsEncryptedByRewrap: a row from before queries were encrypted is shown
// without its query. The next change of keys encrypts it.
func TestUnencryptedQueryIsEncryptedByRewrap(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var got string
	s := newSink(t, func(_ http.ResponseWriter, r *http.Request) { got = r.URL.RawQuery })
	task := b.task(a2a.PushConfig{URL: s.URL + "/hook?" + signed})
	var shown string
	if err := b.sql.QueryRow(t.Context(), "SELECT url FROM audit.push_config").Scan(&shown); err != nil ||
		strings.Contains(shown, "s3cret") {
		t.Errorf("the audit view shows %s, %v", shown, err)
	}
	for _, want := range []int{1, 0} {
		n, err := b.Webhooks.Reseal(t.Context(),
			func(row a2a.ID, s webhooks.Secrets) (webhooks.Secrets, bool, error) { return Reseal(b.ring, row, s) })
		if n != want || err != nil {
			t.Errorf("%d webhooks resealed, %v, want %d", n, err, want)
		}
	}
	if text := b.stored(); strings.Contains(text, "s3cret") {
		t.Errorf("the database has it still: %s", text)
	}
	b.deliver()
	b.awaitDelivered(task, 1)
	if got != signed {
		t.Errorf("the receiver got the query %q, want %q", got, signed)
	}
}

// TestServersOfThePreviousVersionDoNotClaimEncryptedQueries: such a server would drop the query, so
// it cannot claim the webhook. A webhook that it sets again is complete.
func TestServersOfThePreviousVersionDoNotClaimEncryptedQueries(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.hookWithQuery("http://127.0.0.1:1")
	const claim = "UPDATE a2a.push_configs SET lease_epoch = lease_epoch + 1, " +
		"lease_until = clock_timestamp() + interval '1 minute'"
	if tag, err := b.sql.Exec(t.Context(), claim); err != nil || tag.RowsAffected() != 0 {
		t.Errorf("%d claimed, %v, want none", tag.RowsAffected(), err)
	}
	if due, err := b.Webhooks.Claim(t.Context(), 10, 8, time.Minute); err != nil || len(due) != 1 {
		t.Fatalf("%d claimed by this version, %v", len(due), err)
	}
	if _, err := b.sql.Exec(t.Context(),
		"UPDATE a2a.push_configs SET url = 'http://127.0.0.1:2/hook?other=1', lease_until = NULL"); err != nil {
		t.Fatal(err)
	}
	if tag, err := b.sql.Exec(t.Context(), claim+" WHERE query IS NULL"); err != nil || tag.RowsAffected() != 1 {
		t.Errorf("%d claimed when it was set again, %v, want one", tag.RowsAffected(), err)
	}
}

func TestRedactedQueryIsRefused(t *testing.T) {
	t.Parallel()
	err := CheckConfig(&a2a.PushConfig{URL: "https://hooks.example/x?[redacted]"}, Policy{}, Limits{})
	if a2a.CodeOf(err) != a2a.CodeInvalidParams {
		t.Errorf("%v, want invalid params", err)
	}
}
