"""A server for the tests, with its own PostgreSQL."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
A2AD = os.environ.get("A2AD_BIN", str(REPOSITORY / "bin" / "a2ad"))


def until(what: str, condition: Callable[[], Any], seconds: float = 60) -> Any:
    """Return the first true value of a condition."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        for w in Worker.running:
            assert w.process.poll() is None, f"the worker ended: {w.log.read_text()[-2000:]}"
        assert time.monotonic() < end, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.02)
    return value


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Server:
    """`a2ad dev`, which can be killed and started again on its data."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.agents = directory / "agents"
        self.agents.mkdir()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._slept = 0.0
        self._rescued = 0.0

    def agent(self, name: str) -> None:
        limits = "{lease_ttl: 2s, max_attempts: 50, backoff: {base: 100ms, max: 500ms}}"
        (self.agents / f"{name}.yaml").write_text(
            f"name: {name}\ndescription: Works.\nexecutor: {{pull: {{}}}}\nlimits: {limits}\n"
        )

    def start(self) -> None:
        log = (self.directory / "server.log").open("ab")
        command = [A2AD, "dev", "--agents", str(self.agents), "--listen", f"127.0.0.1:{self.port}"]
        command += ["--admin-listen", "off", "--data-dir", str(self.directory / "data")]
        environ = {k: v for k, v in os.environ.items() if not k.startswith("A2AD_")}
        self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environ)
        until("the server", self._answers)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "server.log").read_text()[-2000:]
        try:
            return httpx.get(f"{self.url}/.well-known/agent-card.json").status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(60)

    def task(self, *args: str) -> str:
        """Run a command for operators that begins with ``a2ad task``."""
        return self.command("task", *args)

    def command(self, *args: str) -> str:
        """Run a command for operators, and return what it prints."""
        command = [A2AD, *args, "--data-dir", str(self.directory / "data")]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def end_sleeps(self) -> None:
        """End the waits of tasks, as if their time had passed."""
        if time.monotonic() < self._slept + 0.5:  # this starts a process
            return
        self._slept = time.monotonic()
        self._sql("UPDATE a2a.task_waits SET due_at = clock_timestamp() WHERE isfinite(due_at)")

    def rescue(self) -> None:
        """Expire the leases of killed workers, so that leases are long and no test waits for one.

        Call it again while the test waits. Until the server notices that the connection of a killed
        worker is closed, it may give a task to it.
        """
        if not Worker.killed or time.monotonic() < self._rescued + 0.5:  # this starts a process
            return
        self._rescued = time.monotonic()
        names = ", ".join(f"'%-{pid}'" for pid in Worker.killed)
        self._sql(
            "UPDATE a2a.task_leases SET lease_until = clock_timestamp()"
            f" WHERE worker LIKE ANY (ARRAY[{names}]) AND lease_until > clock_timestamp()"
        )

    def _sql(self, statement: str) -> None:
        lines = (self.directory / "data" / "data" / "postmaster.pid").read_text().split("\n")
        psql = shutil.which("psql") or sorted(Path("/usr/lib/postgresql").glob("*/bin/psql"))[-1]
        command = [str(psql), "-h", lines[4], "-p", lines[3], "-U", "a2ad", "-d", "a2ad", "-qc"]
        subprocess.run([*command, statement], check=True)


class Client:
    """A client of A2A 1.0, as small as it can be."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._http = httpx.Client(timeout=60)

    def call(self, agent: str, method: str, params: dict[str, Any]) -> Any:
        def answer() -> Any:
            try:
                return self._http.post(
                    f"{self._server.url}/agents/{agent}",
                    json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params},
                    headers={"A2A-Version": "1.0", "Idempotency-Key": key},
                ).json()
            except httpx.TransportError:
                return None  # the server was killed

        key = uuid.uuid4().hex
        got = until(f"an answer to {method}", answer)
        assert "error" not in got, got
        return got["result"]

    def send(self, agent: str, text: str, task: str = "") -> str:
        message: dict[str, Any] = {
            "messageId": uuid.uuid4().hex,
            "role": "ROLE_USER",
            "parts": [{"text": text}],
        }
        if task:
            message["taskId"] = task
        params = {"message": message, "configuration": {"returnImmediately": True}}
        return str(self.call(agent, "SendMessage", params)["task"]["id"])

    def get(self, agent: str, task: str) -> dict[str, Any]:
        got: dict[str, Any] = self.call(agent, "GetTask", {"id": task})
        return got

    def state(self, agent: str, task: str) -> str:
        state: str = self.get(agent, task)["status"]["state"]
        return state.removeprefix("TASK_STATE_").lower()

    def await_state(self, agent: str, task: str, state: str) -> dict[str, Any]:
        until(f"{state} of {task}", lambda: self.state(agent, task) == state)
        return self.get(agent, task)


class Worker:
    """A worker in a process of its own, which runs a file."""

    running: ClassVar[list[Worker]] = []
    killed: ClassVar[set[int]] = set()
    """The ids of processes."""

    def __init__(self, server: Server, file: Path, log: Path) -> None:
        self.log = log
        environ = os.environ | {"A2AD_URL": server.url, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(file)],
            env=environ,
            cwd=file.parent,
            stdout=log.open("ab"),
            stderr=subprocess.STDOUT,
        )
        Worker.running.append(self)
        Worker.killed.discard(self.process.pid)

    def kill(self) -> None:
        Worker.running.remove(self)
        self.process.kill()
        self.process.wait()
        Worker.killed.add(self.process.pid)

    def stop(self) -> int:
        Worker.running.remove(self)
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextlib.contextmanager
def new_server() -> Iterator[Server]:
    """Return a server that is not started. It stops at the end."""
    # PostgreSQL does not run as root. As another user, it must be able to reach its data.
    with tempfile.TemporaryDirectory(prefix="a2ad-") as directory:
        Path(directory).chmod(0o755)
        s = Server(Path(directory))
        try:
            yield s
        finally:
            s.stop()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with new_server() as s:
        for name in ("trip", "reviewer", "words", "slow", "many", "sync"):
            s.agent(name)
        s.start()
        yield s


@pytest.fixture
def client(server: Server) -> Client:
    return Client(server)


@pytest.fixture
def start(server: Server, tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Start workers that run a program, in a directory where it may use files."""
    workers: list[Worker] = []

    def begin(program: str, name: str = "worker.py") -> Worker:
        file = tmp_path / name
        file.write_text(program)
        workers.append(Worker(server, file, tmp_path / f"{name}.log"))
        return workers[-1]

    yield begin
    for w in workers:
        if w in Worker.running:
            w.kill()


def text_of(task: dict[str, Any], artifact: str = "answer") -> str:
    """Return the text of an artifact."""
    for a in task.get("artifacts", ()):
        if a["artifactId"] == artifact:
            return "".join(p.get("text", "") for p in a["parts"])
    return json.dumps(task)
