"""What is recorded for one message is not returned for the next one."""

from __future__ import annotations

from typing import Any

import pytest
from test_record import answered, attempt, said

from a2ad import Message, SyncTask, Task, Timeout, testing
from a2ad._agent import Agent


def test_a_handler_asks_again() -> None:
    async def asks(task: Task, message: Message) -> str:
        if task.saved is None:
            await task.checkpoint({"asked": 1})
            await task.ask("Your name?")
        if task.saved == {"asked": 1}:
            await task.checkpoint({"asked": 2, "name": message.text})
            await task.ask("Delete everything?")
        return f"{task.saved['name']} said {message.text}"

    r = testing.run(asks, "x", answers=["Ann", "no"], handler=True)
    assert (r.text, r.questions) == ("Ann said no", ["Your name?", "Delete everything?"])


def test_a_conversation() -> None:
    async def chat(task: Task, message: Message) -> None:
        talk = task.saved or {"read": 0, "said": []}
        if talk["read"] < task.message_number:
            reply = await task.step("model", lambda: f"re: {message.text}. ")
            await task.write(reply)
            if message.text == "bye":
                return
            said = [*talk["said"], message.text, reply]
            await task.checkpoint({"read": task.message_number, "said": said})
        await task.ask("Anything else?")

    r = testing.crash_everywhere(chat, "one", answers=["two", "two", "bye"], handler=True)
    assert r.artifact() == "re: one. re: two. re: two. re: bye. "


@pytest.mark.parametrize("arguments", [True, False])
def test_a_handler_does_its_steps_for_each_message(arguments: bool) -> None:
    async def replies(task: Task, message: Message) -> str:
        def model(*_: Any) -> str:
            return f"re: {message.text}"

        said = await task.step("model", model, *([message.text] if arguments else []))
        await task.checkpoint([*(task.saved or []), said])
        if len(task.saved) < 3:
            await task.ask("And then?")
        return "; ".join(task.saved)

    r = testing.run(replies, "one", answers=["two", "three"], handler=True)
    assert r.text == "re: one; re: two; re: three"


def test_a_handler_does_other_steps_after_a_checkpoint() -> None:
    async def two_steps(task: Task, message: Message) -> Any:
        if task.saved is None:
            await task.checkpoint([await task.step("model", lambda: "first")])
        second = await task.step("model", lambda: "second")
        if task.attempt == 1:
            raise RuntimeError("crash")
        return [*task.saved, second]

    r = testing.run(two_steps, "x", handler=True)
    assert r.data == ["first", "second"]
    assert len(r.steps) == 2


def test_a_handler_keeps_its_steps_over_a_crash_and_a_wait() -> None:
    runs: list[int] = []

    async def waits(task: Task, message: Message) -> str:
        await task.step("look", lambda: runs.append(1))
        await task.sleep("1h")
        return f"{len(runs)}"

    assert testing.run(waits, "x", handler=True).text == "1"
    runs.clear()
    testing.crash_everywhere(waits, "x", handler=True, compare=lambda r: list(r.steps))


def test_text_of_a_handler_is_not_shown_twice() -> None:
    async def writes(task: Task, message: Message) -> None:
        if task.saved is None:
            await task.write("Hello")
            await task.checkpoint(1)
        await task.write(", wor")
        await task.status("Thinking")
        await task.artifact("table").data([1], append=True)
        if task.attempt == 1:
            raise RuntimeError("crash")
        await task.write("ld.")

    r = testing.run(writes, "x", handler=True)
    assert r.artifact() == "Hello, world."
    # An artifact that did not exist becomes an empty text.
    assert [p.data for p in r.artifacts["table"]] == [None, [1]]
    testing.crash_everywhere(writes, "x", handler=True, compare=testing.Result.artifact)


def test_text_of_a_handler_remains_when_the_client_answers() -> None:
    async def asks(task: Task, message: Message) -> None:
        if message.text == "x":
            await task.write("Hello. ")
            await task.ask("Your name?")
        await task.write(f"Bye, {message.text}.")

    r = testing.crash_everywhere(asks, "x", answers=["Ann"], handler=True)
    assert r.artifact() == "Hello. Bye, Ann."


def test_text_of_a_handler_is_written_again_when_nobody_answers() -> None:
    async def asks(task: Task, message: Message) -> None:
        await task.write("Hello. ")
        try:
            await task.ask("Your name?", timeout="1h")
        except Timeout:
            await task.write("Bye.")

    r = testing.crash_everywhere(asks, "x", handler=True)
    assert (r.artifact(), r.questions) == ("Hello. Bye.", ["Your name?"])


def test_a_step_of_a_handler_keeps_its_text() -> None:
    async def streams(task: Task, message: Message) -> None:
        await task.write("Well: ")
        await task.step("model", lambda: task.write("text. "))
        await task.checkpoint(1)
        await task.write("End.")

    r = testing.run(streams, "x", handler=True)
    assert r.artifact() == "Well: text. End."


def test_text_of_a_handler_before_a_step_is_sent_once() -> None:
    async def streams(task: Task, message: Message) -> None:
        await task.write("Well")
        await task.artifact("answer").data([1], append=True)
        await task.step("model", lambda: task.write(": text. "))
        await task.write("Then: ")
        await task.step("model", lambda: task.write("more. "))
        await task.write("End.")

    def shown(r: testing.Result) -> str:
        return "".join(p.text or (p.data and f"{p.data}") or "" for p in r.artifacts["answer"])

    r = testing.crash_everywhere(streams, "x", handler=True, compare=shown)
    assert shown(r) == "Well[1]: text. Then: more. End."


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ("Intro. Sorry.", "Sorry."),
        ("Sorry.", "Sorry."),
        ("Intro.", ""),
        ("Intro: I am sorry.", ": I am sorry."),
        ("Intro. Intro. All is down.", "Intro. All is down."),
    ],
)
def test_text_of_a_handler_that_takes_another_path_is_not_lost(said: str, sent: str) -> None:
    async def writes(task: Task, message: Message) -> None:
        if task.attempt < 3:
            await task.write("Intro. ")
            await task.artifact("table").data([1])
            await task.artifact("table").data([2], append=True)
            await task.step("model", lambda: task.write("Half a"))
            await task.step("table", lambda: task.artifact("table").write("half"))
            raise ConnectionError("reset")
        for character in said:
            await task.write(character)
        await task.artifact("table").data([1])
        await task.artifact("table").data([3], append=True)

    r = testing.run(writes, "x", handler=True)
    assert r.artifact() == "Intro. Half a" + sent
    parts = [p.text or p.data for p in r.artifacts["table"]]
    assert parts == [[1], [2], "half", [3]]


def test_text_of_a_handler_after_a_step_does_not_repeat_what_was_before() -> None:
    async def laughs(task: Task, message: Message) -> None:
        await task.write("Ha. Ha. " if task.attempt == 1 else "Ha. ")
        await task.step("model", lambda: task.write("Well. "))
        if task.attempt == 1:
            raise ConnectionError("reset")
        await task.write("Ha. ")

    assert testing.run(laughs, "x", handler=True).artifact() == "Ha. Ha. Well. Ha. "


@pytest.mark.parametrize("new", [False, True])
def test_what_a_handler_writes_after_a_step_is_sent_if_it_wrote_nothing_before(new: bool) -> None:
    async def writes(task: Task, message: Message) -> None:
        if task.attempt == 1:
            await task.write("Sorry. ")
            await task.artifact("table").data([1])
        name = "other" if new and task.attempt > 1 else "model"
        await task.step(name, lambda: task.write("Well. "))
        await task.step(f"{name}-table", lambda: task.artifact("table").write("half"))
        if task.attempt == 1:
            raise ConnectionError("reset")
        await task.write("Sorry. ")
        await task.artifact("table").data([1], append=True)

    r = testing.run(writes, "x", handler=True)
    more = 2 if new else 1
    assert r.artifact() == f"Sorry. {'Well. ' * more}Sorry. "
    parts = [p.text or p.data for p in r.artifacts["table"]]
    assert parts == [[1], *["half"] * more, [1]]


def test_what_a_handler_writes_after_a_step_that_begins_again_is_sent() -> None:
    runs = 0

    async def writes(task: Task, message: Message) -> None:
        nonlocal runs
        runs += 1

        async def model() -> None:
            await task.write("model ")
            if runs < 3:
                raise ConnectionError("reset")

        if runs != 2:
            await task.step("model", model, retries=3, backoff=60)
        await task.write("End. ")
        await task.step("other", lambda: task.write("other "))
        if runs == 2:
            raise ConnectionError("reset")

    # When the step begins again, what came after it in the second run is removed.
    assert testing.run(writes, "x", handler=True).artifact() == "model End. "


def test_text_of_a_handler_before_a_step_is_sent_again_if_it_is_long() -> None:
    limit = "x" * ((128 << 10) - 3)

    async def streams(task: Task, message: Message) -> None:
        for text in (limit, "and more", "and"):
            await task.write(text)
        await task.step("model", lambda: task.write("text"))
        if task.attempt == 1:
            raise ConnectionError("reset")

    r = testing.run(streams, "x", handler=True)
    assert r.artifact() == f"{limit}and moreandtextand moreand"


def test_a_message_to_a_busy_agent_is_a_turn_of_its_own() -> None:
    async def plans(task: Task, message: Message) -> str:
        assert task.idempotency_key("pay") == "t:m3/pay"
        return await task.step("plan", lambda: f"plan for {message.text}")

    messages = [said("1", "Lyon"), said("2", "Monday"), said("1", "Paris")]
    run = {"messages": messages[2:], "task": {"history": messages}}
    plan = {"key": "plan#1", "kind": "step", "name": "plan", "endedAt": "x", "result": "for Lyon"}
    steps = [plan, answered("ask#1", "2")]
    _, events = attempt(Agent("a", plans), {**run, "steps": steps})
    assert events[0]["step"]["key"] == "m3/plan#1"
    assert events[0]["step"]["result"] == "plan for Paris"


def test_keys_of_a_turn_have_one_prefix() -> None:
    async def gathers(task: Task, message: Message) -> None:
        await task.write("Hello.")
        await task.status("Looking")
        await task.gather(task.step("look", lambda: 1))
        await task.sleep(1)

    messages = [said("1", "Lyon"), said("2", "Paris")]
    run = {"messages": messages[1:], "task": {"history": messages}}
    _, events = attempt(Agent("a", gathers), run)
    keys = [next(iter(e.values())).get("key") for e in events]
    assert [k for k in keys if k] == [
        *("m2/write:answer#1", "m2/write:answer#1", "m2/status#1"),
        *("m2/gather#1.1/look#1", "m2/sleep#1"),
    ]


def test_keys_of_a_handler_do_not_depend_on_the_order_of_members() -> None:
    async def plans(task: Task, message: Message) -> None:
        await task.checkpoint({"n": 1, "10": {"b": 1, "a": 2}})
        await task.step("plan", lambda: 1)

    messages = [said("1", "Lyon")]
    for checkpoint in (None, {"10": {"a": 2, "b": 1}, "n": 1}):
        run = {"messages": messages, "checkpoint": checkpoint}
        _, events = attempt(Agent("a", plans, replay=False), run)
        assert events[1]["step"]["key"] == "5c91750f/plan#1"


@pytest.mark.parametrize("sync", [True, False])
def test_a_task_has_what_the_requests_said(sync: bool) -> None:
    seen: list[Any] = []

    async def looks(task: Task, message: Message) -> None:
        seen.append((task.request_metadata, task.extensions))

    def looks_too(task: SyncTask, message: Message) -> None:
        seen.append((task.request_metadata, task.extensions))

    agent = Agent("a", looks_too if sync else looks)
    messages = [said("1", "Lyon"), said("2", "Monday")]
    attempt(agent, {"messages": messages})
    metadata, uris = [None, {"tier": "gold"}], ["https://example.com/trips"]
    attempt(agent, {"messages": messages, "requestMetadata": metadata, "extensions": uris})
    assert seen == [((None, None), ()), (tuple(metadata), tuple(uris))]
