package tasks

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// The statement does not sort its rows.
func TestTasksAreBuiltFromRowsInAnyOrder(t *testing.T) {
	t.Parallel()
	var rows []dbsqlc.TaskSnapshotsRow
	for id := range byte(3) {
		row := func(part int16, seq, idx int64, name string, state int16, body, parts string) {
			rows = append(rows, dbsqlc.TaskSnapshotsRow{
				TaskID: pgtype.UUID{Bytes: [16]byte{id}, Valid: true}, Part: part, Seq: seq, Idx: idx, Name: name,
				State: state, Body: []byte(body), Parts: []byte(parts),
			})
		}
		row(0, 9, 0, "context", 2, "", "")
		for seq := range int64(4) {
			row(1, seq+1, 0, "m", 1, `{"messageId":"`+string(rune('a'+seq))+`","parts":[]}`, "")
		}
		row(2, 1, 0, "x", 0, `{"name":"x"}`, "")
		row(2, 2, 0, "y", 0, `{"name":"y"}`, "")
		for seq := range int64(3) {
			for idx := range int64(3) {
				row(3, seq, idx, "x", 0, `{"text":"`+string(rune('0'+3*seq+idx))+`"}`, "")
			}
		}
		for seq := range int64(5) {
			row(4, seq, 0, "y", kindChunk, `{"name":"y"}`, `[{"text":"`+string(rune('0'+seq))+`"}]`)
		}
	}
	buildAll := func(rows []dbsqlc.TaskSnapshotsRow) (tasks []a2a.Task) {
		t.Helper()
		read := build(slices.Clone(rows), Want{})
		for id := range byte(3) {
			tasks = append(tasks, *read[a2a.ID{id}].task)
		}
		return tasks
	}
	want := buildAll(rows)
	if n := len(want[2].Artifacts); n != 2 || len(want[2].History) != 4 || len(want[2].Artifacts[0].Parts) != 9 ||
		len(want[2].Artifacts[1].Parts) != 5 {
		t.Fatalf("got %+v", want[2])
	}
	draw := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		draw.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		if diff := cmp.Diff(want, buildAll(rows)); diff != "" {
			t.Fatalf("in another order (-want +got):\n%s", diff)
		}
	}
}
