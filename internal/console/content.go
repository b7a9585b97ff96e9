package console

import (
	"encoding/base64"
	"fmt"
	"html/template"
	"maps"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/term"
)

// shownMessage is a message on a page.
type shownMessage struct {
	Role  string
	Parts []shownPart
}

// shownArtifact is an artifact on a page.
type shownArtifact struct {
	ID, Name, Description string
	Parts                 []shownPart
}

// shownPart is a part on a page.
type shownPart struct {
	HTML template.HTML // Text with its markup; empty: it has none
	Text string
	Cut  bool   // Text is only the beginning
	JSON string // indented
	Open bool   // JSON is unfolded at first
	URL  string // of a file elsewhere, which a2ad does not fetch
	File string // name of a file
	Type string // of a file
	Size int64  // of a file, or of JSON
	Link string // to download all of it; empty: it cannot be downloaded

	Image string // URL of an image that may be shown; empty: there is none
}

// agentPart shows a part of an agent, whose text may have markup.
func (s *shown) agentPart(p *a2a.Part, link string) shownPart {
	part := s.part(p, link)
	if part.Text != "" && p.MediaType != "text/plain" {
		part.HTML = s.markup(part.Text)
	}
	return part
}

func (s *shown) message(in *a2a.Message) shownMessage {
	m, part := shownMessage{Role: "user"}, s.part
	if in.Role == a2a.RoleAgent {
		m.Role, part = "agent", s.agentPart
	}
	for i := range in.Parts {
		m.Parts = append(m.Parts, part(&in.Parts[i], ""))
	}
	return m
}

func (s *shown) artifact(task a2a.ID, index int, in *a2a.Artifact) shownArtifact {
	a := shownArtifact{ID: in.ID, Name: in.Name, Description: in.Description}
	if a.Name == "" {
		a.Name = in.ID
	}
	// The text parts of a stream are pieces of one text.
	if text, ok := joinText(in.Parts); ok {
		link := fmt.Sprintf("%s/tasks/%s/files/%d/all", Prefix, task, index)
		whole := a2a.Part{Kind: a2a.PartText, Text: text, MediaType: in.Parts[0].MediaType}
		a.Parts = []shownPart{s.agentPart(&whole, link)}
		return a
	}
	for i := range in.Parts {
		p := s.agentPart(&in.Parts[i], fmt.Sprintf("%s/tasks/%s/files/%d/%d", Prefix, task, index, i))
		if rasterType(&in.Parts[i]) != "" {
			p.Image = fmt.Sprintf("%s/tasks/%s/images/%d/%d", Prefix, task, index, i)
		}
		a.Parts = append(a.Parts, p)
	}
	return a
}

// joinText returns the text of parts that are all text.
func joinText(parts []a2a.Part) (string, bool) {
	var b strings.Builder
	for i := range parts {
		if parts[i].Kind != a2a.PartText {
			return "", false
		}
		b.WriteString(parts[i].Text)
	}
	return b.String(), len(parts) > 0
}

func (s *shown) part(p *a2a.Part, link string) shownPart {
	switch p.Kind {
	case a2a.PartText:
		part := shownPart{Size: int64(len(p.Text)), Link: link}
		part.Text, part.Cut = s.text(p.Text, maxText)
		return part
	case a2a.PartData:
		part := shownPart{Size: int64(len(p.Data)), Link: link, Open: len(p.Data) < 600 && !isExpects(p)}
		part.JSON, part.Cut = s.json(p.Data, maxText)
		return part
	case a2a.PartURL:
		return shownPart{URL: p.Text, File: p.Filename, Type: p.MediaType}
	}
	size := int64(base64.StdEncoding.DecodedLen(len(p.Text)))
	return shownPart{File: fileName(p), Type: p.MediaType, Size: size, Link: link}
}

func fileName(p *a2a.Part) string {
	if p.Filename != "" {
		return p.Filename
	}
	return "file"
}

// filePolicy keeps a browser from running anything of a file, should it show one in spite of its headers.
const filePolicy = "default-src 'none'; sandbox"

// sendFile sends a part of an artifact, or all of its text, to be saved and not to be shown.
func (c *Console) sendFile(q *request) error {
	artifact, err := c.artifactOf(q)
	if err != nil {
		return err
	}
	if q.r.PathValue("part") == "all" {
		text, _ := joinText(artifact.Parts)
		return sendBytes(q.w, "artifact.txt", []byte(text))
	}
	p := partOf(q, artifact)
	if p == nil {
		return errNotFound
	}
	switch p.Kind {
	case a2a.PartText:
		return sendBytes(q.w, "part.txt", []byte(p.Text))
	case a2a.PartData:
		return sendBytes(q.w, "part.json", p.Data)
	case a2a.PartFile:
		body, err := base64.StdEncoding.DecodeString(p.Text)
		if err != nil {
			return errNotFound
		}
		return sendBytes(q.w, fileName(p), body)
	}
	return errNotFound
}

// artifactOf returns the artifact that a path names.
func (c *Console) artifactOf(q *request) (*a2a.Artifact, error) {
	t, err := c.find(q)
	if err != nil {
		return nil, err
	}
	task, err := c.content(q, t.ID)
	if err != nil {
		return nil, err
	}
	i, err := strconv.Atoi(q.r.PathValue("artifact"))
	if err != nil || i < 0 || i >= len(task.Artifacts) {
		return nil, errNotFound
	}
	return &task.Artifacts[i], nil
}

// partOf returns the part that a path names, or nil.
func partOf(q *request, a *a2a.Artifact) *a2a.Part {
	i, err := strconv.Atoi(q.r.PathValue("part"))
	if err != nil || i < 0 || i >= len(a.Parts) {
		return nil
	}
	return &a.Parts[i]
}

// sendBytes sends a file that browsers save. Its type is none that they show, whatever its author claims.
func sendBytes(w http.ResponseWriter, name string, body []byte) error {
	return sendContent(w, http.Header{
		"Content-Type":        {"application/octet-stream"},
		"Content-Disposition": {mime.FormatMediaType("attachment", map[string]string{"filename": safeName(name)})},
	}, body)
}

func sendContent(w http.ResponseWriter, header http.Header, body []byte) error {
	h := w.Header()
	maps.Copy(h, header)
	h.Set("Content-Security-Policy", filePolicy)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body) //nolint:errcheck // the client disconnected
	return nil
}

// safeName returns the last element of a file's name, without characters that mean something to a file system or that
// people do not see.
func safeName(name string) string {
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	name = strings.Map(func(r rune) rune {
		if hidden(r) || strings.ContainsRune("\r\n\t<>:\"|?*", r) {
			return '_'
		}
		return r
	}, name)
	name = strings.TrimLeft(term.Shorten(name, 120), ".")
	if name == "" {
		return "file"
	}
	return name
}
