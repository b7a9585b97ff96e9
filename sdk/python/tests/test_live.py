"""Workers and a real server: killed, stopped, canceled, and slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from conftest import Client, Server, Worker, text_of, until

# The example of the README as it stands, with fakes that note in a file what they do.
FAKES = """
import asyncio
def note(what):
    with open("moments", "a") as f:
        f.write(what + "\\n")
def make_plan(text):
    note(f"plan {text}")
    return f"the train to {text}"
async def write_up(plan):
    for word in f"We take {plan}.".split(" "):
        await asyncio.sleep(0.01)
        note("word")
        yield word + " "
def pay(plan):
    note(f"pay {plan}")
    return "r-17"
"""

REVIEWER = """
from a2ad import Worker
worker = Worker()

@worker.agent("reviewer")
def reviewer(task, message):
    return f"{message.text}: fine"

worker.run()
"""


def readme_example() -> str:
    """Return the first block of Python in the README."""
    text = (Path(__file__).parents[1] / "README.md").read_text()
    example = text.split("```python\n", 1)[1].split("```", 1)[0]
    assert "worker.run()" in example
    return example


def test_the_example_of_the_readme_is_killed_at_any_moment(
    server: Server, client: Client, start: Callable[..., Worker], tmp_path: Path
) -> None:
    moments = tmp_path / "moments"
    moments.touch()
    random = Random(17)
    places = [f"city {i}" for i in range(12)]
    tasks = [client.send("trip", p) for p in places]
    open_tasks, answered = set(tasks), set[str]()

    def answer() -> None:
        """Answer as the client, and end the sleeps."""
        for t in list(open_tasks):
            state = client.state("trip", t)
            if state == "input_required" and t not in answered:
                client.send("trip", "yes", task=t)
                answered.add(t)
            elif state == "completed":
                open_tasks.remove(t)
        if answered:
            server.end_sleeps()

    def seen(more: int) -> Callable[[], bool]:
        enough = moments.read_text().count("\n") + more

        def reached() -> bool:
            answer()
            return moments.read_text().count("\n") >= enough or not open_tasks

        return reached

    start(REVIEWER, "reviewer.py")
    worker = start(FAKES + readme_example())
    kills = 0
    while open_tasks and kills < 10:
        until("work", seen(random.randint(1, 25)))
        if kills % 4 == 3:
            server.kill()
            server.start()
        worker.kill()
        kills += 1
        worker = start(FAKES + readme_example())

    def all_ended() -> bool:
        answer()
        return not open_tasks

    until("the end of all tasks", all_ended)
    assert kills >= 8
    for t, place in zip(tasks, places, strict=True):
        ended = client.get("trip", t)
        assert ended["status"]["message"]["parts"][0]["text"] == "Check r-17: fine"
        assert text_of(ended) == f"We take the train to {place}. "
    # A step that was recorded did not run again: at most one repetition per kill and slot.
    effects = Counter(m for m in moments.read_text().splitlines() if m != "word")
    assert len(effects) == 24
    assert sum(effects.values()) <= 24 + 8 * kills


WRONG = """
from a2ad import Worker
worker = Worker()

@worker.agent("trip")
async def trip(task, message):
    plan = await task.step("plan", lambda: "a plan")
    await task.call("reviewr", plan)

worker.run()
"""


def test_a_corrected_program_continues_a_task(
    server: Server, client: Client, start: Callable[..., Worker]
) -> None:
    wrong = start(WRONG)
    t = client.send("trip", "x")
    until("the mistake", lambda: "postponed" in server.task("show", t))
    assert "reviewr" in server.task("show", t, "-o", "json")
    assert client.state("trip", t) == "working"
    wrong.kill()
    corrected = WRONG.replace('task.call("reviewr", plan)', "task.write(plan)")
    start(corrected)
    server.end_sleeps()
    ended = client.await_state("trip", t, "completed")
    assert text_of(ended) == "a plan"


STUCK = """
from a2ad import Worker
worker = Worker(grace=0.1)

@worker.agent("words")
def words(task, message):
    import threading
    task.status("begun")
    threading.Event().wait()

worker.run()
"""


def test_a_thread_that_is_stuck_does_not_keep_the_process(
    server: Server, client: Client, start: Callable[..., Worker]
) -> None:
    worker = start(STUCK)
    t = client.send("words", "x")
    until("a beginning", lambda: "message" in client.get("words", t)["status"])
    assert worker.stop() == 0
    assert "released" in server.task("show", t)
    client.call("words", "CancelTask", {"id": t})


WORDS = """
from a2ad import Worker
worker = Worker(grace=GRACE)

@worker.agent("words")
async def words(task, message):
    import asyncio
    await task.write("begun")
    try:
        await asyncio.sleep(float(message.text))
    finally:
        open("left", "a").write("left ")
    return "done"

worker.run()
"""


def test_long_work_keeps_its_lease(
    client: Client, start: Callable[..., Worker], server: Server
) -> None:
    start(WORDS.replace("GRACE", "20"))
    t = client.send("words", "5")  # the lease is 2 s
    client.await_state("words", t, "completed")
    assert server.task("show", t).count(" attempt 1, ") == 1


def test_cancel_stops_the_agent(
    client: Client, start: Callable[..., Worker], tmp_path: Path
) -> None:
    start(WORDS.replace("GRACE", "20"))
    t = client.send("words", "600")
    until("a beginning", lambda: "begun" in text_of(client.get("words", t)))
    client.call("words", "CancelTask", {"id": t})
    until("the end of the function", (tmp_path / "left").exists)


def test_a_stopped_worker_releases_what_does_not_end(
    client: Client, start: Callable[..., Worker], server: Server
) -> None:
    worker = start(WORDS.replace("GRACE", "0.1"))
    t = client.send("words", "600")
    until("a beginning", lambda: "begun" in text_of(client.get("words", t)))
    assert worker.stop() == 0
    shown = server.task("show", t)
    assert "released" in shown, shown
    client.call("words", "CancelTask", {"id": t})


def test_a_stopped_worker_ends_what_it_can(
    client: Client, start: Callable[..., Worker], server: Server
) -> None:
    worker = start(WORDS.replace("GRACE", "20"))
    t = client.send("words", "1")
    until("a beginning", lambda: "begun" in text_of(client.get("words", t)))
    assert worker.stop() == 0
    assert client.state("words", t) == "completed"


MANY = """
from a2ad import Worker
worker = Worker()

@worker.agent("many")
async def many(task, message):
    n = 0
    for i in range(1100):
        n += await task.step("one", lambda: 1)
    await task.sleep("10ms")
    return str(n)

worker.run()
"""


def test_more_steps_than_a_claim_contains(client: Client, start: Callable[..., Worker]) -> None:
    start(MANY)
    t = client.send("many", "x")
    ended = client.await_state("many", t, "completed")
    assert ended["status"]["message"]["parts"][0]["text"] == "1100"


SYNC = """
from concurrent.futures import ThreadPoolExecutor
from a2ad import Worker
worker = Worker()

@worker.agent("sync", concurrency=40)
def sync(task, message):
    text = task.step("one", lambda: "one")
    task.write(text)
    return task.ask("And?")

worker.run()
"""


def test_many_agents_in_threads(client: Client, start: Callable[..., Worker]) -> None:
    start(SYNC)
    tasks = [client.send("sync", "x") for _ in range(40)]
    for t in tasks:
        client.await_state("sync", t, "input_required")
        client.send("sync", f"answer of {t}", task=t)
    for t in tasks:
        ended = client.await_state("sync", t, "completed")
        assert ended["status"]["message"]["parts"][0]["text"] == f"answer of {t}"
        assert text_of(ended) == "one"
