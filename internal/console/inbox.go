package console

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

const inboxPage = 30

// question is what a task waits for a person to say, and the form of the answer.
type question struct {
	operate.TaskRow
	Parts   []shownPart
	Choices []string
	Fields  []field // of a schema that a form can show
	Schema  string  // of an answer, if it has one; indented
	Asked   string  // which question it is, for the form
	MayAct  bool    // the viewer may answer it, or cancel the task
	Large   bool    // it is only the beginning, because others are on the page

	AssignedBy string // who has assigned it; empty: it is not assigned
	AssignedAt time.Time
}

// Link returns the path of the page with this question alone.
func (q *question) Link() string {
	return Prefix + "/inbox?task=" + q.ID.String() + "&asked=" + q.Asked
}

// field is a member of the object that a schema describes.
type field struct {
	Name, Title, Help string
	Kind              string // text, number, yes or choice
	Choices           []string
	Required          bool
	Whole             bool // a number without a fraction
}

// inboxView is the page of questions.
type inboxView struct {
	Questions []*question
	Agents    []choice
	More      string
	Done      string // id of the task that was just answered
	Assignee  string // filter
	Address   string // of the server, before the links of questions
	One       a2a.ID // of the only question that is shown; zero: all are
	Past      bool   // it has been answered since
}

func (c *Console) showInbox(q *request) error {
	form := q.r.URL.Query()
	f := operate.QuestionFilter{Tenant: q.tenant(), Owner: q.owner(), Agent: form.Get("agent"), Limit: inboxPage + 1}
	if after, err := a2a.ParseID(form.Get("after")); err == nil {
		f.After = after
	}
	v := &inboxView{Agents: c.agentChoices(f.Agent), Address: c.addressOf(q.r)}
	if q.mayRead() { // who works for the server is not for owners
		v.Assignee = strings.TrimSpace(form.Get("assignee"))
	}
	if v.Assignee == tasks.Unassigned {
		f.Assignee = new("")
	} else if v.Assignee != "" {
		f.Assignee = &v.Assignee
	}
	if id, err := a2a.ParseID(form.Get("task")); err == nil {
		v.One, f.Task, f.Limit = id, id, 1
	}
	list, err := c.cfg.Store.Operate.Questions(q.Context(), f)
	if err != nil {
		return err
	}
	if id, err := a2a.ParseID(form.Get("done")); err == nil {
		v.Done = id.String()
	}
	if len(list) > inboxPage {
		list = list[:inboxPage]
		next := url.Values{"after": {list[inboxPage-1].ID.String()}}
		for name, value := range map[string]string{"agent": f.Agent, "assignee": v.Assignee} {
			if value != "" {
				next.Set(name, value)
			}
		}
		v.More = Prefix + "/inbox?" + next.Encode()
	}
	for i := range list {
		asks := newQuestion(&list[i], &q.viewer)
		asks.Large = list[i].Large && v.One.IsZero()
		v.Questions = append(v.Questions, asks)
	}
	if asked := form.Get("asked"); !v.One.IsZero() &&
		(len(v.Questions) == 0 || asked != "" && asked != v.Questions[0].Asked) {
		v.Questions, v.Past = nil, true
	}
	return c.render(q, "inbox", "Inbox", v)
}

func newQuestion(in *operate.Question, v *viewer) *question {
	q := &question{
		TaskRow: in.TaskRow, Asked: strconv.FormatInt(in.StatusAt.UnixMilli(), 10), MayAct: v.mayAct(&in.TaskRow),
	}
	if v.mayRead() {
		q.AssignedBy, q.AssignedAt = in.AssignedBy, in.AssignedAt
	} else {
		q.Assignee = ""
	}
	for i := range in.Message {
		if isExpects(&in.Message[i]) {
			continue // the form shows it
		}
		q.Parts = append(q.Parts, v.shown.agentPart(&in.Message[i], ""))
	}
	for k, value := range rawjson.Members(in.Expects) {
		switch string(k) {
		case "choices":
			q.Choices = texts(value)
		case "schema":
			q.Schema, _ = v.shown.json(value, maxText)
			q.Fields = fieldsOf(value)
		}
	}
	return q
}

// isExpects reports whether a part says what an answer must look like.
func isExpects(p *a2a.Part) bool {
	marked, _ := rawjson.Bool(rawjson.Get(p.Metadata, "a2ad/expects"))
	return marked && p.Kind == a2a.PartData
}

func texts(v []byte) (list []string) {
	for e := range rawjson.Elements(v) {
		if s, ok := rawjson.String(e); ok {
			list = append(list, s)
		}
	}
	return list
}

// maxFields is how many members a form shows.
const maxFields = 30

// fieldsOf returns the members of an object whose values a form can show, or nil if the schema describes anything else.
// The server checks the answer against the whole schema in any case.
func fieldsOf(schema []byte) (fields []field) {
	if kind, _ := rawjson.String(rawjson.Get(schema, "type")); kind != "object" {
		return nil
	}
	required := texts(rawjson.Get(schema, "required"))
	properties := rawjson.Get(schema, "properties")
	if rawjson.Empty(properties) {
		return nil
	}
	for k, v := range rawjson.Members(properties) {
		name, ok := rawjson.String(slices.Concat([]byte(`"`), k, []byte(`"`)))
		if !ok || len(fields) == maxFields {
			return nil
		}
		f := field{Name: name, Title: name, Required: slices.Contains(required, name)}
		if title, _ := rawjson.String(rawjson.Get(v, "title")); title != "" {
			f.Title = title
		}
		f.Help, _ = rawjson.String(rawjson.Get(v, "description"))
		switch kind, _ := rawjson.String(rawjson.Get(v, "type")); kind {
		case "string":
			f.Kind = "text"
		case "number", "integer":
			f.Kind, f.Whole = "number", kind == "integer"
		case "boolean":
			f.Kind = "yes"
		default:
			return nil
		}
		if choices := texts(rawjson.Get(v, "enum")); len(choices) > 0 && f.Kind == "text" {
			f.Kind, f.Choices = "choice", choices
		}
		fields = append(fields, f)
	}
	return fields
}

func invalid(format string, args ...any) error {
	return &problem{http.StatusUnprocessableEntity, "Not done", fmt.Sprintf(format, args...)}
}

// answer makes the part of the answer from a form.
func (q *question) answer(form url.Values) (a2a.Part, error) {
	if form.Get("asked") != q.Asked {
		return a2a.Part{}, errOtherQuestion
	}
	if q.Schema == "" {
		text := strings.TrimSpace(form.Get("text"))
		if text == "" {
			return a2a.Part{}, invalid("The answer is empty.")
		}
		return a2a.Part{Kind: a2a.PartText, Text: text}, nil
	}
	data := []byte(strings.TrimSpace(form.Get("json")))
	if q.Fields != nil && len(data) == 0 {
		var err error
		if data, err = objectOf(q.Fields, form); err != nil {
			return a2a.Part{}, err
		}
	}
	if err := rawjson.Check(data, 64); err != nil {
		return a2a.Part{}, invalid("The answer is no valid JSON: %v.", err)
	}
	return a2a.Part{Kind: a2a.PartData, Data: data}, nil
}

// objectOf makes the object that the form describes.
func objectOf(fields []field, form url.Values) ([]byte, error) {
	out := []byte{'{'}
	for _, f := range fields {
		text := strings.TrimSpace(form.Get("field." + f.Name))
		var value []byte
		switch {
		case f.Kind == "yes":
			value = strconv.AppendBool(nil, text == "true")
		case text == "" && !f.Required:
			continue
		case f.Kind == "number":
			n, err := strconv.ParseFloat(text, 64)
			if err != nil || math.IsInf(n, 0) || math.IsNaN(n) || f.Whole && n != math.Trunc(n) {
				return nil, invalid("%s must be a number.", f.Title)
			}
			value = strconv.AppendFloat(nil, n, 'f', -1, 64)
		default:
			value = rawjson.AppendString(nil, text)
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(rawjson.AppendString(out, f.Name), ':'), value...)
	}
	return append(out, '}'), nil
}
