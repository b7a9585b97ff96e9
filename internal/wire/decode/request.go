package decode

import (
	"iter"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// MessageMembers are the members of a Message in every generation.
type MessageMembers struct {
	ID, Role, Parts, ContextID, TaskID []byte
	References, Extensions, Metadata   []byte
}

// Set stores v if key is one of the members.
func (m *MessageMembers) Set(key, v []byte) {
	switch string(key) {
	case "messageId":
		m.ID = v
	case "role":
		m.Role = v
	case "parts":
		m.Parts = v
	case "contextId":
		m.ContextID = v
	case "taskId":
		m.TaskID = v
	case "referenceTaskIds":
		m.References = v
	case "extensions":
		m.Extensions = v
	case "metadata":
		m.Metadata = v
	}
}

// Message reads a Message without its role and parts, which generations write differently.
func (r *Reader) Message(m *MessageMembers) a2a.Message {
	return a2a.Message{
		ID:               r.Name("messageId", m.ID, r.Limits.IDBytes),
		ContextID:        r.Text("contextId", m.ContextID, r.Limits.IDBytes),
		TaskID:           r.Text("taskId", m.TaskID, r.Limits.IDBytes),
		ReferenceTaskIDs: r.Strings("referenceTaskIds", m.References, r.Limits.IDBytes),
		Extensions:       r.Strings("extensions", m.Extensions, r.Limits.URLBytes),
		Metadata:         r.Raw("metadata", m.Metadata),
	}
}

// Parts yields the parts of a message, each inside Enter. There must be at least one.
func (r *Reader) Parts(v []byte) iter.Seq[[]byte] {
	const member = "parts"
	return func(yield func([]byte) bool) {
		r.Need(member, v)
		if r.err != nil {
			return
		}
		none := true
		for e := range r.Elements(member, v, r.Limits.Parts) {
			none = false
			if rawjson.KindOf(e) != rawjson.KindObject {
				r.Fail("", "must be an object")
				return
			}
			if !yield(e) {
				return
			}
		}
		if none {
			r.Fail(member, "must not be empty")
		}
	}
}

// TaskMembers are the members of a request for one task.
type TaskMembers struct{ ID, HistoryLength, Metadata []byte }

// TaskMembers finds the members of a request for one task.
func (r *Reader) TaskMembers(params []byte) (m TaskMembers) {
	r.Params(params)
	for key, v := range rawjson.Members(params) {
		switch string(r.Key(params, key)) {
		case "id":
			m.ID = v
		case "historyLength":
			m.HistoryLength = v
		case "metadata":
			m.Metadata = v
		}
	}
	return m
}

// ListMembers are the members of a request for a page of tasks.
type ListMembers struct {
	ContextID, Status, PageSize, PageToken                []byte
	HistoryLength, IncludeArtifacts, StatusTimestampAfter []byte
}

// Member returns where to store a member, or nil for an unknown one.
func (m *ListMembers) Member(name string) *[]byte {
	switch name {
	case "contextId":
		return &m.ContextID
	case "status":
		return &m.Status
	case "pageSize":
		return &m.PageSize
	case "pageToken":
		return &m.PageToken
	case "historyLength":
		return &m.HistoryLength
	case "includeArtifacts":
		return &m.IncludeArtifacts
	case "statusTimestampAfter":
		return &m.StatusTimestampAfter
	}
	return nil
}

// ListMembers finds the members of a request for a page of tasks.
func (r *Reader) ListMembers(params []byte) (m ListMembers) {
	r.Params(params)
	for key, v := range rawjson.Members(params) {
		if to := m.Member(string(r.Key(params, key))); to != nil {
			*to = v
		}
	}
	return m
}

// ListTasks reads a request for a page of tasks without the state, which generations write
// differently. Every member has a default.
func (r *Reader) ListTasks(m *ListMembers) *a2a.ListTasks {
	return &a2a.ListTasks{
		ContextID:        r.Text("contextId", m.ContextID, r.Limits.IDBytes),
		UpdatedAfter:     r.Time("statusTimestampAfter", m.StatusTimestampAfter),
		PageSize:         r.PageSize(m.PageSize),
		PageToken:        r.Text("pageToken", m.PageToken, MaxToken),
		HistoryLength:    r.HistoryLength(m.HistoryLength),
		IncludeArtifacts: r.Bool("includeArtifacts", m.IncludeArtifacts, false),
	}
}

// Time reads an RFC 3339 time, or the zero time if it is missing.
func (r *Reader) Time(member string, v []byte) (t time.Time) {
	s := r.Text(member, v, MaxName)
	if Absent(v) || r.err != nil {
		return t
	}
	if err := t.UnmarshalText([]byte(s)); err != nil {
		r.Fail(member, "must be a time like 2026-11-20T10:00:00.000Z")
	}
	return t
}

// PushMembers are the members of a webhook that generations write in different ways.
type PushMembers struct {
	TaskID, Scheme []byte
	Authentication bool // there is one, so Scheme may be required
}

// PushConfig reads a webhook without the members in PushMembers. scheme is the name of the member
// of its authentication with the scheme. A codec does not check whether the URL may be called.
func (r *Reader) PushConfig(v []byte, scheme string) (c a2a.PushConfig, m PushMembers) {
	var url, authentication []byte
	for key, member := range rawjson.Members(v) {
		switch string(r.Key(v, key)) {
		case "id":
			c.ID = r.Text("id", member, r.Limits.IDBytes)
		case "url":
			url = member
		case "token":
			c.Token = a2a.Secret(r.Text("token", member, r.Limits.TokenSize))
		case "authentication":
			authentication = member
		case "taskId":
			m.TaskID = member
		}
	}
	if m.Authentication = r.IsObject("authentication", authentication); m.Authentication {
		for key, member := range rawjson.Members(authentication) {
			switch string(key) {
			case scheme:
				m.Scheme = member
			case "credentials":
				c.Credentials = a2a.Secret(r.Text("authentication.credentials", member, r.Limits.TokenSize))
			}
		}
	}
	c.URL = r.Name("url", url, r.Limits.URLBytes)
	return c, m
}
