package a2a_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
)

func TestNothingOfTheTaskIsRelayedTwice(t *testing.T) {
	t.Parallel()
	said := func(id, text string) string { return playedMessage(id, "AGENT", text) }
	for _, c := range []relayed{
		{"the same text cut in another way", []string{submitted, playedChunk(playedArtifact("a", "Hel")),
			playedChunk(playedArtifact("a", "lo"), "append"), completed},
			[]string{playedTask(done, playedArtifacts(playedArtifact("a", "H", "ello")))},
			[]string{"a= Hel", "a+ lo", "completed"}},
		{"chunks as artifacts of one id", []string{submitted, playedChunk(playedArtifact("a", "0")), completed},
			[]string{playedTask(done, playedArtifacts(playedArtifact("a", "0"), playedArtifact("a", "1")))},
			[]string{"a= 0", "a+ 1", "completed"}},
		{"only the last chunk in the Task", []string{submitted, playedChunk(playedArtifact("a", "0")),
			playedChunk(playedArtifact("a", "1"), "append"), completed},
			[]string{playedTask(done, playedArtifacts(playedArtifact("a", "1")))},
			[]string{"a= 0", "a+ 1", "completed"}},
		{"the same text twice", []string{
			submitted, playedUpdate("WORKING", playedMessage("1", "AGENT", "ok")), completed},
			[]string{playedTask(done, playedHistory(
				playedMessage("1", "AGENT", "ok"), playedMessage("2", "AGENT", "ok")))},
			[]string{"working ok", "working ok", "completed"}},
		{"the same artifact twice", []string{submitted, playedChunk(playedArtifact("a", "x")), completed},
			[]string{playedTask(done, playedArtifacts(playedArtifact("a", "x"), playedArtifact("b", "x")))},
			[]string{"a= x", "b= x", "completed"}},
		{"other ids and cuts in the Task", []string{submitted, playedChunk(playedArtifact("a", "Hel")),
			playedChunk(playedArtifact("a", "lo"), "append"), completed},
			[]string{playedTask(done, playedArtifacts(playedArtifact("b", "Hello")))},
			[]string{"a= Hel", "a+ lo", "completed"}},
		{"a message that is older in the Task", []string{
			submitted, `{"message":` + playedMessage("m", "AGENT", "Hel") + `}`,
			`{"message":` + playedMessage("m", "AGENT", "lo") + `}`, completed},
			[]string{playedTask(done, playedHistory(playedMessage("m", "AGENT", "Hel")))},
			[]string{"working Hel", "working lo", "completed"}},
		{"other ids in the Task, and the history of the context, as of LangGraph", []string{
			submitted, playedUpdate("WORKING", playedMessage("1", "AGENT", "Hel")),
			playedUpdate("WORKING", playedMessage("2", "AGENT", "lo")), playedChunk(playedArtifact("a", "Hello")),
			completed},
			[]string{playedTask(playedStatus("COMPLETED", playedMessage("3", "AGENT", "Done.")), playedHistory(
				`{"messageId":"o","role":"ROLE_AGENT","parts":[{"text":"older"}]}`,
				playedMessage(firstID, "USER", "go"),
				playedMessage("4", "AGENT", "Hello"),
				`{"messageId":"5","taskId":"v","role":"ROLE_AGENT","parts":[{"text":"newer"}]}`,
			), playedArtifacts(playedArtifact("b", "Hello")))},
			[]string{"working Hel", "working lo", "a= Hello", "completed Done."}},
		{"pieces of a message in the history", []string{submitted, completed},
			[]string{playedTask(done, playedHistory(
				playedMessage("m", "AGENT", "Hel"), playedMessage("m", "AGENT", "lo")))},
			[]string{"working Hello", "completed"}},
		{"the last message also in the history", []string{submitted, playedUpdate("COMPLETED", said("m", "Done."))},
			[]string{playedTask(done, playedHistory(said("m", "Done.")))},
			[]string{"completed Done."}},
		{"the last message under other ids", []string{submitted, playedUpdate("COMPLETED", said("1", "Done."))},
			[]string{playedTask(playedStatus("COMPLETED", said("2", "Done.")), playedHistory(said("3", "Done.")))},
			[]string{"completed Done."}},
		{"the question under other ids", []string{submitted, playedUpdate("INPUT_REQUIRED", said("1", "which?"))},
			[]string{playedTask(playedStatus("INPUT_REQUIRED", said("2", "which?")),
				playedHistory(said("3", "which?")))},
			[]string{"input-required which?"}},
		{"the last message again in the stream", []string{submitted, playedUpdate("COMPLETED", said("1", "Done.")),
			playedItem(playedTask(playedStatus("COMPLETED", said("2", "Done.")),
				playedHistory(said("1", "Done."))))}, nil,
			[]string{"completed Done."}},
		{"an old artifact in an old Task", []string{submitted, playedChunk(playedArtifact("a", "draft")),
			playedChunk(playedArtifact("a", "final")), completed},
			[]string{playedTask(working, playedArtifacts(playedArtifact("a", "other")))},
			[]string{"a= draft", "a= final", "completed"}},
		{"an old artifact in the Task", []string{submitted, playedChunk(playedArtifact("a", "draft")),
			playedChunk(playedArtifact("a", "final")), completed},
			[]string{playedTask(done, playedArtifacts(playedArtifact("a", "draft")))},
			[]string{"a= draft", "a= final", "completed"}},
		{"pieces under ids of their own, and a longer message", []string{submitted,
			playedUpdate("WORKING", said("1", "Hel")), playedUpdate("WORKING", said("2", "lo")), "cut"},
			[]string{playedTask(done, playedHistory(said("3", "Hello world")))},
			[]string{"working Hel", "working lo", "working  world", "completed"}},
		{"a message that grows under new ids", []string{submitted, "cut"},
			[]string{playedTask(working, playedHistory(said("1", "Hel"))),
				playedTask(working, playedHistory(said("2", "Hello"))),
				playedTask(done, playedHistory(said("3", "Hello")))},
			[]string{"working Hel", "working lo", "completed"}},
		{"the last message is in the stream in pieces", []string{submitted, playedUpdate("WORKING", said("1", "Hel")),
			playedUpdate("WORKING", said("2", "lo")), completed},
			[]string{playedTask(playedStatus("COMPLETED", said("3", "Hello")))},
			[]string{"working Hel", "working lo", "completed"}},
		{"a shorter message after the end", []string{submitted, playedUpdate("COMPLETED", said("1", "Done.")),
			playedUpdate("COMPLETED", said("2", "Do"))}, nil,
			[]string{"completed Done."}},
		{"a note and pieces", []string{submitted, playedUpdate("WORKING", said("n", "note")),
			playedUpdate("WORKING", said("1", "Hel")), playedUpdate("WORKING", said("2", "lo")), completed},
			[]string{playedTask(done, playedHistory(said("3", "Hello")))},
			[]string{"working note", "working Hel", "working lo", "completed"}},
		{"a piece, and then the message under its own id", []string{
			submitted, playedUpdate("WORKING", said("1", "Hel")), "cut"},
			[]string{playedTask(working, playedHistory(said("3", "Hello"))),
				playedTask(done, playedHistory(said("3", "Hello")))},
			[]string{"working Hel", "working lo", "completed"}},
		{"one id for all messages", []string{submitted, "cut"},
			[]string{playedTask(playedStatus("COMPLETED", said("m", "done")),
				playedHistory(said("m", "1"), said("m", "2")))},
			[]string{"working 12", "completed done"}},
	} {
		c.test(t)
	}
}

// turns is an upstream that asks the same question in each turn, and shows it under other ids with each read. history
// returns the history that it shows.
func turns(t *testing.T, history func(turn int) []string) *played {
	t.Helper()
	turn := 0
	p := play(t, nil)
	p.raw = func(method string, w http.ResponseWriter, r *http.Request) bool {
		switch method {
		case "SendStreamingMessage":
			turn++
			p.items(w, r, []string{playedUpdate("WORKING", ""), playedUpdate("INPUT_REQUIRED", "")})
		case "GetTask":
			p.gets++
			status := playedStatus("INPUT_REQUIRED", playedMessage(fmt.Sprint("q", p.gets), "AGENT", "next?"))
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":`+
				playedTask(status, playedHistory(history(turn)...))+"}")
		default:
			return false
		}
		return true
	}
	return p
}

func TestQuestionThatIsAskedAgainIsRelayedOncePerTurn(t *testing.T) {
	t.Parallel()
	reads := 0
	for name, p := range map[string]*played{
		"no history": turns(t, func(int) []string { return nil }),
		"history": turns(t, func(turn int) (list []string) {
			reads++
			for n := range turn {
				list = append(list, playedMessage(strings.TrimSuffix(firstID, "1")+fmt.Sprint(n+1), "USER", "a"))
				if n < turn-1 {
					list = append(list, playedMessage(fmt.Sprint("h", reads, n), "AGENT", "next?"))
				}
			}
			return list
		}),
	} {
		k := newKeeper(t, p.fake)
		for range 4 {
			k.say("a")
			k.finish()
		}
		checkTexts(t, name, k.shows(), []string{
			"input-required next?", "input-required next?", "input-required next?", "input-required next?",
		})
	}
}

// The history of the context may have other ids for all messages.
func TestEarlierTasksOfTheContextAreNotRelayed(t *testing.T) {
	t.Parallel()
	p := play(t, []string{submitted, completed})
	k := newKeeper(t, p.fake)
	for turn := range 2 {
		var history []string
		for n := range turn + 1 {
			for _, role := range []string{"USER", "AGENT"} {
				history = append(history, fmt.Sprintf(
					`{"messageId":"%s-%d-%d","role":"ROLE_%[1]s","parts":[{"text":"%[3]d"}]}`, role, turn, n))
			}
		}
		p.locked(func() { p.tasks = []string{playedTask(done, playedHistory(history...))} })
		k.say(fmt.Sprint(turn))
		k.finish()
	}
	checkTexts(t, "the log", k.shows(), []string{"working 0", "completed", "working 1", "completed"})
}

// A message that arrived in part before a crash is completed after it.
func TestPiecesOfAMessageAreCompletedAfterACrash(t *testing.T) {
	t.Parallel()
	p := play(t, []string{submitted, playedUpdate("WORKING", playedMessage("m", "AGENT", "Hel")), "cut"},
		playedTask(done, playedHistory(playedMessage("m", "AGENT", "Hello"))))
	k := newKeeper(t, p.fake)
	k.say("go")
	if killed, err := k.run(bounded(t), func(e a2a.Event) bool { return show(e) == "working Hel" }); !killed {
		t.Fatal(err)
	}
	k.finish()
	checkTexts(t, "the log", k.shows(), []string{"working Hel", "working lo", "completed"})
}

// Some servers make new ids with each answer.
func TestPolledMessagesAreRelayedOnceWhateverTheirIDs(t *testing.T) {
	t.Parallel()
	at := func(n int, status string) string {
		return playedTask(status, playedHistory(playedMessage(fmt.Sprint("m", n), "AGENT", "on it")),
			playedArtifacts(playedArtifact(fmt.Sprint("a", n), "x")))
	}
	p := play(t, []string{submitted, "cut"}, at(1, working), at(2, working), at(3, done))
	k := newKeeper(t, p.fake)
	k.say("go")
	k.finish()
	checkTexts(t, "the log", k.shows(), []string{"working on it", "a1= x", "completed"})
}

// An agent may give the same answer in every turn.
func TestSameAnswerInTheNextTaskIsRelayed(t *testing.T) {
	t.Parallel()
	p := play(t, []string{submitted, completed})
	for n := range 2 {
		p.tasks = append(p.tasks, playedTask(done, playedHistory(playedMessage(fmt.Sprint("m", n), "AGENT", "ok")),
			playedArtifacts(playedArtifact(fmt.Sprint("a", n), "x"))))
	}
	for _, crash := range []bool{false, true} {
		p.gets = 0
		k := newKeeper(t, p.fake)
		k.say("go")
		k.finish()
		k.say("again")
		if crash { // when the id of the task is saved
			seen := 0
			if killed, err := k.run(bounded(t), func(a2a.Event) bool { seen++; return seen == 2 }); !killed {
				t.Fatal(err)
			}
		}
		k.finish()
		checkTexts(t, "the log", k.shows(), []string{
			"working ok", "a0= x", "completed", "working ok", "a1~2= x", "completed",
		})
	}
}

// If events were missed, an artifact of which the Task shows a part was replaced by it.
func TestPartOfAnArtifactReplacesItIfEventsWereMissed(t *testing.T) {
	t.Parallel()
	question := playedUpdate("INPUT_REQUIRED", playedMessage("q", "AGENT", "which?"))
	chunks := []string{playedChunk(playedArtifact("a", "0")), playedChunk(playedArtifact("a", "1"), "append")}
	part := playedArtifacts(playedArtifact("a", "1"))

	p := play(t, []string{submitted, question},
		playedTask(playedStatus("INPUT_REQUIRED", playedMessage("q", "AGENT", "which?"))))
	k := newKeeper(t, p.fake)
	k.say("go")
	k.finish()
	p.stream = append(chunks, completed)
	p.tasks = append(p.tasks, playedTask(playedStatus("INPUT_REQUIRED", playedMessage("q", "AGENT", "which?"))),
		playedTask(done, part))
	k.say("this one")
	k.finish()
	checkTexts(t, "the log", k.shows(), []string{"input-required which?", "a= 0", "a+ 1", "completed"})

	p = play(t, append([]string{submitted}, append(chunks, "cut")...), playedTask(done, part))
	k = newKeeper(t, p.fake)
	k.say("go")
	k.finish()
	checkTexts(t, "the log", k.shows(), []string{"a= 0", "a+ 1", "a= 1", "completed"})

	p = play(t, append([]string{submitted}, chunks...), playedTask(done, part))
	p.more = make(chan struct{})
	t.Cleanup(func() { close(p.more) })
	k = newKeeper(t, p.fake)
	k.say("go")
	if killed, err := k.run(bounded(t), func(e a2a.Event) bool { return show(e) == "a+ 1" }); !killed {
		t.Fatal(err)
	}
	k.finish()
	checkTexts(t, "the log", k.shows(), []string{"a= 0", "a+ 1", "a= 1", "completed"})
}

func TestArtifactThatWasEmptiedMeanwhile(t *testing.T) {
	t.Parallel()
	p := play(t, []string{submitted, playedChunk(playedArtifact("a", "x")), "cut"},
		playedTask(done, playedArtifacts(playedArtifact("a", ""))))
	k := newKeeper(t, p.fake)
	k.say("go")
	k.finish()
	checkTexts(t, "the log", k.shows(), []string{"a= x", "a= ", "completed"})
}

func TestManyPiecesOfAMessageBecomeOneText(t *testing.T) {
	t.Parallel()
	pieces := make([]string, 1500)
	for i := range pieces {
		pieces[i] = playedMessage("m", "AGENT", "x")
	}
	p := play(t, []string{submitted, completed}, playedTask(done, playedHistory(pieces...)))
	k := newKeeper(t, p.fake)
	k.say("go")
	k.finish()
	checkTexts(t, "the log", k.shows(), []string{"working " + strings.Repeat("x", 1500), "completed"})
}
