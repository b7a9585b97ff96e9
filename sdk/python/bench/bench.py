"""Measures the cost of a worker with a real server, and prints one JSON object.

The experiment "sdk" of `make bench` runs it and compares the figures with their targets. Figures
of CPU are valid on a busy machine, too. DBOS then does the same steps on the same PostgreSQL.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import usage

HERE = Path(__file__).resolve().parent
A2AD = os.environ.get("A2AD_BIN", str(HERE.parents[2] / "bin" / "a2ad"))
TASKS, SECONDS, RATE = 100, 5.0, 50
STEPS, TOGETHER = 200, 10


def post(url: str, method: str, params: dict[str, Any]) -> Any:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    request = urllib.request.Request(url, body.encode(), headers)
    with urllib.request.urlopen(request, timeout=90) as answer:
        got = json.load(answer)
    if "error" in got:
        raise RuntimeError(got["error"])
    return got["result"]


class Bench:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = directory / "data"
        agents = directory / "agents"
        agents.mkdir()
        for name in ("stream", "quiet", "steps"):
            (agents / f"{name}.yaml").write_text(
                f"name: {name}\ndescription: Works.\nexecutor: {{pull: {{}}}}\n"
            )
        port = 20000 + os.getpid() % 20000
        self.url = f"http://127.0.0.1:{port}"
        environ = {k: v for k, v in os.environ.items() if not k.startswith("A2AD_")}
        command = [A2AD, "dev", "--agents", str(agents), "--listen", f"127.0.0.1:{port}"]
        self.admin = f"http://127.0.0.1:{port + 1}"
        command += ["--admin-listen", f"127.0.0.1:{port + 1}", "--data-dir", str(self.data)]
        log = (directory / "server.log").open("wb")
        self.server = subprocess.Popen(command, stdout=log, stderr=log, env=environ)
        self.worker: subprocess.Popen[bytes] | None = None
        self._wait_for_server()
        environ |= {"A2AD_URL": self.url, "BENCH_SECONDS": str(SECONDS), "A2AD_LOG_LEVEL": "error"}
        self.worker = subprocess.Popen([sys.executable, str(HERE / "worker.py")], env=environ)

    def _wait_for_server(self) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end and self.server.poll() is None:
            try:
                urllib.request.urlopen(f"{self.url}/agents/stream/.well-known/agent-card.json")
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError((self.directory / "server.log").read_text())

    def stop(self) -> None:
        for process in (self.worker, self.server):
            if process is not None:
                process.terminate()
                process.wait(60)

    def task(self, agent: str, text: str, lasts: float) -> Any:
        """Give an agent a task, wait for its end, and return the data of its last message.

        It polls only after `lasts` seconds, so that polls cost the server no CPU meanwhile.
        """
        message = {
            "messageId": uuid.uuid4().hex,
            "role": "ROLE_USER",
            "parts": [{"text": text}],
        }
        url, params = f"{self.url}/agents/{agent}", {"message": message}
        task = post(url, "SendMessage", params | {"configuration": {"returnImmediately": True}})
        id = task["task"]["id"]
        time.sleep(lasts)
        while True:
            status = post(url, "GetTask", {"id": id, "historyLength": 0})["status"]
            if status["state"] == "TASK_STATE_COMPLETED":
                return status.get("message", {"parts": [{"data": None}]})["parts"][0]["data"]
            if status["state"] != "TASK_STATE_WORKING" and "SUBMITTED" not in status["state"]:
                raise RuntimeError(status)
            time.sleep(1)

    def tasks(self, agent: str, n: int, text: str = "x", lasts: float = 0) -> list[Any]:
        with concurrent.futures.ThreadPoolExecutor(n) as threads:
            return list(threads.map(lambda _: self.task(agent, text, lasts), range(n)))

    def spent(self) -> tuple[float, float]:
        assert self.worker is not None
        return usage.process(self.worker.pid), usage.process(self.server.pid)

    def postmaster(self) -> list[str]:
        """Return the lines of postmaster.pid: the pid is the first."""
        return (self.data / "data" / "postmaster.pid").read_text().split("\n")

    def spent_on_steps(self) -> float:
        """Return the CPU seconds of worker, server and database."""
        return sum(self.spent()) + usage.tree(int(self.postmaster()[0]))

    def database(self) -> str:
        """Create a database for DBOS next to that of a2ad, and return its URL."""
        import psycopg  # noqa: PLC0415 (it comes with DBOS)

        lines = self.postmaster()
        where = f"host={lines[4]}&port={lines[3]}"
        with psycopg.connect(f"postgresql://a2ad@/postgres?{where}", autocommit=True) as c:
            c.execute("CREATE DATABASE dbos")
        return f"postgresql://a2ad@/dbos?{where}"


def profile(bench: Bench, seconds: int) -> threading.Thread:
    """Save a CPU profile of the server to the file A2AD_BENCH_PROFILE, in the background."""

    def fetch() -> None:
        url = f"{bench.admin}/debug/pprof/profile?seconds={seconds}"
        with urllib.request.urlopen(url, timeout=seconds + 30) as answer:
            Path(os.environ["A2AD_BENCH_PROFILE"]).write_bytes(answer.read())

    thread = threading.Thread(target=fetch)
    thread.start()
    return thread


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        bench = Bench(Path(directory))
        try:
            got = measure(bench)
        finally:
            bench.stop()
    print(json.dumps(got))


def measure(bench: Bench) -> dict[str, float]:
    bench.tasks("steps", 1, "20")  # warm up
    begun, before = time.monotonic(), bench.spent()[0]
    time.sleep(8)
    idle = (bench.spent()[0] - before) / (time.monotonic() - begun)

    tokens = TASKS * SECONDS * RATE
    before = bench.spent()[0]
    bench.tasks("quiet", TASKS, lasts=SECONDS)
    quiet = (bench.spent()[0] - before) / tokens
    profiled = profile(bench, int(SECONDS)) if "A2AD_BENCH_PROFILE" in os.environ else None
    start = bench.spent()
    bench.tasks("stream", TASKS, lasts=SECONDS)
    worker, server = ((b - a) / tokens for a, b in zip(start, bench.spent(), strict=True))
    if profiled:
        profiled.join()

    (alone,) = bench.tasks("steps", 1, str(STEPS))
    begun, before, all_before = time.monotonic(), bench.spent()[0], bench.spent_on_steps()
    bench.tasks("steps", TOGETHER, str(STEPS))
    rate = STEPS * TOGETHER / (time.monotonic() - begun)
    step = (bench.spent()[0] - before) / (STEPS * TOGETHER)
    step_all = (bench.spent_on_steps() - all_before) / (STEPS * TOGETHER)
    theirs = subprocess.run(
        [sys.executable, str(HERE / "dbos_steps.py"), str(STEPS), str(TOGETHER)],
        env=os.environ
        | {"BENCH_DATABASE": bench.database(), "BENCH_POSTMASTER": bench.postmaster()[0]},
        check=True,
        capture_output=True,
        text=True,
    )
    dbos = json.loads(theirs.stdout.strip().split("\n")[-1])
    return {
        "idle": idle,
        "token_worker": worker,
        "token_agent": quiet,
        "token_server": server,
        "step_cpu": step,
        "step_cpu_all": step_all,
        "step_p50": alone["p50"],
        "step_p99": alone["p99"],
        "step_rate": rate,
        "dbos_p50": dbos["p50"],
        "dbos_p99": dbos["p99"],
        "dbos_rate": dbos["rate"],
        "dbos_cpu_all": dbos["cpu"],
    }


if __name__ == "__main__":
    main()
