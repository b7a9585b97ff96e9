"""Wrong arguments: refused before anything is sent, with the line of the agent's code."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

import a2ad
from a2ad import Message, Part, SyncTask, Task, UsageError, Worker, testing


@dataclass
class Unfit:
    value: Any


class Broken:
    def model_dump(self, mode: str, by_alias: bool) -> Any:
        raise ZeroDivisionError("in the model")


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def circular() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


async def coroutine() -> None: ...


NUL, SURROGATE, BIG = "a\0b", "\ud800", "x" * ((1 << 20) + 1)
WRONG: Any = []
NAN, INF = float("nan"), float("inf")

# Each line is a call, and a part of the text of its error.
MISTAKES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda t: t.step("", lambda: 1), "the name of a step must have 1 to 200 bytes"),
    (lambda t: t.step("x" * 201, lambda: 1), "the name of a step has 201 bytes; at most 200"),
    (lambda t: t.step("ü" * 101, lambda: 1), "the name of a step has 202 bytes; at most 200"),
    (lambda t: t.step(NUL, lambda: 1), "the name of a step must have 1 to 200 bytes and no NUL"),
    (lambda t: t.step(SURROGATE, lambda: 1), "the name of a step is not valid Unicode"),
    (lambda t: t.step(7, lambda: 1), "the name of a step must be a str, not int"),
    (lambda t: t.step("a", "make_plan"), "the function of a step must be a function, not str"),
    (
        lambda t: t.step("a", coroutine()),
        "the function of a step is a coroutine: pass the function",
    ),
    (lambda t: t.step("a", lambda: 1, retries=-1), "retries must be between 0 and 1000, not -1"),
    (lambda t: t.step("a", lambda: 1, retries=2.5), "retries must be a whole number, not 2.5"),
    (lambda t: t.step("a", lambda: 1, retries=True), "retries must be a whole number, not True"),
    (lambda t: t.step("a", lambda: 1, backoff="soon"), "backoff must be a duration such as"),
    (lambda t: t.step("a", lambda: 1, timeout=NAN), "timeout must be between 0 and ten years"),
    (lambda t: t.sleep("tomorrow"), "duration must be a duration such as"),
    (lambda t: t.sleep(""), "duration must be a duration such as"),
    (lambda t: t.sleep(4e8), "duration must be between 0 and ten years, not 400000000"),
    (lambda t: t.sleep(NAN), "duration must be between 0 and ten years, not nan"),
    (lambda t: t.sleep(INF), "duration must be between 0 and ten years, not inf"),
    (lambda t: t.sleep(10**400), "duration must be between 0 and ten years"),
    (lambda t: t.sleep("99999d"), "duration must be between 0 and ten years"),
    (lambda t: t.sleep(timedelta(days=9999)), "duration must be between 0 and ten years"),
    (lambda t: t.sleep(None), "duration must be seconds, a timedelta or a str, not NoneType"),
    (lambda t: t.sleep(True), "duration must be seconds, a timedelta or a str, not bool"),
    (lambda t: t.sleep_until("2030-01-01"), "the time must be a datetime, not str"),
    (lambda t: t.sleep_until(datetime(1, 1, 1)), "between the years 1970 and 9998"),
    (lambda t: t.sleep_until(datetime.max.replace(tzinfo=timezone.utc)), "1970 and 9998"),
    (lambda t: t.signal(""), "the name of a signal must have 1 to 200 bytes"),
    (lambda t: t.signal("go", timeout="1 hour"), "timeout must be a duration such as"),
    (lambda t: t.write(1), "the text must be a str, not int"),
    (lambda t: t.write(None), "the text must be a str, not NoneType"),
    (lambda t: t.write(SURROGATE), "the text is not valid Unicode"),
    (lambda t: t.artifact("a").write(b"b"), "the text must be a str, not bytes"),
    (lambda t: t.artifact("a").data(object()), "part 1 cannot be recorded as JSON"),
    (lambda t: t.artifact("a").data([NAN]), "part 1 cannot be recorded as JSON"),
    (lambda t: t.artifact("a").data(1, append="yes"), "append must be True or False, not 'yes'"),
    (lambda t: t.artifact("a").file("text"), "part 1: a file must be bytes, not str"),
    (lambda t: t.artifact("a").file(None), "the content of an artifact must not be None"),
    (lambda t: t.artifact("a").file(b"x" * (768 * 1024 + 1)), "the file has 786433 bytes"),
    (lambda t: t.artifact("a").data(BIG), "part 1 has 1048579 bytes; at most 1048576"),
    (
        lambda t: t.call("a", [Part(raw=b"x" * (768 << 10), metadata={"a": 1})]),
        "part 1 has 1048583 bytes; at most 1048576",
    ),
    (lambda t: t.artifact("a").replace("\0" * (1 << 20)), "part 1 is 6291467 bytes of JSON"),
    (lambda t: t.artifact("a").file(b"", filename=1), "the filename must be a str, not int"),
    (lambda t: t.artifact("a").file(b"", media_type=SURROGATE), "media type is not valid Unicode"),
    (lambda t: t.artifact("a").link(7), "the url must be a str, not int"),
    (lambda t: t.artifact("a").replace(7), "the text must be a str, not int"),
    (lambda t: t.artifact("a").replace(BIG), "the text has 1048577 bytes; at most 1048576"),
    (lambda t: t.artifact(""), "the name of an artifact must have 1 to 200 bytes"),
    (
        lambda t: t.artifact("a", id=NUL),
        "the id of an artifact must have 1 to 200 bytes and no NUL",
    ),
    (lambda t: t.artifact("a", id=None), "the id of an artifact must be a str, not NoneType"),
    (lambda t: t.status(BIG), "the status has 1048577 bytes"),
    (lambda t: t.status({"a": 1}), "the status must be a str, not dict"),
    (lambda t: t.checkpoint(object()), "the checkpoint cannot be recorded as JSON"),
    (lambda t: t.checkpoint(BIG), "the checkpoint is 1048579 bytes of JSON"),
    (lambda t: t.ask(7), "the question must be a str, not int"),
    (lambda t: t.ask("?", choices=[]), "choices must have 1 to 100 items, not 0"),
    (lambda t: t.ask("?", choices=["x"] * 101), "choices must have 1 to 100 items, not 101"),
    (lambda t: t.ask("?", choices="yes"), "choices must be a list of str, not 'yes'"),
    (lambda t: t.ask("?", choices=[True, False]), "choices[0] must be a str, not bool"),
    (lambda t: t.ask("?", choices=["yes", " no"]), "choices[1] must not be empty or have spaces"),
    (lambda t: t.ask("?", choices=["yes", ""]), "choices[1] must not be empty or have spaces"),
    (
        lambda t: t.ask("?", choices=["a"], schema={}),
        "ask takes one of choices, schema and returns",
    ),
    (lambda t: t.ask("?", returns=7), "returns must be a Pydantic model, not 7"),
    (lambda t: t.ask("?", timeout=4e8), "timeout must be between 0 and ten years"),
    (lambda t: t.ask("?", schema="string"), "schema must be a JSON Schema in a dict, not str"),
    (lambda t: t.ask("?", schema={"type": "text"}), "schema.type must be one of array, boolean"),
    (lambda t: t.ask("?", schema={"type": "object", "required": "a"}), "must be a list of names"),
    (lambda t: t.ask("?", schema={"properties": {"a": "string"}}), "schema.properties.a must be a"),
    (lambda t: t.ask("?", schema={"properties": ["a"]}), "schema.properties must be an object"),
    (lambda t: t.ask("?", schema={"anyOf": []}), "schema.anyOf must be a list of schemas"),
    (lambda t: t.ask("?", schema={"items": [{"a": 1}]}), "schema.items must be a schema"),
    (lambda t: t.ask("?", schema={"enum": "ab"}), "schema.enum must be a list"),
    (lambda t: t.ask("?", schema={"minLength": -1}), "schema.minLength must be a whole number"),
    (lambda t: t.ask("?", schema={"maximum": "9"}), "schema.maximum must be a number"),
    (lambda t: t.ask("?", schema={"uniqueItems": 1}), "schema.uniqueItems must be true or false"),
    (lambda t: t.ask("?", schema={"pattern": "("}), "schema.pattern is not a regular expression"),
    (lambda t: t.ask("?", schema={"pattern": "(?!a)"}), "schema.pattern has \\Z, a look-around or"),
    (lambda t: t.ask("?", schema={"pattern": r"a\Z"}), "schema.pattern has \\Z, a look-around or"),
    (lambda t: t.ask("?", schema={"required": ["a", "a"]}), "schema.required must be a list of"),
    (lambda t: t.ask("?", schema={"type": ["null", "null"]}), "schema.type must be one of array"),
    (lambda t: t.ask("?", schema={"$schema": "http://x"}), "schema.$schema must be a version of"),
    (lambda t: t.ask("?", schema={"$ref": "https://example.com/a"}), "refers to another document"),
    (lambda t: t.ask("?", schema={"$ref": "#/$defs/A"}), "which is not in the schema"),
    (lambda t: t.ask("?", schema={"const": NAN}), "the question cannot be recorded as JSON"),
    (lambda t: t.auth_required(None), "the question must be a str, not NoneType"),
    (lambda t: t.call("", "x"), "the name of an agent must have 1 to 64 letters"),
    (lambda t: t.call("re viewer", "x"), "the name of an agent must have 1 to 64 letters"),
    (lambda t: t.call(None, "x"), "the name of an agent must have 1 to 64 letters"),
    (lambda t: t.call("a", None), "the message must be a list, not NoneType"),
    (lambda t: t.call("a", {"text": "x"}), "the message must be a list, not dict"),
    (lambda t: t.call("a", []), "a message must have 1 to 100 parts, not 0"),
    (lambda t: t.call("a", [Part(text="x")] * 101), "a message must have 1 to 100 parts, not 101"),
    (lambda t: t.call("a", ["x"]), "part 1 must be a Part, not str"),
    (lambda t: t.call("a", [Part(text="x", url="y")]), "only one of text, data, raw and url"),
    (lambda t: t.call("a", [Part(text="x", metadata=WRONG)]), "metadata must be a dict, not list"),
    (lambda t: t.call("a", [Part(text="x" * (1 << 19))] * 7), "at most 3145728 can be sent"),
    (lambda t: t.call("a", "x", abandon="no"), "abandon must be True or False, not 'no'"),
    (lambda t: t.gather(t.sleep(1)), "gather can contain steps and calls, but no other waits"),
    (lambda t: t.gather(t.ask("?")), "gather can contain steps and calls, but no other waits"),
    (lambda t: t.gather(7), "gather takes calls such as task.step(…), not int (argument 1)"),
    (lambda t: t.usage(), "usage needs a model or a number"),
    (lambda t: t.usage(input_tokens=-1), "input_tokens must be between 0 and"),
    (lambda t: t.usage(output_tokens=1.5), "output_tokens must be a whole number, not 1.5"),
    (lambda t: t.usage(model="x" * 201), "model has 201 bytes; at most 200"),
    (lambda t: t.usage(model=None), "model must be a str, not NoneType"),
    (lambda t: t.idempotency_key(""), "the name must have 1 to 200 bytes"),
    (lambda t: t.usage(requests=1_000_000_001), "requests must be between 0 and 1000000000"),
]

# These are found after the function of the step was called.
LATE_MISTAKES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda t: t.step("a", object), "the result of step 'a' cannot be recorded as JSON: object"),
    (lambda t: t.step("a", lambda: NAN), "the result of step 'a' cannot be recorded as JSON"),
    (lambda t: t.step("a", lambda: [{"b": INF}]), "the result of step 'a' cannot be recorded"),
    (lambda t: t.step("a", lambda: BIG), "the result of step 'a' is 1048579 bytes of JSON"),
    (lambda t: t.step("a", lambda: "ü" * (1 << 19)), "is 1048578 bytes of JSON; at most 1048576"),
    (lambda t: t.step("a", lambda: SURROGATE), "the result of step 'a' cannot be recorded as JSON"),
    (lambda t: t.step("a", lambda: deep(57)), "is nested deeper than 56 levels"),
    (lambda t: t.step("a", lambda: deep(100_000)), "is nested deeper than 56 levels"),
    (lambda t: t.step("a", circular), "cannot be recorded as JSON: Circular reference"),
    (lambda t: t.step("a", lambda: {1: 2, "1": 3}), "two keys of a dict become the same JSON key"),
    (lambda t: t.step("a", lambda: {(1, 2): 3}), "keys must be str, int, float, bool or None"),
    (lambda t: t.step("a", lambda: Unfit(object())), "object has no JSON form"),
    (lambda t: t.step("a", lambda: Unfit), "the class Unfit has no JSON form"),
    (lambda t: t.step("a", Broken), "cannot be recorded as JSON: in the model"),
    (lambda t: t.step("a", lambda: {1, "b"}), "cannot be recorded as JSON"),
    (lambda t: t.step("a", lambda: 10**5000), "cannot be recorded as JSON"),
    (lambda t: t.step("a", lambda: t.step("b", lambda: 1)), "step inside the step 'a'"),
    (lambda t: t.step("a", lambda: t.sleep(1)), "a wait inside the step 'a'"),
    (lambda t: t.step("a", lambda: t.call("b", "x")), "a call inside the step 'a'"),
    (lambda t: t.step("a", t.gather), "gather inside the step 'a'"),
    (lambda t: t.step("a", lambda: t.checkpoint(1)), "checkpoint inside the step 'a'"),
    (lambda t: t.step("a", lambda: t.status("b")), "status inside the step 'a'"),
    (lambda t: t.gather(t.step("a", lambda: NAN)), "the result of step 'a' cannot be recorded"),
    (lambda t: t.step("a", lambda: t.usage(input_tokens=-1)), "input_tokens must be between 0 and"),
    (
        lambda t: t.step("a", lambda: t.usage(requests=10**9 + 1)),
        "must be between 0 and 1000000000",
    ),
]


@pytest.mark.parametrize(("body", "text"), MISTAKES)
def test_a_mistake_names_its_line(body: Callable[[Any], Any], text: str) -> None:
    async def wrong(task: Task, message: Message) -> None:
        with contextlib.suppress(TypeError):  # of awaiting what a method returned that is not async
            await body(task)

    with pytest.raises(UsageError) as caught:
        testing.run(wrong, "x")
    assert text in str(caught.value)
    assert caught.value.where == f"{__file__}:{body.__code__.co_firstlineno}"


@pytest.mark.parametrize(("body", "text"), LATE_MISTAKES)
def test_a_mistake_after_the_work_fails_the_step(
    body: Callable[[Any], Any], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def wrong(task: Task, message: Message) -> None:
        await body(task)

    r = testing.run(wrong, "x")
    assert r.state == "failed"
    assert text in r.text
    assert "is not done again, because its function was called" in r.text
    assert __file__ not in r.text
    assert f"{__file__}:{body.__code__.co_firstlineno}: " in caplog.text


IN_THREADS = [
    (lambda t: t.sleep("tomorrow"), "duration must be a duration such as"),
    (lambda t: t.artifact("a").data(NAN), "part 1 cannot be recorded as JSON"),
]


@pytest.mark.parametrize(("body", "text"), IN_THREADS)
def test_a_mistake_in_a_thread_names_its_line(body: Callable[[Any], Any], text: str) -> None:
    def wrong(task: SyncTask, message: Message) -> None:
        body(task)

    with pytest.raises(UsageError) as caught:
        testing.run(wrong, "x")
    assert text in str(caught.value)
    assert caught.value.where == f"{__file__}:{body.__code__.co_firstlineno}"


@pytest.mark.parametrize("value", [object(), NAN, BIG, [Part(text="x")] * 101, Part(text=BIG)])
def test_a_wrong_result_names_the_function(value: Any) -> None:
    async def wrong(task: Task, message: Message) -> Any:
        return value

    with pytest.raises(UsageError) as caught:
        testing.run(wrong, "x")
    assert caught.value.where == f"{__file__}:{wrong.__code__.co_firstlineno}"


def test_gather_of_results_is_refused_in_functions_that_are_not_async() -> None:
    def gathers(task: SyncTask, message: Message) -> list[Any]:
        return task.gather(task.step("a", lambda: 1))  # type: ignore[arg-type]

    said = r"gather takes functions such as lambda: task.step\(…\), not int \(argument 1\)"
    with pytest.raises(UsageError, match=said) as caught:
        testing.run(gathers, "x")
    assert caught.value.where == f"{__file__}:{gathers.__code__.co_firstlineno + 1}"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: a2ad.Retry(after=8 * 86400), "after must be between 0 and 7 days"),
        (lambda: a2ad.Retry(after=INF), "after must be between 0 and 7 days"),
        (lambda: a2ad.Retry(after="1m"), "after must be a number of seconds"),  # type: ignore[arg-type]
        (lambda: a2ad.Fail(7), "the reason must be a str, not int"),  # type: ignore[arg-type]
        (lambda: a2ad.Reject(None), "the reason must be a str, not NoneType"),  # type: ignore[arg-type]
        (lambda: Worker("127.0.0.1:8080"), "url must be a URL such as http://127.0.0.1:8080"),
        (lambda: Worker("http://:x"), "url must be a URL such as http://127.0.0.1:8080"),
        (lambda: Worker("http://me:s3cret@a2ad"), "url must not contain a user name or password"),
        (lambda: Worker("ftp://me:s3cret@a2ad:x"), "url must not contain a user name or password"),
        (lambda: Worker(api_key="a b"), "api_key must be printable ASCII"),
        (lambda: Worker(name="my worker"), "name must be 1 to 128 printable ASCII"),
        (lambda: Worker(grace=-1), "grace must be between 0 and ten years"),
        (lambda: Worker(health="8081"), "health must be an address such as"),
        (lambda: Worker(health=":http"), "health must be an address such as"),
        (lambda: Worker().run(), "the worker has no agent"),
        (lambda: Worker().agent("a b"), "the name of an agent must have 1 to 64 letters"),
        (lambda: Worker().agent("a", concurrency=0), "concurrency must be between 1 and 10000"),
        (lambda: Worker().agent("a")(7), "must be a function, not int"),  # type: ignore[type-var]
        (lambda: Worker().agent("a")(lambda task: 1), "must take two arguments"),  # type: ignore[type-var]
    ],
)
def test_other_mistakes_name_their_line(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert text in str(caught.value)
    assert caught.value.where == f"{__file__}:{make.__code__.co_firstlineno}"


MIB = 1 << 20


def test_contents_of_exactly_the_largest_size() -> None:
    async def sends(task: Task, message: Message) -> Part:
        a = task.artifact("a")
        await a.file(b"x" * (768 << 10))
        await a.data("x" * (MIB - 2))
        await a.replace('"' * MIB)
        await task.status("ü" * (MIB // 2))
        await task.call("b", [Part(text="x" * MIB), Part(text="\n" * 1000)])
        await task.ask("x" * MIB, choices=["yes"])
        return Part(raw=b"x" * (768 << 10))

    assert testing.run(sends, "x", answers=["yes"], calls={"b": "fine"}).state == "completed"


def test_what_looks_wrong_and_is_not() -> None:
    async def fine(task: Task, message: Message) -> str:
        await task.write("x" * 3_000_000)  # more than an event may have
        await task.write("")
        await task.step("deep", lambda: deep(56))
        await task.step("texts", lambda: ["[" * 100, '"\\{' * 100, "\0"])
        await task.sleep(0)
        await task.sleep_until(datetime(1990, 1, 1, tzinfo=timezone.utc))
        await task.artifact("a").data(None)
        await task.artifact("a").file(b"", append=True)
        schema: dict[str, Any] = {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$defs": {"A/b": {"type": "integer", "pattern": r"\p{L}|\z|\\Z|\\1"}},
            "items": {"$ref": "#/$defs/A~1b"},
        }
        return str(await task.ask("?", schema=schema))

    r = testing.run(fine, "x", answers=[[1, 2]])
    assert (r.text, len(r.artifact())) == ("[1, 2]", 3_000_000)


Second = Callable[[Task], Any]
X = "a step with the input hash c33c00ab0dc4"  # the start of the SHA-256 of {"args":["x"]}


@pytest.mark.parametrize(
    ("second", "expected", "got"),
    [
        (lambda t: t.step("a", len, "xy"), X, "a step with the input hash 57119b8aa6b4"),
        (lambda t: t.step("a", int), X, "a step with the input hash none"),
        (lambda t: t.sleep(1), None, None),
    ],
)
def test_a_changed_program_is_named(
    second: Second, expected: str | None, got: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[int] = []

    async def changed(task: Task, message: Message) -> None:
        runs.append(1)
        await (task.step("a", len, "x") if len(runs) == 1 else second(task))
        await task.sleep(1)

    r = testing.run(changed, "x", max_attempts=2)
    if expected is None:
        assert r.state == "completed"  # a step that is left out cannot be noticed
        return
    assert r.state == "failed"
    assert "nondeterminism" in r.text
    assert f"step 'a#1' is recorded as {expected}" in r.text
    assert f"but the code now does {got}" in r.text
    assert "the arguments of step 'a#1' differ from the recorded ones; read changing" in r.text
    assert f"{__file__}:{second.__code__.co_firstlineno}" in caplog.text
