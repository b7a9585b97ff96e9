package executor_test

import (
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
)

func TestConversation(t *testing.T) {
	t.Parallel()
	user := func(id string, texts ...string) a2a.Message {
		m := a2a.Message{ID: id, Role: a2a.RoleUser}
		for _, s := range texts {
			m.Parts = append(m.Parts, a2a.Part{Kind: a2a.PartText, Text: s})
		}
		return m
	}
	agent := a2a.Message{ID: "agent", Role: a2a.RoleAgent}
	for _, tc := range []struct {
		name    string
		history []a2a.Message
		fresh   []a2a.Message
		want    int
		said    int
	}{
		{"first turn", []a2a.Message{user("1")}, []a2a.Message{user("1")}, 0, 1},
		{"second turn", []a2a.Message{user("1"), agent, user("2")}, []a2a.Message{user("2")}, 1, 2},
		{"two at once", []a2a.Message{user("1"), agent, user("2"), user("3")}, []a2a.Message{user("2"), user("3")}, 1,
			3},
		{"one id for all", []a2a.Message{user("1"), agent, user("1")}, []a2a.Message{user("1")}, 1, 2},
		{"missing in the history", []a2a.Message{user("1"), agent}, []a2a.Message{user("2")}, 1, 2},
		{"no history", nil, []a2a.Message{user("1")}, 0, 1},
		{"one that came after the claim", []a2a.Message{user("1"), agent, user("2"), user("3")},
			[]a2a.Message{user("2")}, 1, 2},
		{"one of the same id that came after the claim", []a2a.Message{user("1", "a"), user("1", "b")},
			[]a2a.Message{user("1", "a")}, 0, 1},
		{"nothing new", []a2a.Message{user("1"), agent}, nil, 1, 1},
	} {
		said, fresh := executor.Conversation(executor.Run{Task: a2a.Task{History: tc.history}, Messages: tc.fresh})
		if fresh != tc.want || len(said) != tc.said {
			t.Errorf("%s: %d messages, new from %d, want %d, new from %d", tc.name, len(said), fresh, tc.said, tc.want)
		}
	}
}
