"""One conversation that the agent of each framework has, while its worker is killed.

The fake model of each framework answers three times: it looks up orders, wants to pay one back, and
says that it has. The fakes note each thing that they do in ``effects``.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import effects
import pytest
from conftest import REPOSITORY, Client, Server, Worker, new_server, text_of, until

from a2ad import Message, Task, testing

HERE = Path(__file__).parent
EXAMPLES = REPOSITORY / "examples" / "frameworks"

REQUEST = "Pay A7 back"
LOOKUP = ("Looking up ", "orders. ")
"""The text of the first answer of the model, in two chunks."""
FINAL = ("Paid ", "back.")
TEXT = "".join(LOOKUP + FINAL)


def orders_of(text: str) -> list[str]:
    """Return the orders in the message of the client: A7, B2."""
    return [word for word in text.split() if word[-1].isdigit()]


def shop(request: str) -> str:
    """Take the place of the shop of the example."""
    effects.did(request)
    return f"{request}: ok"


def example(name: str) -> Any:
    """Import the agent of an example, with the fakes of this directory in it."""
    sys.path.insert(0, str(EXAMPLES / name))
    agent = importlib.import_module("agent")
    agent.shop = shop
    return agent


def assert_page_shows(name: str, heading: str) -> None:
    """Assert that the block in a section of the how-to page is part of the example."""
    page = (REPOSITORY / "docs" / "how-to" / "frameworks.md").read_text()
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    block = section.split("```python\n")[1].split("```")[0]
    assert block in (EXAMPLES / name / "agent.py").read_text()


EVERYTHING = [
    "model 1",
    "model 1 in the middle",
    "GET /orders/A7",
    "model 2",
    "POST /orders/A7/refund",
    "model 3",
    "model 3 in the middle",
]


def crash_everywhere(agent: Callable[..., Any]) -> testing.Result:
    """Let the agent crash at each request, and count what it does."""
    runs = 0

    async def counted(task: Task, message: Message) -> Any:
        nonlocal runs
        runs += task.attempt == 1 and len(task.messages) == 1
        return await agent(task, message)

    def outcome(r: testing.Result) -> Any:
        # Tools of one answer run at once, and are recorded in any order.
        return (r.state, r.artifact(), r.questions, sorted(r.steps))

    effects.done.clear()
    result = testing.crash_everywhere(
        counted, "Pay A7 and B2 back", answers=["yes"], compare=outcome
    )
    assert (result.state, result.artifact()) == ("completed", TEXT)
    assert set(effects.done) == {*EVERYTHING, "GET /orders/B2"}
    # Each crash may repeat the model call that was running, which notes two things, or the two
    # tool calls. What was recorded before is not done again, neither then nor after the question.
    once = len({*EVERYTHING, "GET /orders/B2"})
    assert runs * once <= len(effects.done) <= runs * once + 2 * (runs - 1)
    return result


def survive_kills(
    server: Server, client: Client, directory: Path, fakes: str, agent: Callable[..., Any]
) -> None:
    """Kill the worker in the middle of each thing that it does, and answer its question.

    ``fakes`` is the module that has the agent; the worker imports it in a process of its own.
    """
    program = directory / "worker.py"
    program.write_text(
        "import logging, os, sys\n"
        "logging.basicConfig(level=logging.INFO)\n"
        f"sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]\n"
        f"os.environ['EFFECTS'] = {str(directory)!r}\n"
        f"import {fakes}\n"
        f"{fakes}.agent.worker.run()\n"
    )
    try:
        done = _killed_everywhere(server, client, program)
    finally:
        for worker in list(Worker.running):
            worker.kill()
    assert Counter(done) == {
        # Killed once at the beginning and once in the middle, which was reached once more.
        "model 1": 3,
        "model 1 in the middle": 2,
        "GET /orders/A7": 2,
        "model 2": 2,
        "POST /orders/A7/refund": 2,
        "model 3": 3,
        "model 3 in the middle": 2,
    }
    # What a model call used is counted once, with its record, however often the call was begun.
    undisturbed = testing.run(agent, REQUEST, answers=["yes"]).usage
    assert undisturbed["fake"]["requests"] == 3
    assert usage(server) == undisturbed


def usage(server: Server) -> dict[str, dict[str, int]]:
    """Return the sums of each model, as a2ad tells them to its operator."""
    sums = {}
    for line in server.command("stats", "--usage", "--by", "model", "-o", "json").splitlines():
        row = json.loads(line)
        model = row.pop("model", "")
        sums[model] = row
    return sums


def _killed_everywhere(server: Server, client: Client, program: Path) -> list[str]:
    """Return what was done."""
    world = effects.Effects(program.parent)

    def wait(what: str, condition: Callable[[], bool]) -> None:
        def rescued() -> bool:
            server.rescue()
            return condition()

        # Each worker imports a framework, which takes minutes on a machine that is busy enough.
        until(what, rescued, seconds=300)

    def start(stop_at: str) -> Worker:
        world.stop_next_at(stop_at)
        return Worker(server, program, program.with_name("worker.log"))

    def kill_at(what: str) -> None:
        before = world.list().count(what)
        worker = start(what)
        wait(what, lambda: world.list().count(what) > before)
        if what.endswith("in the middle"):
            # The client has the first half of the sentence before the second one exists.
            first = LOOKUP[0] if what.startswith("model 1") else "".join(LOOKUP) + FINAL[0]
            wait("the text", lambda: text_of(client.get("support", task)) == first)
        worker.kill()

    task = client.send("support", REQUEST)
    for what in EVERYTHING[:4]:
        kill_at(what)
    worker = start("")
    wait("the question", lambda: client.state("support", task) == "input_required")
    asked = client.get("support", task)
    assert "30" in asked["status"]["message"]["parts"][0]["text"]
    worker.kill()
    client.send("support", "yes", task=task)
    for what in EVERYTHING[4:]:
        kill_at(what)
    worker = start("")
    wait("the end", lambda: client.state("support", task) == "completed")
    ended = client.get("support", task)
    worker.kill()
    assert text_of(ended) == TEXT
    return world.list()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    # A worker that loses its lease works twice. This lease outlasts each pause of a busy machine;
    # the test ends the lease of a worker that it has killed.
    limits = "{lease_ttl: 10m, max_attempts: 50, backoff: {base: 100ms, max: 500ms}}"
    with new_server() as s:
        (s.agents / "support.yaml").write_text(
            f"name: support\ndescription: Helps.\nexecutor: {{pull: {{}}}}\nlimits: {limits}\n"
        )
        s.start()
        yield s
