package console_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

var frameID = regexp.MustCompile(`id: <span class="mono">(\d+-[0-9a-f]{8})</span>`)

// frameIDs returns the ids of the frames of a page.
func frameIDs(page string) (ids []string) {
	for _, m := range frameID.FindAllStringSubmatch(page, -1) {
		ids = append(ids, m[1])
	}
	return ids
}

// played sends a message from the playground and returns the page of its task.
func (b *browser) played() (page string, id a2a.ID) {
	b.t.Helper()
	b.play("/console/playground", map[string]string{"agent": storetest.Agent, "text": "hi"}, "")
	page = b.last.Header.Get("Location")
	id, err := a2a.ParseID(strings.TrimPrefix(page, "/console/playground/"))
	if err != nil {
		b.t.Fatal(err)
	}
	return page, id
}

func TestDroppedStreamIsResumed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve(open)
	path, id := b.played()
	lease := r.ClaimTask(id)
	r.Append(lease, storetest.Artifact("a", "before the drop"))
	ids := frameIDs(b.page(path))
	last := ids[len(ids)-1]
	dropped := b.page(path + "?dropped=" + last)
	r.Append(lease, storetest.Artifact("b", "after the drop"), storetest.Status(a2a.StateWorking, "going on"))
	if again := b.page(path + "?dropped=" + last); strings.Contains(frames(again), "after the drop") {
		t.Error("frames come after the stream was dropped")
	}
	for _, want := range []string{"dropped after frame", "Resume the stream", "Last-Event-ID: " + last} {
		if !strings.Contains(dropped, want) {
			t.Errorf("the page of a dropped stream does not show %q", want)
		}
	}
	if strings.Contains(dropped, "data-live") {
		t.Error("the page of a dropped stream is live")
	}
	resumed := b.page(path + "?dropped=" + last + "&resumed=yes")
	for _, want := range []string{"after the drop", "going on", "Nothing is missing", "data-live"} {
		if !strings.Contains(resumed, want) {
			t.Errorf("the page of a resumed stream does not show %q", want)
		}
	}
	// A stream of 1.0 that is resumed begins with the task as of the frame before.
	want := append(ids, last, frameIDs(b.page(path))[len(ids)], frameIDs(b.page(path))[len(ids)+1])
	if got := frameIDs(resumed); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the frames are %v, want %v", got, want)
	}
	// The events of the gap are gone: the page must not say that nothing is missing.
	r.Exec(`DELETE FROM a2a.task_events WHERE task_id = $1 AND seq = $2`, id.String(), len(ids)+1)
	if lost := b.page(path + "?dropped=" + last + "&resumed=yes"); strings.Contains(lost, "Nothing is missing") ||
		!strings.Contains(lost, "The server ended the stream") {
		t.Error("an event was lost, and the page does not say so")
	}
}

// frames returns the part of a page that shows the frames.
func frames(page string) string {
	_, after, _ := strings.Cut(page, `aria-label="Frames"`)
	return after
}

func TestStreamOfSomebodyElseIsNotDropped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve(open)
	lease := r.RunningTask() // of ann
	path := "/console/playground/" + lease.TaskID.String()
	page := b.page(path)
	if strings.Contains(page, "Drop the stream") {
		t.Error("the page offers to drop the stream of somebody else")
	}
	if got := b.page(path + "?dropped=" + frameIDs(page)[0] + "&resumed=yes"); strings.Contains(got, "Last-Event-ID") {
		t.Error("the page resumed the stream of somebody else")
	}
}

func TestRawTaskInBothVersions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve(open)
	lease := r.RunningTask()
	r.Append(lease, storetest.Status(a2a.StateInputRequired, "Go on?"))
	path := "/console/tasks/" + lease.TaskID.String() + "/raw"
	const v1, v03 = "TASK_STATE_INPUT_REQUIRED", `&#34;input-required&#34;`
	for form, want := range map[string][2]int{ // how often each version is there: in the task and in its events
		"": {2, 0}, "?form=0.3": {0, 2}, "?form=both": {2, 2}, "?after=1": {1, 0}, "?after=1&form=both": {1, 1},
	} {
		page := b.page(path + form)
		if got := [2]int{strings.Count(page, v1), strings.Count(page, v03)}; got != want {
			t.Errorf("%q shows %v, want %v", form, got, want)
		}
	}
	if page := b.page(path + "?form=both"); !strings.Contains(page, `?form=both" aria-current="true"`) {
		t.Error("the tab of the page is not marked")
	}
}
