package storetest

import (
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// WebhookOrigin is where NewWebhook delivers to.
const WebhookOrigin = "https://hooks.example:443"

// RefusedTry is an attempt that the destination refused.
var RefusedTry = webhooks.Try{Status: 500, Class: "server_error", Reason: "answered 500"}

// NewWebhook returns a client's webhook. Its secrets name the row that they were encrypted for.
func NewWebhook(id string) webhooks.NewWebhook {
	return webhooks.NewWebhook{
		ConfigID: id, URL: WebhookOrigin + "/" + id, Origin: WebhookOrigin,
		Schemes: []string{"Bearer"}, Version: a2a.PushV03,
		Seal: func(row a2a.ID) (token, credentials []byte, err error) {
			return []byte("token of " + row.String()), []byte("credentials of " + row.String()), nil
		},
	}
}

// SetWebhook sets a webhook on a task of Ann.
func (f *Fixture) SetWebhook(task a2a.ID, id string) {
	f.T.Helper()
	if err := f.Tasks.SetWebhook(f.T.Context(), Ann, Agent, task, NewWebhook(id), 10); err != nil {
		f.T.Fatalf("set webhook %s: %v", id, err)
	}
}

// NewTaskWithWebhook submits one new task with a webhook.
func (f *Fixture) NewTaskWithWebhook(id string) a2a.ID {
	f.T.Helper()
	in, webhook := Submission("hello"), NewWebhook(id)
	in.Push = &webhook
	return f.Submit(in).Task
}

// ClaimWebhooks claims up to that many webhooks that are due, at most 8 per origin.
func (f *Fixture) ClaimWebhooks(limit int) []webhooks.Delivery {
	f.T.Helper()
	due, err := f.Webhooks.Claim(f.T.Context(), limit, 8, time.Minute)
	if err != nil {
		f.T.Fatalf("claim webhooks: %v", err)
	}
	return due
}

// DueWebhook ends every delay, and claims the only webhook that is due then.
func (f *Fixture) DueWebhook() *webhooks.Delivery {
	f.T.Helper()
	f.Exec(`UPDATE a2a.push_configs SET next_attempt_at = clock_timestamp()
		WHERE state = 'active' AND cursor_seq < head_seq`)
	due := f.ClaimWebhooks(10)
	if len(due) != 1 {
		f.T.Fatalf("%d webhooks are due, want 1", len(due))
	}
	return &due[0]
}

// Delivered records that the destination accepted a delivery; terminal: with the last event of the task.
func (f *Fixture) Delivered(d *webhooks.Delivery, terminal bool) {
	f.T.Helper()
	try := &webhooks.Try{Status: 200, Took: time.Millisecond}
	if err := f.Webhooks.RecordDelivery(f.T.Context(), d, try, terminal); err != nil {
		f.T.Fatalf("record delivery: %v", err)
	}
}

// Failed records RefusedTry, and reports whether that disabled the destination.
func (f *Fixture) Failed(d *webhooks.Delivery, x webhooks.Failure) (disabled bool) {
	f.T.Helper()
	disabled, err := f.Webhooks.RecordFailure(f.T.Context(), d, &RefusedTry, x)
	if err != nil {
		f.T.Fatalf("record failure: %v", err)
	}
	return disabled
}

// Progress is how far a webhook is in the log of its task.
type Progress struct {
	State              string
	From, Cursor, Head int64
	Due                bool
}

// Progress reads it for the newest webhook of that id.
func (f *Fixture) Progress(task a2a.ID, id string) (p Progress) {
	f.T.Helper()
	err := f.SQL.QueryRow(f.T.Context(), `
		SELECT state, from_seq, cursor_seq, head_seq,
		  next_attempt_at <= clock_timestamp() AND cursor_seq < head_seq
		FROM a2a.push_configs WHERE task_id = $1 AND config_id = $2
		ORDER BY deleted_at DESC NULLS FIRST LIMIT 1`, task, id).
		Scan(&p.State, &p.From, &p.Cursor, &p.Head, &p.Due)
	if err != nil {
		f.T.Fatalf("webhook %s: %v", id, err)
	}
	return p
}
