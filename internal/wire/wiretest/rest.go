package wiretest

import (
	"bytes"
	"errors"
	"net/url"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire"
)

// REST reads a request over HTTP+JSON as a server does.
func REST(c wire.Codec, r *wire.Resource) (a2a.Op, wire.Codec, error) {
	method, params, as, err := c.REST(r)
	if err != nil {
		return nil, as, err
	}
	op, err := as.Decode(method, params)
	return op, as, err
}

// CheckREST checks how a codec reads requests over HTTP+JSON. The codec must not change the request, and must
// read it twice alike. Its params must be strict JSON with the id of the path, and its errors must be for the
// caller.
func CheckREST(t Reporter, c wire.Codec, action uint8, task, config, query string, body []byte) {
	t.Helper()
	values, err := url.ParseQuery(query)
	if err != nil || !utf8.ValidString(task) || !utf8.ValidString(config) {
		return
	}
	r := wire.Resource{Action: wire.Action(action)%wire.ActionExtendedCard + 1, TaskID: task, ConfigID: config,
		Query: values}
	if rawjson.Check(body, 64) == nil {
		r.Body = rawjson.Trim(body)
	} else if r.Action == wire.ActionSend || r.Action == wire.ActionStream {
		return
	}
	before := bytes.Clone(r.Body)
	method, params, as, err := c.REST(&r)
	if !bytes.Equal(before, r.Body) {
		t.Fatalf("changed its input: %q", before)
	}
	var e *a2a.Error
	if errors.As(err, &e) && e.Code == a2a.CodeInvalidParams {
		return
	} else if err != nil {
		t.Fatalf("%#v", err)
	}
	if err := rawjson.Check(params, 65); err != nil {
		t.Fatalf("%v in %s", err, params)
	}
	op, err := as.Decode(method, params)
	if err != nil {
		WantClientError(t, c, err)
		return
	}
	again, _, err := REST(c, &r)
	if diff := cmp.Diff(op, again, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Fatalf("read differently twice: %v %s", err, diff)
	}
	if got, of := subject(op); of && got != task {
		t.Fatalf("%T of task %q, want %q", op, got, task)
	}
}

// subject returns the id of the task that an operation is about.
func subject(op a2a.Op) (id string, of bool) {
	switch op := op.(type) {
	case *a2a.GetTask:
		return op.ID, true
	case *a2a.CancelTask:
		return op.ID, true
	case *a2a.Subscribe:
		return op.ID, true
	case *a2a.SetPushConfig:
		return op.TaskID, true
	case *a2a.GetPushConfig:
		return op.TaskID, true
	case *a2a.ListPushConfigs:
		return op.TaskID, true
	case *a2a.DeletePushConfig:
		return op.TaskID, true
	}
	return "", false
}
