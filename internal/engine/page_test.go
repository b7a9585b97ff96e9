package engine_test

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/store/db"
)

func TestListPagesContainAllTasks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var want []a2a.ID // newest first
	for i := range 7 {
		want = append([]a2a.ID{r.task(fmt.Sprint(i))}, want...)
	}
	for _, size := range []int{1, 3, 7, 100} {
		var got []a2a.ID
		op := &a2a.ListTasks{PageSize: size}
		for {
			page, err := r.List(t.Context(), ann, words, op)
			if err != nil {
				t.Fatal(err)
			}
			if page.Total != 7 || page.PageSize != size || len(page.Tasks) > size {
				t.Errorf("page of %d: %d tasks, total %d, size %d", size, len(page.Tasks), page.Total, page.PageSize)
			}
			for _, task := range page.Tasks {
				got = append(got, task.ID)
				if len(task.History) != 1 || task.Artifacts != nil {
					t.Errorf("task %+v", task)
				}
			}
			if op.PageToken = page.NextToken; op.PageToken == "" {
				break
			}
		}
		same(t, fmt.Sprint("walk by ", size), want, got)
	}
	empty, err := r.List(t.Context(), db.Caller{Tenant: "acme", Owner: "bob"}, words, &a2a.ListTasks{})
	if err != nil || empty.Tasks == nil || len(empty.Tasks) != 0 || empty.Total != 0 || empty.PageSize != 50 ||
		empty.NextToken != "" {
		t.Errorf("the list of an owner without tasks: got %+v, %v", empty, err)
	}
	for _, size := range []int{-1, 101, 1 << 40} {
		_, err := r.List(t.Context(), ann, words, &a2a.ListTasks{PageSize: size})
		wantCode(t, fmt.Sprint("page size ", size), err, a2a.CodeInvalidParams)
	}
}

func TestPageTokenIsValidOnlyForItsList(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 3 {
		r.task(fmt.Sprint(i))
	}
	since := time.UnixMilli(1_700_000_000_000)
	list := a2a.ListTasks{PageSize: 1, State: a2a.StateSubmitted, UpdatedAfter: since}
	page, err := r.List(t.Context(), ann, words, &list)
	if err != nil || page.NextToken == "" {
		t.Fatalf("first page = %+v, %v", page, err)
	}
	token := page.NextToken
	list.PageToken = token
	if _, err := r.List(t.Context(), ann, words, &list); err != nil {
		t.Fatalf("the next page: %v", err)
	}
	sealed, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(op *a2a.ListTasks)) a2a.ListTasks {
		op := list
		change(&op)
		return op
	}
	type try struct {
		caller db.Caller
		agent  *a2a.Agent
		op     a2a.ListTasks
	}
	tries := map[string]try{
		"another owner":    {db.Caller{Tenant: "acme", Owner: "bob"}, words, list},
		"another tenant":   {db.Caller{Tenant: "corp", Owner: "ann"}, words, list},
		"owner and tenant": {db.Caller{Tenant: `acme"|"ann`, Owner: ""}, words, list},
		"another agent":    {ann, &a2a.Agent{Name: "other"}, list},
		"another context":  {ann, words, with(func(op *a2a.ListTasks) { op.ContextID = "c" })},
		"another state":    {ann, words, with(func(op *a2a.ListTasks) { op.State = a2a.StateWorking })},
		"another time": {ann, words, with(func(op *a2a.ListTasks) {
			op.UpdatedAfter = since.Add(time.Millisecond)
		})},
		"no time":            {ann, words, with(func(op *a2a.ListTasks) { op.UpdatedAfter = time.Time{} })},
		"empty when decoded": {ann, words, with(func(op *a2a.ListTasks) { op.PageToken = "=" })},
		"not base64": {ann, words, with(func(op *a2a.ListTasks) {
			op.PageToken = token[:8] + "!" + token[9:]
		})},
		"with padding": {ann, words, with(func(op *a2a.ListTasks) { op.PageToken = token + "==" })},
		"cut":          {ann, words, with(func(op *a2a.ListTasks) { op.PageToken = token[:len(token)-4] })},
		"doubled":      {ann, words, with(func(op *a2a.ListTasks) { op.PageToken = token + token })},
		"10 kB":        {ann, words, with(func(op *a2a.ListTasks) { op.PageToken = strings.Repeat("A", 10<<10) })},
		"nothing but zeros": {ann, words, with(func(op *a2a.ListTasks) {
			op.PageToken = strings.Repeat("A", len(token))
		})},
		"line breaks": {ann, words, with(func(op *a2a.ListTasks) { op.PageToken = token[:8] + "\r\n" + token[8:] })},
	}
	for i := range sealed {
		changed := append([]byte(nil), sealed...)
		changed[i] ^= 1
		tries[fmt.Sprint("byte ", i, " changed")] = try{ann, words, with(func(op *a2a.ListTasks) {
			op.PageToken = base64.RawURLEncoding.EncodeToString(changed)
		})}
	}
	for name, x := range tries {
		_, err := r.List(t.Context(), x.caller, x.agent, &x.op)
		wantCode(t, name, err, a2a.CodeInvalidParams)
	}
	// The page size may change between pages.
	bigger := with(func(op *a2a.ListTasks) { op.PageSize = 10 })
	if page, err := r.List(t.Context(), ann, words, &bigger); err != nil || len(page.Tasks) != 2 {
		t.Errorf("the rest as one page: got %+v, %v", page, err)
	}
	stranger := newRig(t, func(c *engine.Config) { c.PageKey = []byte(strings.Repeat("k", 32)) })
	_, err = stranger.List(t.Context(), ann, words, &list)
	wantCode(t, "another server", err, a2a.CodeInvalidParams)
}

func TestListFilters(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	send := func(text, ctx string) a2a.ID {
		op := send(text)
		op.Message.ContextID = ctx
		task, err := r.Send(t.Context(), ann, words, op)
		if err != nil {
			t.Fatal(err)
		}
		return task.ID
	}
	a := send("a", "c1")
	r.append(r.claim(), artifact("x", "1", false), status(a2a.StateCompleted, "done"))
	b := send("b", "c2")
	for _, tt := range []struct {
		name string
		op   a2a.ListTasks
		want []a2a.ID
	}{
		{"context", a2a.ListTasks{ContextID: "c1"}, []a2a.ID{a}},
		{"state", a2a.ListTasks{State: a2a.StateSubmitted}, []a2a.ID{b}},
		{"both", a2a.ListTasks{ContextID: "c1", State: a2a.StateSubmitted}, nil},
		{"time", a2a.ListTasks{UpdatedAfter: time.Now().Add(time.Hour)}, nil},
		{"none", a2a.ListTasks{}, []a2a.ID{b, a}},
	} {
		page, err := r.List(t.Context(), ann, words, &tt.op)
		if err != nil {
			t.Fatal(err)
		}
		var got []a2a.ID
		for _, task := range page.Tasks {
			got = append(got, task.ID)
		}
		same(t, tt.name, tt.want, got)
	}
	page, err := r.List(t.Context(), ann, words,
		&a2a.ListTasks{ContextID: "c1", IncludeArtifacts: true, HistoryLength: new(int)})
	if err != nil || len(page.Tasks[0].Artifacts) != 1 || len(page.Tasks[0].History) != 0 ||
		page.Tasks[0].Status.Message == nil {
		t.Errorf("with artifacts, without history: %+v, %v", page, err)
	}
}

func TestPageKeyMustHave32Bytes(t *testing.T) {
	t.Parallel()
	for _, key := range [][]byte{nil, make([]byte, 7)} {
		if _, err := engine.New(nil, nil, engine.Config{PageKey: key}); err == nil {
			t.Errorf("a key of %d bytes was accepted", len(key))
		}
	}
}

// FuzzPageToken: any text that a client sends as a token gives an error, never a page of another
// list and never a crash.
func FuzzPageToken(f *testing.F) {
	r := newRig(f, func(c *engine.Config) { rand.Read(c.PageKey) }) // each process of a fuzz run has its own
	r.task("a")
	r.task("b")
	page, err := r.List(f.Context(), ann, words, &a2a.ListTasks{PageSize: 1})
	if err != nil {
		f.Fatal(err)
	}
	token := page.NextToken
	for _, seed := range []string{token, token[1:], token + "A", "", "AAAA", "!", strings.Repeat("x", 2000)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		page, err := r.List(t.Context(), ann, words, &a2a.ListTasks{PageSize: 1, PageToken: s})
		switch {
		case s == token || s == "":
			if err != nil || len(page.Tasks) != 1 {
				t.Errorf("token %q: %+v, %v", s, page, err)
			}
		case err == nil:
			t.Errorf("token %q was accepted", s)
		default:
			wantCode(t, s, err, a2a.CodeInvalidParams)
		}
	})
}

func TestPagesOfWebhooks(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *engine.Config) {
		c.Push = engine.PushRules{
			Check: func(*a2a.PushConfig) error { return nil }, Origin: func(string) string { return "o" },
			Seal: func(a2a.ID, *a2a.PushConfig) (token, credentials []byte, err error) { return nil, nil, nil },
		}
	})
	id := r.task("x").String()
	var want []string // oldest first
	for i := range 5 {
		want = append(want, fmt.Sprint("hook-", i))
		_, err := r.SetPush(t.Context(), ann, words, &a2a.SetPushConfig{TaskID: id,
			Config: a2a.PushConfig{ID: want[i], URL: "https://x", Version: a2a.PushV03}})
		if err != nil {
			t.Fatal(err)
		}
	}
	page := func(size int, token string) (ids []string, next string) {
		p, err := r.ListPushes(t.Context(), ann, words,
			&a2a.ListPushConfigs{TaskID: id, PageSize: size, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range p.Configs {
			ids = append(ids, c.ID)
		}
		return ids, p.NextToken
	}
	for _, size := range []int{0, 1, 2, 5, 1000} {
		var got []string
		for token := ""; ; {
			ids, next := page(size, token)
			if size > 0 && len(ids) > size {
				t.Errorf("a page of %d has %d webhooks", size, len(ids))
			}
			if got, token = append(got, ids...), next; token == "" {
				break
			}
		}
		same(t, fmt.Sprint("walk by ", size), want, got)
	}
	// If the last webhook of a page is deleted, the list continues after its position.
	_, token := page(2, "")
	if err := r.DeletePush(t.Context(), ann, words, &a2a.DeletePushConfig{TaskID: id, ConfigID: "hook-1"}); err != nil {
		t.Fatal(err)
	}
	rest, _ := page(0, token)
	same(t, "after a deleted webhook", want[2:], rest)
	// A token is valid for one task and one kind of list.
	other := r.task("y").String()
	r.task("z")
	tasks, err := r.List(t.Context(), ann, words, &a2a.ListTasks{PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, op := range map[string]*a2a.ListPushConfigs{
		"of another task": {TaskID: other, PageToken: token}, "of tasks": {TaskID: id, PageToken: tasks.NextToken},
		"made up": {TaskID: id, PageToken: "x"}, "size": {TaskID: id, PageSize: -1},
	} {
		_, err := r.ListPushes(t.Context(), ann, words, op)
		wantCode(t, name, err, a2a.CodeInvalidParams)
	}
	_, err = r.List(t.Context(), ann, words, &a2a.ListTasks{PageToken: token})
	wantCode(t, "a token of webhooks for tasks", err, a2a.CodeInvalidParams)
}
