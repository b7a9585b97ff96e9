package console

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/sse"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tasks"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

// playground is the page on which an operator talks to an agent, as a client of it.
type playground struct {
	Agents   []choice
	Agent    *a2a.Agent // that is talked to; nil: this server has none
	Findings []cardFinding
	CardURL  string
	MaySend  bool
	Task     *playedTask // nil: nothing was sent yet
	Snippets []snippet   // that send the same message
}

// playedTask is a task of the playground, with what was streamed of it.
type playedTask struct {
	operate.TaskRow
	Live      string // URL of the events that change the page; empty: the task has ended
	Own       bool   // it belongs to the viewer
	Messages  []shownMessage
	Artifacts []shownArtifact
	TooLarge  int64
	Frames    []rawEvent
	Drop      *drop // nil: the viewer has not dropped the stream
	More      int64 // seq after which further frames are; 0: none
}

// showPlayground shows the form of a first message.
func (c *Console) showPlayground(q *request) error {
	v := c.newPlayground(q, q.r.URL.Query().Get("agent"))
	return c.render(q, "playground", "Playground", v)
}

func (c *Console) newPlayground(q *request, name string) *playground {
	served := c.cfg.Agents()
	v := &playground{MaySend: q.principal.Has(auth.ScopeTasksWrite)}
	for _, a := range served {
		if name == a.Name || name == "" && a.Default || v.Agent == nil && name == "" {
			v.Agent = a
		}
	}
	for _, a := range served {
		v.Agents = append(v.Agents, choice{Value: a.Name, On: a == v.Agent})
	}
	if v.Agent != nil {
		card := v.Agent.Card
		if served, ok := c.cfg.Card(v.Agent.Name); ok {
			card = served
		}
		v.Findings, v.CardURL = checkCard(&card), "/agents/"+v.Agent.Name+"/.well-known/agent-card.json"
	}
	return v
}

// sendPlayed sends the message of the form in the name of the viewer, and shows its task.
func (c *Console) sendPlayed(q *request) error {
	form := q.r.PostForm
	v := c.newPlayground(q, form.Get("agent"))
	if v.Agent == nil {
		return errNotFound
	}
	m := a2a.Message{ID: db.NewUID().String(), Role: a2a.RoleUser, TaskID: form.Get("task")}
	var err error
	if m.Parts, err = playedParts(q); err != nil {
		return err
	}
	t, err := c.cfg.Engine.Send(q.Context(), q.caller(), v.Agent, &a2a.SendMessage{
		Message: m, Digest: sha256.Sum256([]byte(m.ID)),
	})
	if err != nil {
		return err
	}
	http.Redirect(q.w, q.r, Prefix+"/playground/"+t.ID.String(), http.StatusSeeOther)
	return nil
}

// caller is the viewer as a client of agents.
func (q *request) caller() db.Caller {
	return db.Caller{Tenant: q.principal.Tenant, Owner: q.principal.Owner, Actor: q.Who()}
}

// playedParts makes the parts of a message from the form: a text, JSON and a file, of which one is enough.
func playedParts(q *request) (parts []a2a.Part, err error) {
	if text := strings.TrimSpace(q.r.PostForm.Get("text")); text != "" {
		parts = append(parts, a2a.Part{Kind: a2a.PartText, Text: text})
	}
	if data := []byte(strings.TrimSpace(q.r.PostForm.Get("data"))); len(data) > 0 {
		if err := rawjson.Check(data, 64); err != nil {
			return nil, invalid("The data is no valid JSON: %v.", err)
		}
		parts = append(parts, a2a.Part{Kind: a2a.PartData, Data: data})
	}
	file, header, err := q.r.FormFile("file")
	if err == nil {
		defer file.Close()
		body, err := io.ReadAll(file)
		if err != nil {
			return nil, fmt.Errorf("read file: %w", err)
		}
		parts = append(parts, a2a.Part{
			Kind: a2a.PartFile, Text: base64.StdEncoding.EncodeToString(body), Filename: header.Filename,
			MediaType: http.DetectContentType(body),
		})
	} else if !errors.Is(err, http.ErrMissingFile) && !errors.Is(err, http.ErrNotMultipart) {
		return nil, invalid("The file could not be read.")
	}
	if len(parts) == 0 {
		return nil, invalid("The message is empty.")
	}
	return parts, nil
}

// showPlayed shows a task of the viewer with the frames of its stream.
func (c *Console) showPlayed(q *request) error {
	row, err := c.find(q)
	if err != nil {
		return err
	}
	v := c.newPlayground(q, row.Agent)
	t := &playedTask{TaskRow: row}
	v.Task = t
	t.Own = row.Tenant == q.principal.Tenant && row.Owner == q.principal.Owner
	v.MaySend = v.MaySend && t.Own && !row.State.Terminal()
	if !row.State.Terminal() {
		t.Live = Prefix + "/tasks/" + row.ID.String() + "/live?after=" + strconv.FormatInt(row.LastSeq, 10)
	}
	task, err := c.content(q, row.ID)
	var large *tasks.TooMuch
	switch {
	case errors.As(err, &large):
		t.TooLarge = large.Bytes
	case err != nil:
		return err
	default:
		t.Messages, t.Artifacts = q.shown.content(task)
		if i := slices.IndexFunc(task.History, func(m a2a.Message) bool { return m.Role == a2a.RoleUser }); i >= 0 {
			v.Snippets = snippetsOf(c.addressOf(q.r), row.Agent, c.cfg.Open, task.History[i].Parts)
		}
	}
	if t.Frames, t.More, err = c.frames(q, &row, 0, v1.Codec{}); err != nil {
		return err
	}
	if err := c.dropAt(q, t, v.Agent); err != nil {
		return err
	}
	if t.Drop != nil && v.Snippets != nil {
		v.Snippets = append(v.Snippets, resumeSnippet(c.addressOf(q.r), &row, c.cfg.Open, t.Drop.ID))
	}
	return c.render(q, "playground", "Playground", v)
}

// eventForm is how a version of the protocol writes events.
type eventForm interface {
	AppendEvent(dst []byte, e *a2a.Entry, last bool) []byte
}

// frames returns the events of a task after a number, as its stream sends them.
func (c *Console) frames(
	q *request, t *operate.TaskRow, after int64, form eventForm,
) (list []rawEvent, more int64, err error) {
	entries, cut, err := c.cfg.Store.Tasks.EventPage(q.Context(), t.ID, max(after, 0), rawEvents, 1<<20)
	for i := range entries {
		e := &entries[i]
		e.ContextID = t.ContextID
		list = append(list, rawEvent{
			Seq: e.Seq, ID: sse.FormatID(e.Seq, e.UID.Short()), At: e.Time,
			JSON: q.shown.frame(form.AppendEvent(nil, e, e.State().Terminal())),
		})
		if cut {
			more = e.Seq
		}
	}
	return list, more, err
}

// addressOf returns the URL of the server as its clients know it.
func (c *Console) addressOf(r *http.Request) string {
	if c.cfg.PublicURL != "" {
		return c.cfg.PublicURL
	}
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}
