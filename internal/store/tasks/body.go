package tasks

import (
	"fmt"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// The storage encoding: JSON with the names of A2A 1.0, without what columns store. Golden files test it. It may gain
// members, but a member never changes its meaning. Values of clients are copied byte for byte.

func appendMessage(b []byte, m *a2a.Message) []byte {
	b = append(b, `{"messageId":`...)
	b = rawjson.AppendString(b, m.ID)
	if m.Role == a2a.RoleUser {
		b = append(b, `,"role":"ROLE_USER","parts":`...)
	} else {
		b = append(b, `,"role":"ROLE_AGENT","parts":`...)
	}
	b = appendParts(b, m.Parts)
	b = appendStrings(b, `,"referenceTaskIds":`, m.ReferenceTaskIDs)
	b = appendStrings(b, `,"extensions":`, m.Extensions)
	b = appendStrings(b, `,"activated":`, m.Activated)
	b = appendRaw(b, `,"metadata":`, m.Metadata)
	b = appendRaw(b, `,"requestMetadata":`, m.RequestMetadata)
	return append(b, '}')
}

func appendParts(b []byte, parts []a2a.Part) []byte {
	b = append(b, '[')
	for i := range parts {
		if i > 0 {
			b = append(b, ',')
		}
		p := &parts[i]
		switch p.Kind {
		case a2a.PartText:
			b = rawjson.AppendString(append(b, `{"text":`...), p.Text)
		case a2a.PartFile:
			b = rawjson.AppendString(append(b, `{"raw":`...), p.Text)
		case a2a.PartURL:
			b = rawjson.AppendString(append(b, `{"url":`...), p.Text)
		case a2a.PartData:
			b = append(append(b, `{"data":`...), p.Data...)
		}
		b = appendText(b, `,"mediaType":`, p.MediaType)
		b = appendText(b, `,"filename":`, p.Filename)
		b = appendRaw(b, `,"metadata":`, p.Metadata)
		b = append(b, '}')
	}
	return append(b, ']')
}

func appendText(b []byte, key, s string) []byte {
	if s == "" {
		return b
	}
	return rawjson.AppendString(append(b, key...), s)
}

func appendRaw(b []byte, key string, v a2a.Raw) []byte {
	if len(v) == 0 {
		return b
	}
	return append(append(b, key...), v...)
}

func appendStrings(b []byte, key string, list []string) []byte {
	if len(list) == 0 {
		return b
	}
	b = append(append(b, key...), '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = rawjson.AppendString(b, s)
	}
	return append(b, ']')
}

// appendStatus writes the body of a status event; state and time are columns.
func appendStatus(b []byte, u *a2a.StatusUpdate) []byte {
	b = append(b, '{')
	if u.Status.Message != nil {
		b = appendMessage(append(b, `"message":`...), u.Status.Message)
	}
	if len(u.Metadata) > 0 {
		if len(b) > 1 && b[len(b)-1] == '}' {
			b = append(b, ',')
		}
		b = append(append(b, `"metadata":`...), u.Metadata...)
	}
	return append(b, '}')
}

// appendArtifact writes the body of an artifact event; id, parts and append are columns.
func appendArtifact(b []byte, u *a2a.ArtifactUpdate) []byte {
	b = append(b, `{"name":`...)
	b = rawjson.AppendString(b, u.Artifact.Name)
	b = appendText(b, `,"description":`, u.Artifact.Description)
	b = appendStrings(b, `,"extensions":`, u.Artifact.Extensions)
	b = appendRaw(b, `,"metadata":`, u.Artifact.Metadata)
	if u.LastChunk {
		b = append(b, `,"lastChunk":true`...)
	}
	b = appendRaw(b, `,"eventMetadata":`, u.Metadata)
	return append(b, '}')
}

// DecodeMessage decodes a stored message of the given role.
func DecodeMessage(body []byte, role a2a.Role) a2a.Message {
	m := a2a.Message{Role: role}
	for k, v := range rawjson.Members(body) {
		switch string(k) {
		case "messageId":
			m.ID, _ = rawjson.String(v)
		case "parts":
			m.Parts = decodeParts(v)
		case "referenceTaskIds":
			m.ReferenceTaskIDs = decodeStrings(v)
		case "extensions":
			m.Extensions = decodeStrings(v)
		case "activated":
			m.Activated = decodeStrings(v)
		case "metadata":
			m.Metadata = a2a.Raw(v)
		case "requestMetadata":
			m.RequestMetadata = a2a.Raw(v)
		}
	}
	return m
}

func decodeStrings(v []byte) (list []string) {
	for e := range rawjson.Elements(v) {
		s, _ := rawjson.String(e)
		list = append(list, s)
	}
	return list
}

func decodeParts(v []byte) (parts []a2a.Part) {
	for e := range rawjson.Elements(v) {
		parts = append(parts, decodePart(e))
	}
	return parts
}

func decodePart(v []byte) (p a2a.Part) {
	for k, v := range rawjson.Members(v) {
		switch string(k) {
		case "text":
			p.Kind = a2a.PartText
			p.Text, _ = rawjson.String(v)
		case "raw":
			p.Kind = a2a.PartFile
			p.Text, _ = rawjson.String(v)
		case "url":
			p.Kind = a2a.PartURL
			p.Text, _ = rawjson.String(v)
		case "data":
			p.Kind, p.Data = a2a.PartData, a2a.Raw(v)
		case "mediaType":
			p.MediaType, _ = rawjson.String(v)
		case "filename":
			p.Filename, _ = rawjson.String(v)
		case "metadata":
			p.Metadata = a2a.Raw(v)
		}
	}
	return p
}

func decodeArtifact(id string, header []byte) (u a2a.ArtifactUpdate) {
	u.Artifact.ID = id
	for k, v := range rawjson.Members(header) {
		switch string(k) {
		case "name":
			u.Artifact.Name, _ = rawjson.String(v)
		case "description":
			u.Artifact.Description, _ = rawjson.String(v)
		case "extensions":
			u.Artifact.Extensions = decodeStrings(v)
		case "metadata":
			u.Artifact.Metadata = a2a.Raw(v)
		case "lastChunk":
			u.LastChunk, _ = rawjson.Bool(v)
		case "eventMetadata":
			u.Metadata = a2a.Raw(v)
		}
	}
	return u
}

// The kinds of events, as stored.
const (
	kindStatus   int16 = 1
	kindArtifact int16 = 2
	kindChunk    int16 = 3 // an artifact with append
	kindMessage  int16 = 4
)

// DecodeEvent decodes a stored event from its columns.
func DecodeEvent(kind, state int16, artifactID string, body, parts []byte) (a2a.Event, error) {
	switch kind {
	case kindStatus:
		u := &a2a.StatusUpdate{Status: a2a.Status{State: a2a.State(state)}}
		for k, v := range rawjson.Members(body) {
			switch string(k) {
			case "message":
				m := DecodeMessage(v, a2a.RoleAgent)
				u.Status.Message = &m
			case "metadata":
				u.Metadata = a2a.Raw(v)
			}
		}
		return u, nil
	case kindArtifact, kindChunk:
		u := decodeArtifact(artifactID, body)
		u.Artifact.Parts = decodeParts(parts)
		u.Append = kind == kindChunk
		return &u, nil
	case kindMessage:
		m := DecodeMessage(body, a2a.RoleAgent)
		return &m, nil
	}
	return nil, fmt.Errorf("event of unknown kind %d", kind)
}
