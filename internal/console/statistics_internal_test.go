package console

import (
	"net/url"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/operate"
)

func TestNormalizeJoinsMessagesOfOneCause(t *testing.T) {
	t.Parallel()
	for want, texts := range map[string][]string{
		"upstream <url> answered <n> after <n> ms": {
			"upstream https://crm.example/v1/7 answered 503 after 12 ms",
			"upstream http://10.0.0.1:80 answered 500 after 3.5 ms",
		},
		"task <id> is gone": {"task 01a211d8-5e78-7de7-886e-4f33474d1cb6 is gone",
			"task  deadbeef01\nis gone"},
		"customer <text> has no contract": {`customer "c-1" has no contract`, `customer "" has no contract`},
		"failed at <time>":                {"failed at 2026-11-25T08:35:10.241Z", "failed at 2026-11-25 08:35"},
		"connection refused":              {"connection refused"},
	} {
		for _, text := range texts {
			if got := normalize(text); got != want {
				t.Errorf("normalize(%q) = %q, want %q", text, got, want)
			}
		}
	}
}

func TestFailuresAreGroupedByAgentAndMessage(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 25, 8, 0, 0, 0, time.UTC)
	failure := func(agent, text string, minute int) operate.Failure {
		return operate.Failure{TaskRow: operate.TaskRow{Agent: agent,
			StatusAt: at.Add(time.Duration(minute) * time.Minute)},
			Error: text}
	}
	got := groupFailures([]operate.Failure{
		failure("b", "timeout after 3 s", 5), failure("a", "timeout after 9 s", 4), failure("a",
			"timeout after 1 s", 1),
		failure("a", "timeout after 2 s", 9),
	})
	if len(got) != 2 || got[0].Agent != "a" || got[0].Tasks != 3 || !got[0].First.Equal(at.Add(time.Minute)) ||
		!got[0].Last.Equal(at.Add(9*time.Minute)) || got[1].Tasks != 1 || got[0].ID == got[1].ID {
		t.Errorf("groups %+v", got)
	}
}

func TestOverviewMakesStatisticsOfEachAgent(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 9, 0, 0, 0, time.UTC)
	a := &operate.Activity{
		Open: []operate.TaskCount{{Agent: "a", State: a2a.StateWorking, Tasks: 3}, {Agent: "a",
			State: a2a.StateInputRequired, Tasks: 2}},
		Queues: []operate.QueueDepth{{Agent: "a", Waiting: 4, Oldest: time.Minute}, {Agent: "b", Waiting: 1,
			Oldest: -time.Second}},
	}
	for i := 1; i <= 20; i++ {
		state := a2a.StateCompleted
		if i == 20 {
			state = a2a.StateFailed
		}
		created := now.Add(-30 * time.Minute)
		a.Recent = append(a.Recent, operate.Sampled{Agent: "a", State: state, CreatedAt: created,
			StatusAt: created.Add(time.Duration(i) * time.Second)})
	}
	// The first one was imported: it seems to have ended when it was made.
	for _, took := range []time.Duration{0, 8 * time.Second} {
		created := now.Add(-time.Minute)
		a.Recent = append(a.Recent, operate.Sampled{
			Agent: "c", State: a2a.StateCompleted, CreatedAt: created, StatusAt: created.Add(took),
		})
	}
	o := newOverview(a, []*a2a.Agent{{Name: "c"}}, now)
	if len(o.Agents) != 3 || o.InFlight != 3 || o.Asking != 2 || o.Queued != 5 || o.Sampled {
		t.Fatalf("overview %+v", o)
	}
	l := o.Agents[0]
	if l.Tasks != 20 || l.Failed != 1 || l.FailedShare() != 5 || l.P50 != 10*time.Second || l.P95 != 19*time.Second ||
		l.Oldest != time.Minute || l.Served || len(l.Spark.Bars) != 1 || l.Spark.Bars[0].X != 14*4 {
		t.Errorf("agent a: %+v", l)
	}
	if b, c := o.Agents[1], o.Agents[2]; b.Oldest != 0 || !c.Served || c.P50 != 8*time.Second {
		t.Errorf("agents %+v and %+v", b, c)
	}
}

const schema = `{"type":"object","required":["amount","why"],"properties":{
	"amount":{"type":"integer","title":"Amount"},"why":{"type":"string"},"urgent":{"type":"boolean"},
	"kind":{"type":"string","enum":["cash","card"]},"note":{"type":"string"}}}`

func TestSchemaOfAnAnswerBecomesAForm(t *testing.T) {
	t.Parallel()
	q := newQuestion(&operate.Question{Expects: a2a.Raw(`{"schema":` + schema + `}`)}, &viewer{})
	if len(q.Fields) != 5 || q.Fields[0].Title != "Amount" || !q.Fields[1].Required || q.Fields[3].Kind != "choice" {
		t.Fatalf("fields %+v", q.Fields)
	}
	form := url.Values{"asked": {q.Asked}, "field.amount": {"120"}, "field.why": {`"broken" </script>`},
		"field.urgent": {"true"},
		"field.kind":   {"card"}}
	part, err := q.answer(form)
	want := `{"amount":120,"why":"\"broken\" </script>","urgent":true,"kind":"card"}`
	if err != nil || part.Kind != a2a.PartData || string(part.Data) != want {
		t.Errorf("the answer is %s, %v; want %s", part.Data, err, want)
	}
	for _, bad := range []string{"1.5", "x", "NaN", ""} {
		form.Set("field.amount", bad)
		if part, err := q.answer(form); err == nil {
			t.Errorf("the amount %q became %s", bad, part.Data)
		}
	}
}

func TestQuestionsThatNoFormCanShowGetJSON(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{`{"type":"array"}`, `{"type":"object","properties":{"a":{"type":"object"}}}`,
		`true`} {
		q := newQuestion(&operate.Question{Expects: a2a.Raw(`{"schema":` + schema + `}`)}, &viewer{})
		if q.Fields != nil || q.Schema == "" {
			t.Errorf("%s has the fields %+v", schema, q.Fields)
		}
		if _, err := q.answer(url.Values{"asked": {q.Asked}, "json": {`{"a":`}}); err == nil {
			t.Errorf("%s accepts broken JSON", schema)
		}
		part, err := q.answer(url.Values{"asked": {q.Asked}, "json": {` {"a":{}} `}})
		if err != nil || string(part.Data) != `{"a":{}}` {
			t.Errorf("the answer is %s, %v", part.Data, err)
		}
	}
	q := newQuestion(&operate.Question{Expects: a2a.Raw(`{"choices":["yes","no"]}`)}, &viewer{})
	if len(q.Choices) != 2 || q.Choices[1] != "no" {
		t.Errorf("choices %v", q.Choices)
	}
}

func TestQuestionHidesWhatItsFormShows(t *testing.T) {
	t.Parallel()
	expects := a2a.Raw(`{"choices":["yes","no"]}`)
	q := newQuestion(&operate.Question{Expects: expects, Message: []a2a.Part{
		{Kind: a2a.PartText, Text: "Go on?"}, {Kind: a2a.PartData, Data: a2a.Raw(`{"price":12}`)},
		{Kind: a2a.PartData, Data: expects, Metadata: a2a.Raw(`{"a2ad/expects":true}`)},
	}}, &viewer{})
	if len(q.Choices) != 2 || len(q.Parts) != 2 || q.Parts[0].Text != "Go on?" || !q.Parts[1].Open {
		t.Errorf("the question is %+v", q)
	}
}
