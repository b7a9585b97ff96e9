package attempt

import (
	"context"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// Restored returns the event that makes the artifact of a step that begins again what it was when the step began first,
// and its approximate size. pending are the events of the batch before the step. It returns nil if nothing has changed
// the artifact since then. An artifact that did not exist becomes an empty text, because clients cannot forget it.
func Restored(
	ctx context.Context, s *tasks.Store, l *tasks.Lease, pending []a2a.Event, step *a2a.StepRecord,
) (_ *a2a.ArtifactUpdate, bytes int, err error) {
	artifact, changed, err := s.ArtifactAt(ctx, l.TaskID, step.Artifact, step.After)
	if err != nil {
		return nil, 0, err
	}
	var was []a2a.Artifact
	if artifact != nil {
		was = append(was, *artifact)
	}
	for i, e := range pending {
		u, ok := e.(*a2a.ArtifactUpdate)
		switch {
		case !ok || u.Artifact.ID != step.Artifact:
		case l.LastSeq+int64(i) < step.After:
			was = a2a.Fold(was, u)
		default:
			changed = true
		}
	}
	if !changed {
		return nil, 0, nil
	}
	u := &a2a.ArtifactUpdate{Artifact: a2a.Artifact{
		ID: step.Artifact, Parts: []a2a.Part{{Kind: a2a.PartText}},
	}}
	if len(was) > 0 {
		u.Artifact = was[0]
	}
	bytes = len(u.Artifact.Metadata)
	for i := range u.Artifact.Parts {
		bytes += partSize(&u.Artifact.Parts[i])
	}
	return u, bytes, nil
}

// partSize is the approximate size of a part.
func partSize(p *a2a.Part) int { return len(p.Text) + len(p.Data) + len(p.Metadata) }
