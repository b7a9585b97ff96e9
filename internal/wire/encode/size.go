package encode

import "github.com/a2ad/a2ad/internal/a2a"

// These sizes are estimates, so that large outputs need one allocation. Text with many escapes
// needs a second one.

// EventSize estimates the encoded size of an event.
func EventSize(e *a2a.Entry) int {
	n := 256 + len(e.ContextID)
	switch ev := e.Event.(type) {
	case *a2a.StatusUpdate:
		n += len(ev.Metadata) + statusSize(&ev.Status)
	case *a2a.ArtifactUpdate:
		n += len(ev.Metadata) + artifactSize(&ev.Artifact)
	case *a2a.Message:
		n += messageSize(ev)
	}
	return n
}

// TaskSize estimates the encoded size of a task.
func TaskSize(t *a2a.Task, artifacts bool) int {
	n := 256 + len(t.ContextID) + len(t.Metadata) + statusSize(&t.Status)
	for i := range t.History {
		n += messageSize(&t.History[i])
	}
	if artifacts {
		for i := range t.Artifacts {
			n += artifactSize(&t.Artifacts[i])
		}
	}
	return n
}

func statusSize(s *a2a.Status) int {
	if s.Message == nil {
		return 64
	}
	return 64 + messageSize(s.Message)
}

func messageSize(m *a2a.Message) int {
	return 256 + len(m.ID) + len(m.ContextID) + len(m.Metadata) + partsSize(m.Parts) // ids and keys
}

func artifactSize(a *a2a.Artifact) int {
	return 128 + len(a.ID) + len(a.Name) + len(a.Description) + len(a.Metadata) + partsSize(a.Parts)
}

func partsSize(parts []a2a.Part) int {
	n := 0
	for i := range parts {
		p := &parts[i]
		n += 64 + len(p.Text) + len(p.Text)/32 + len(p.Data) + len(p.Metadata) + len(p.MediaType) + len(p.Filename)
	}
	return n
}
