package push

import (
	"fmt"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// request builds what is sent. Its id and body are the same on every attempt.
func (d *Deliverer) request(due *webhooks.Delivery, task *a2a.Task, leaseValid func() bool) (*Request, error) {
	token, err := d.open(due, due.Token, columnToken)
	if err != nil {
		return nil, err
	}
	credentials, err := d.open(due, due.Credentials, columnCredentials)
	if err != nil {
		return nil, err
	}
	query, err := d.open(due, due.Query, columnQuery)
	if err != nil {
		return nil, err
	}
	url := due.URL
	if base, _, ok := strings.Cut(url, "?"); ok && len(due.Query) > 0 {
		url = base + "?" + string(query)
	}
	return &Request{
		ID: fmt.Sprintf("msg_%s_%d", due.Row, due.Seq), Task: due.Task.String(),
		URL: url, Version: Version(due.Version), Body: d.body(due.Version, task),
		Token: token, Schemes: due.Schemes, Credentials: credentials,
		Signer: d.cfg.Keys.Signer(), Issuer: d.cfg.Keys.Issuer(),
		Traceparent: string(due.Traceparent.Next()), LeaseValid: leaseValid,
	}, nil
}

// open decrypts a secret of a webhook.
func (d *Deliverer) open(due *webhooks.Delivery, sealed []byte, column string) (a2a.Secret, error) {
	if len(sealed) == 0 {
		return "", nil
	}
	plain, err := d.cfg.Ring.Open(sealed, secretOf(due.Row, column))
	if err != nil {
		return "", fmt.Errorf("open the %s of the webhook: %w", column, err)
	}
	return a2a.Secret(plain), nil
}

// body renders the task, within the limit.
func (d *Deliverer) body(version int16, task *a2a.Task) []byte {
	render := d.cfg.Render[version]
	body := render(task)
	if d.cfg.MaxBody <= 0 || len(body) <= d.cfg.MaxBody {
		return body
	}
	short := *task
	short.History = nil
	if body = render(&short); len(body) <= d.cfg.MaxBody {
		return body
	}
	short.Artifacts = nil
	if body = render(&short); len(body) <= d.cfg.MaxBody {
		return body
	}
	short.Status.Message = nil
	return render(&short)
}
