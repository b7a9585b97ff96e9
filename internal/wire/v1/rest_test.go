package v1_test

import (
	"crypto/sha256"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/wire"
	"github.com/a2ad/a2ad/internal/wire/wiretest"
)

var (
	two       = 2
	zero      = 0
	when      = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	restRules = a2a.StreamRules{ResumeAsTask: true}
)

func TestREST(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		action wire.Action
		query  string
		body   string
		want   a2a.Op
	}{
		{wire.ActionGet, "", "", &a2a.GetTask{ID: "t"}},
		{wire.ActionGet, "historyLength=2&unknown=1&id=other", "", &a2a.GetTask{ID: "t", HistoryLength: &two}},
		{wire.ActionGet, "history_length=0", "", &a2a.GetTask{ID: "t", HistoryLength: &zero}},
		{wire.ActionGet, "historyLength=&tenant=", "", &a2a.GetTask{ID: "t"}},
		{wire.ActionList, "", "", &a2a.ListTasks{}},
		{wire.ActionList,
			"contextId=c%20%C3%BC&status=TASK_STATE_WORKING&pageSize=2&pageToken=x%2By&historyLength=2&" +
				"includeArtifacts=true&statusTimestampAfter=2026-11-20T10:00:00Z", "",
			&a2a.ListTasks{ContextID: "c ü", State: a2a.StateWorking, PageSize: 2, PageToken: "x+y",
				HistoryLength: &two, IncludeArtifacts: true, UpdatedAfter: when}},
		{wire.ActionList,
			"context_id=c&page_size=2&page_token=x&history_length=2&include_artifacts=false&" +
				"status_timestamp_after=2026-11-20T11:00:00%2B01:00&status=2", "",
			&a2a.ListTasks{ContextID: "c", State: a2a.StateWorking, PageSize: 2, PageToken: "x", HistoryLength: &two,
				UpdatedAfter: when}},
		{wire.ActionList, "lastUpdatedAfter=2026-11-20T10:00:00Z&status=TASK_STATE_UNSPECIFIED", "",
			&a2a.ListTasks{UpdatedAfter: when}},
		{wire.ActionCancel, "", "", &a2a.CancelTask{ID: "t", RepeatOK: true}},
		{wire.ActionCancel, "", `{"id":"other","metadata":{"k":1e400},"x":1}`,
			&a2a.CancelTask{ID: "t", RepeatOK: true, Metadata: a2a.Raw(`{"k":1e400}`)}},
		{wire.ActionSubscribe, "", "", &a2a.Subscribe{ID: "t", StreamRules: restRules}},
		{wire.ActionSubscribe, "", `{"id":"other"}`, &a2a.Subscribe{ID: "t", StreamRules: restRules}},
		{wire.ActionSetPush, "", `{"task_id":"other","id":"p","url":"u"}`,
			&a2a.SetPushConfig{TaskID: "t", Config: a2a.PushConfig{ID: "p", URL: "u", Version: a2a.PushV10}}},
		{wire.ActionSetPush, "", `{"url":"u"}`,
			&a2a.SetPushConfig{TaskID: "t", Config: a2a.PushConfig{URL: "u", Version: a2a.PushV10}}},
		{wire.ActionGetPush, "", "", &a2a.GetPushConfig{TaskID: "t", ConfigID: "c"}},
		{wire.ActionListPushes, "pageSize=2&page_token=x", "",
			&a2a.ListPushConfigs{TaskID: "t", PageSize: 2, PageToken: "x"}},
		{wire.ActionDeletePush, "", "", &a2a.DeletePushConfig{TaskID: "t", ConfigID: "c"}},
		{wire.ActionExtendedCard, "", "", &a2a.GetExtendedCard{Undeclared: a2a.CodeUnsupportedOperation}},
	} {
		op, _, err := readREST(t, tc.action, tc.query, tc.body)
		if diff := cmp.Diff(tc.want, op); err != nil || diff != "" {
			t.Errorf("%d ?%s %s: %v, -want +got\n%s", tc.action, tc.query, tc.body, err, diff)
		}
	}
	op, _, err := readREST(t, wire.ActionStream, "", `{"message":`+hello+`}`)
	if sent, ok := op.(*a2a.SendMessage); err != nil || !ok || !sent.Stream ||
		sent.Digest != sha256.Sum256([]byte(`{"message":`+hello+`}`)) {
		t.Errorf("stream: %v %v", op, err)
	}
}

func readREST(t *testing.T, action wire.Action, query, body string) (a2a.Op, wire.Codec, error) {
	t.Helper()
	values, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	r := wire.Resource{Action: action, TaskID: "t", ConfigID: "c", Query: values}
	if body != "" {
		r.Body = []byte(body)
	}
	return wiretest.REST(codec, &r)
}

func TestRESTBadRequests(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		action             wire.Action
		query, body, field string
	}{
		{wire.ActionGet, "historyLength=-1", "", "historyLength"},
		{wire.ActionGet, "historyLength=1.5", "", "historyLength"},
		{wire.ActionGet, "historyLength=x", "", "historyLength"},
		{wire.ActionGet, "historyLength=1&history_length=1", "", "historyLength"},
		{wire.ActionGet, "historyLength=1&historyLength=2", "", "historyLength"},
		{wire.ActionGet, "historyLength=99999999999999999999", "", "historyLength"},
		{wire.ActionList, "pageSize=0", "", "pageSize"}, {wire.ActionList, "pageSize=101", "", "pageSize"},
		{wire.ActionList, "page_size=true", "", "pageSize"},
		{wire.ActionList, "includeArtifacts=1", "", "includeArtifacts"},
		{wire.ActionList, "includeArtifacts=TRUE", "", "includeArtifacts"},
		{wire.ActionList, "status=working", "", "status"}, {wire.ActionList, "status=9", "", "status"},
		{wire.ActionList, "status=-1", "", "status"}, {wire.ActionList, "status=02", "", "status"},
		{wire.ActionList, "statusTimestampAfter=yesterday", "", "statusTimestampAfter"},
		{wire.ActionList, "contextId=%00", "", "contextId"},
		{wire.ActionList, "contextId=%FF", "", "contextId"},
		{wire.ActionList, "lastUpdatedAfter=2026-11-20T10:00:00Z&statusTimestampAfter=2026-11-20T10:00:00Z", "",
			"statusTimestampAfter"},
		{wire.ActionCancel, "", `[]`, "params"}, {wire.ActionCancel, "", `{"metadata":1}`, "metadata"},
		{wire.ActionSend, "", `null`, "message"},
		{wire.ActionSetPush, "", `{}`, "url"},
		{wire.ActionSetPush, "", `{"url":"u","authentication":{}}`, "authentication.scheme"},
	} {
		_, _, err := readREST(t, tc.action, tc.query, tc.body)
		wiretest.WantInvalid(t, err, tc.field, "REST", tc.query+tc.body)
	}
}

func FuzzREST(f *testing.F) {
	for action := range uint8(11) {
		f.Add(action, "t", "c", "historyLength=2&pageSize=3&status=2&includeArtifacts=true&tenant=x&context_id=%FF",
			[]byte(`{"id":"x","task_id":"y","metadata":{},"url":"u"}`))
		f.Add(action, "\u2028\\\"", "", "a=b", []byte(nil))
	}
	f.Fuzz(func(t *testing.T, action uint8, task, config, query string, body []byte) {
		wiretest.CheckREST(t, codec, action, task, config, query, body)
	})
}
