package console

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/term"
)

// failureGroup is tasks of an agent that failed with the same message, apart from ids, numbers and other values.
type failureGroup struct {
	ID          string
	Agent       string
	Message     string
	Tasks       int
	First, Last time.Time
}

// values are what differs between messages of one cause. The order matters: a later pattern would match parts of an
// earlier one.
var values = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"'<>]+`), "<url>"},
	{regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`), "<id>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:?\d\d)?`), "<time>"},
	{regexp.MustCompile(`"[^"]*"`), "<text>"},
	{regexp.MustCompile(`\b(0x[0-9a-fA-F]+|[0-9a-fA-F]{8,})\b`), "<id>"},
	{regexp.MustCompile(`\d+([.,:]\d+)*`), "<n>"},
	{regexp.MustCompile(`\s+`), " "},
}

// maxFailureText is how many bytes of a message are compared, and maxFailureShown how many characters of it are shown.
const (
	maxFailureText  = 2048
	maxFailureShown = 240
)

// normalize returns a message without the values that differ between messages of one cause.
func normalize(text string) string {
	if len(text) > maxFailureText {
		text = text[:maxFailureText]
	}
	text = strings.ToValidUTF8(text, "")
	for _, v := range values {
		text = v.pattern.ReplaceAllString(text, v.instead)
	}
	return term.Shorten(strings.TrimSpace(text), maxFailureShown)
}

// failureText is the message of a failed task.
func failureText(f *operate.Failure) string {
	return cmp.Or(strings.TrimSpace(client.Text(f.Message)), f.Error, "no message")
}

// failureID names a group in URLs. It is the same on all replicas.
func failureID(agent, message string) string {
	sum := sha256.Sum256([]byte(agent + "\x00" + message))
	return hex.EncodeToString(sum[:8])
}

// groupFailures groups failures by agent and message, the largest group first.
func groupFailures(list []operate.Failure) []failureGroup {
	groups := make(map[string]*failureGroup)
	for i := range list {
		f := &list[i]
		message := normalize(failureText(f))
		id := failureID(f.Agent, message)
		g := groups[id]
		if g == nil {
			g = &failureGroup{ID: id, Agent: f.Agent, Message: message, First: f.StatusAt, Last: f.StatusAt}
			groups[id] = g
		}
		g.Tasks++
		if f.StatusAt.Before(g.First) {
			g.First = f.StatusAt
		}
		if f.StatusAt.After(g.Last) {
			g.Last = f.StatusAt
		}
	}
	out := make([]failureGroup, 0, len(groups))
	for _, g := range groups {
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b failureGroup) int {
		return cmp.Or(cmp.Compare(b.Tasks, a.Tasks), b.Last.Compare(a.Last), strings.Compare(a.ID, b.ID))
	})
	return out
}

// tasksOfFailure fills the page of tasks with those of a group.
func (c *Console) tasksOfFailure(q *request, v *tasksView, id string) (err error) {
	v.Rows, v.Failure, err = c.failuresOf(q, id)
	if err == nil && v.Failure == nil {
		v.Failure = &failureGroup{ID: id, Message: "No task of the last day failed like this."}
	}
	return err
}

// failuresOf returns the tasks of a group. The group is nil if there is none.
func (c *Console) failuresOf(q *request, id string) (rows []operate.FoundTask, group *failureGroup, err error) {
	list, err := c.cfg.Store.Operate.Failures(q.Context(), q.tenant(), time.Now().Add(-failurePeriod), failureTasks)
	for i := range list {
		message := normalize(failureText(&list[i]))
		if failureID(list[i].Agent, message) != id {
			continue
		}
		if group == nil {
			group = &failureGroup{ID: id, Agent: list[i].Agent, Message: message}
		}
		group.Tasks++
		rows = append(rows, operate.FoundTask{TaskRow: list[i].TaskRow, Error: failureText(&list[i])})
	}
	return rows, group, err
}
