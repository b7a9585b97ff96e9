"""The driver of the Python library: a worker whose agents are programs of the suite.

It uses only the public API of the library. With --sync, the functions of agents and steps are not
async, so they run in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
import re
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

import a2ad
from a2ad import testing

VARIABLE = re.compile(r"\{(\w+)\}")

Instruction = dict[str, Any]


class EffectFailed(Exception):
    """The world answered an effect with an error."""


class Crash(Exception):
    """An exception that the library does not know."""


class Returned(Exception):
    """The program returned a value."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class World:
    """The runner, which counts the effects of agents and answers them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = httpx.AsyncClient(timeout=None)

    async def effect(self, name: str, key: str) -> Any:
        answer = (await self._http.post(self._url, json={"name": name, "key": key})).json()
        return result_of(answer)


class SyncWorld:
    """The same for functions that are not async."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = httpx.Client(timeout=None)

    def effect(self, name: str, key: str) -> Any:
        return result_of(self._http.post(self._url, json={"name": name, "key": key}).json())


def result_of(answer: Any) -> Any:
    if answer.get("error"):
        raise EffectFailed(answer["error"])
    return answer.get("result")


async def over(call: Any) -> Any:
    """Return the result of a call. In a function that is not async, the call is the result."""
    return await call if inspect.isawaitable(call) else call


def at_once(program: Coroutine[Any, Any, Any]) -> Any:
    """Run a program whose calls never suspend."""
    try:
        program.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a call suspended")


class Program:
    """One run of an agent."""

    def __init__(self, task: Any, message: a2ad.Message, world: Any) -> None:
        self.task = task
        self.world = world
        self.vars: dict[str, Any] = {
            "message": message.text,
            "number": task.message_number,
            "messages": ",".join(m.text for m in task.messages),
            "attempt": task.attempt,
            "saved": task.saved,
        }

    def branch(self) -> Program:
        """Return the same program with its own variables."""
        other = object.__new__(type(self))
        other.task, other.world, other.vars = self.task, self.world, dict(self.vars)
        return other

    def function(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        """Return the function of a step that does the work."""

        async def function(*_: Any) -> Any:
            return await work()

        return function

    def part(self, instructions: list[Instruction]) -> Any:
        """Return a branch of ``gather``."""
        return self.branch().result(instructions)

    async def result(self, instructions: list[Instruction]) -> Any:
        """Execute instructions, and return what one of them returns."""
        try:
            await self.play(instructions)
        except Returned as returned:
            return returned.value
        return None

    async def play(self, instructions: list[Instruction]) -> None:
        for i in instructions:
            await self.control(i)

    async def control(self, i: Instruction) -> None:
        """Execute a control instruction here, and any other with a call of the library."""
        if "return" in i:
            raise Returned(self.value(i["return"]))
        if "if" in i:
            holds = self.value(i["if"]) == i.get("is")
            await self.play(i.get("then" if holds else "else", []))
        elif "try" in i:
            await self.attempt(i)
        elif "repeat" in i:
            for _ in range(i["repeat"]):
                await self.play(i["do"])
        else:
            result = await self.call(i)
            if "as" in i:
                self.vars[i["as"]] = result

    async def attempt(self, i: Instruction) -> None:
        try:
            await self.play(i["try"])
        except a2ad.Error as err:
            text, kind = kind_of(err)
            if kind != i["catch"]:
                raise
            self.vars["error"] = text
            await self.play(i.get("then", []))

    async def call(self, i: Instruction) -> Any:
        """Call the library once."""
        verb = getattr(self, f"do_{next(iter(i))}")
        return await verb(i)

    async def do_write(self, i: Instruction) -> None:
        to = self.task.artifact(i["to"]) if "to" in i else self.task
        await over(to.write(self.text(i["write"])))

    async def do_artifact(self, i: Instruction) -> None:
        a = self.task.artifact(i["artifact"])
        how = {k: i[k] for k in ("append",) if k in i}
        if "file" in i:
            await over(
                a.file(i["file"].encode(), filename="file.txt", media_type="text/plain", **how)
            )
        elif "link" in i:
            await over(a.link(i["link"]))
        elif "replace" in i:
            await over(a.replace(self.text(i["replace"])))
        else:
            await over(a.data(self.value(i["data"]), **how))

    async def do_status(self, i: Instruction) -> None:
        await over(self.task.status(self.text(i["status"])))

    async def do_step(self, i: Instruction) -> Any:
        """Do the instructions of a step. Without any, the step is the effect with its name."""
        name = i["step"]

        async def work() -> Any:
            if "do" in i:
                return await self.branch().result(i["do"])
            return await over(self.world.effect(name, self.task.idempotency_key(name)))

        how = {k: i[k] for k in ("retries", "backoff", "timeout") if k in i}
        args = [self.value(i["input"])] if "input" in i else []
        return await over(self.task.step(name, self.function(work), *args, **how))

    async def do_effect(self, i: Instruction) -> Any:
        return await over(self.world.effect(i["effect"], self.task.idempotency_key(i["effect"])))

    async def do_ask(self, i: Instruction) -> Any:
        how = {k: i[k] for k in ("choices", "schema", "timeout") if k in i}
        return await over(self.task.ask(self.text(i["ask"]), **how))

    async def do_authRequired(self, i: Instruction) -> str:
        how = {k: i[k] for k in ("timeout",) if k in i}
        message: a2ad.Message = await over(
            self.task.auth_required(self.text(i["authRequired"]), **how)
        )
        return message.text

    async def do_sleep(self, i: Instruction) -> None:
        await over(self.task.sleep(i["sleep"]))

    async def do_sleepUntil(self, i: Instruction) -> None:
        at = datetime.fromisoformat(i["sleepUntil"].replace("Z", "+00:00"))
        await over(self.task.sleep_until(at))

    async def do_signal(self, i: Instruction) -> Any:
        how = {k: i[k] for k in ("timeout",) if k in i}
        return await over(self.task.signal(i["signal"], **how))

    async def do_call(self, i: Instruction) -> str:
        how = {k: i[k] for k in ("abandon",) if k in i}
        result: a2ad.CallResult = await over(
            self.task.call(i["call"], self.text(i["message"]), **how)
        )
        return result.text

    async def do_gather(self, i: Instruction) -> list[Any]:
        branches = [self.part(branch) for branch in i["gather"]]
        results: list[Any] = await over(self.task.gather(*branches))
        return results

    async def do_together(self, i: Instruction) -> None:
        await asyncio.gather(*(self.branch().result(program) for program in i["together"]))

    async def do_checkpoint(self, i: Instruction) -> None:
        await over(self.task.checkpoint(self.value(i["checkpoint"])))

    async def do_usage(self, i: Instruction) -> None:
        given, made = i["tokens"]
        await over(self.task.usage(model=i["usage"], input_tokens=given, output_tokens=made))

    async def do_fail(self, i: Instruction) -> None:
        raise a2ad.Fail(self.text(i["fail"]))

    async def do_reject(self, i: Instruction) -> None:
        raise a2ad.Reject(self.text(i["reject"]))

    async def do_retry(self, i: Instruction) -> None:
        raise a2ad.Retry(i["retry"], after=i.get("after"))

    async def do_crash(self, i: Instruction) -> None:
        raise Crash(i["crash"])

    async def do_ignoreStop(self, i: Instruction) -> None:
        while True:
            with contextlib.suppress(BaseException):
                await self.forever()

    async def forever(self) -> None:
        await asyncio.Event().wait()

    def text(self, text: str) -> str:
        """Replace the variables of a text."""

        def variable(name: re.Match[str]) -> str:
            value = self.vars.get(name[1])
            return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))

        return VARIABLE.sub(variable, text)

    def value(self, value: Any) -> Any:
        """Replace the variables of a value. A text that is only a variable becomes its value."""
        if isinstance(value, str):
            whole = VARIABLE.fullmatch(value)
            return self.vars.get(whole[1]) if whole else self.text(value)
        if isinstance(value, list):
            return [self.value(v) for v in value]
        if isinstance(value, dict):
            return {k: self.value(v) for k, v in value.items()}
        return value


class SyncProgram(Program):
    """One run of an agent whose functions are not async."""

    def function(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        return lambda *_: at_once(work())

    async def forever(self) -> None:
        threading.Event().wait()

    def part(self, instructions: list[Instruction]) -> Any:
        branch = self.branch()
        return lambda: at_once(branch.result(instructions))

    async def do_together(self, i: Instruction) -> None:
        pool = ThreadPoolExecutor()
        running = [pool.submit(self.part(program)) for program in i["together"]]
        for first in as_completed(running):
            first.result()


def kind_of(err: a2ad.Error) -> tuple[str, str]:
    """Return the text of an error, without what differs by language, and its kind."""
    if isinstance(err, a2ad.StepError):
        return err.message, "step"
    if isinstance(err, a2ad.CallError):
        return f"{err.state}: {err.text}", "call"
    if isinstance(err, a2ad.Timeout):
        return "", "timeout"
    if isinstance(err, a2ad.Fail):
        return str(err), "fail"
    return "", "usage" if isinstance(err, a2ad.UsageError) else ""


def agent_function(do: list[Instruction], world: World) -> Callable[..., Any]:
    async def run(task: a2ad.Task, message: a2ad.Message) -> Any:
        return await Program(task, message, world).result(do)

    return run


def sync_agent_function(do: list[Instruction], world: SyncWorld) -> Callable[..., Any]:
    def run(task: a2ad.SyncTask, message: a2ad.Message) -> Any:
        return at_once(SyncProgram(task, message, world).result(do))

    return run


def main(job: Any, *, sync: bool) -> None:
    worker = a2ad.Worker(job["url"], name=job["worker"], grace=job["grace"])
    for agent in job["agents"]:
        register = worker.handler if agent.get("handler") else worker.agent
        if sync:
            function = sync_agent_function(agent["do"], SyncWorld(job["world"]))
        else:
            function = agent_function(agent["do"], World(job["world"]))
        register(agent["name"], concurrency=agent["concurrency"])(function)
    worker.run()


def names(*, sync: bool) -> dict[str, list[str]]:
    """Return the public names of the library."""
    found: dict[str, Any] = {"worker": a2ad.Worker()}

    async def agent(task: a2ad.Task, _: a2ad.Message) -> None:
        found.update(task=task, artifact=task.artifact("a"))

    def sync_agent(task: a2ad.SyncTask, _: a2ad.Message) -> None:
        found.update(task=task, artifact=task.artifact("a"))

    testing.run(sync_agent if sync else agent, "x")
    names = {of: [n for n in dir(v) if not n.startswith("_")] for of, v in found.items()}
    classes = dict(inspect.getmembers(a2ad, inspect.isclass))
    names["errors"] = [n for n in a2ad.__all__ if issubclass(classes.get(n, int), BaseException)]
    return names


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    *options, file = sys.argv[1:]
    if file == "--names":
        print(json.dumps(names(sync="--sync" in options)))
        sys.exit()
    main(json.loads(Path(file).read_text()), sync="--sync" in options)
