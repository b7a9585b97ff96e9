"""A remote worker that numbers the lines of a text. It uses only the standard library.

    python3 worker.py URL [NAME]

It claims runs from a2ad, one at a time. It reports each line with a checkpoint, and renews the lease
of the run while it works. You can start any number of workers, on any machine. A2AD_API_KEY holds the
API key.
"""

import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
NAME = sys.argv[2] if len(sys.argv) > 2 else f"python-{os.getpid()}"
KEY = os.environ.get("A2AD_API_KEY")
PAUSE = 0.2  # seconds per line, to simulate work


class Lost(Exception):
    """The run was canceled, or its lease was lost to another worker."""


def call(path, body, timeout=30):
    """POST, and retry until there is an answer. The request must be safe to repeat."""
    wait = 0.2
    while True:
        request = urllib.request.Request(f"{URL}/worker/v1/{path}", json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        if KEY:
            request.add_header("Authorization", f"Bearer {KEY}")
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            if e.code == 409:
                raise Lost(path) from None
            if e.code not in (429, 500, 503):
                raise SystemExit(f"{path}: {e.code} {e.read().decode()}") from None
        except OSError:
            pass  # the server is unreachable, or the connection broke
        time.sleep(wait)
        wait = min(2 * wait, 5)


class Run:
    """A claimed run, with a thread that renews its lease."""

    def __init__(self, run):
        self.run = run
        self.path = f"runs/{run['taskId']}/{run['epoch']}"
        self.batches = 0
        self.ended = threading.Event()  # set when the run has ended, was canceled or is lost
        threading.Thread(target=self.renew, daemon=True).start()

    def renew(self):
        while not self.ended.wait(self.run["leaseSeconds"] / 3):
            try:
                if call(self.path + "/heartbeat", {})["cancelRequested"]:
                    self.ended.set()
            except Lost:
                self.ended.set()

    def report(self, *events, **more):
        """Write events. With its batch id a2ad stores a batch once, even if it is sent again."""
        if self.ended.is_set():
            raise Lost(self.path)
        self.batches += 1
        if call(self.path + "/events", {"events": events, "batchId": f"b{self.batches}", **more})["cancelRequested"]:
            raise Lost(self.path)


def status(state, text=None):
    value = {"state": "TASK_STATE_" + state}
    if text:
        value["message"] = {"parts": [{"text": text}]}
    return {"statusUpdate": {"status": value}}


def work(run):
    text = "\n".join(p["text"] for m in run.run["messages"] for p in m["parts"] if "text" in p)
    lines = text.splitlines()
    if not lines:
        run.report(status("INPUT_REQUIRED", "Which text?"))
        return
    for n in range(run.run.get("checkpoint", {}).get("lines", 0), len(lines)):
        time.sleep(PAUSE)
        # The line and the checkpoint are saved in one transaction.
        run.report({"artifactUpdate": {
            "artifact": {
                "artifactId": "numbered",
                "name": "The text with numbers",
                "parts": [{"text": f"{n + 1} {lines[n]}\n"}],
            },
            "append": n > 0,
            "lastChunk": n + 1 == len(lines),
        }}, checkpoint={"lines": n + 1})
    run.report(status("COMPLETED"))


def main():
    while True:
        answer = call("claim", {"worker": NAME, "agents": ["lines"], "waitSeconds": 30}, timeout=60)
        for claimed in answer["runs"]:
            run = Run(claimed)
            try:
                work(run)
            except Lost:
                print(f"{run.path} is not ours any more", flush=True)
            except Exception as e:  # the next attempt may succeed
                try:
                    call(run.path + "/finish", {"outcome": "retry", "error": str(e)})
                except Lost:
                    pass
            finally:
                run.ended.set()


if __name__ == "__main__":
    main()
