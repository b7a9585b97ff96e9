package tasks

import (
	"fmt"

	"github.com/a2ad/a2ad/internal/a2a"
)

func encodeEvent(e a2a.Event) (eventRow, error) {
	switch e := e.(type) {
	case *a2a.StatusUpdate:
		row := eventRow{kind: kindStatus, state: int16(e.Status.State), body: appendStatus(nil, e)}
		if m := e.Status.Message; m != nil {
			row.messageID, row.message = m.ID, appendMessage(nil, m)
		}
		return row, nil
	case *a2a.ArtifactUpdate:
		row := eventRow{
			kind: kindArtifact, artifactID: e.Artifact.ID, body: appendArtifact(nil, e),
			parts: appendParts(nil, e.Artifact.Parts),
		}
		if e.Append {
			row.kind = kindChunk
		}
		return row, nil
	}
	return eventRow{}, fmt.Errorf("event of type %T cannot be stored", e)
}
