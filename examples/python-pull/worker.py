"""A remote worker, using only the standard library. It numbers the lines of a text.

    python3 worker.py URL [NAME]

It claims runs from a2ad, works on one at a time, reports each line with a checkpoint, and renews its
lease while it works. Start as many as you like, on any machine. A2AD_API_KEY holds the API key.
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
PAUSE = 0.2  # seconds for a line, as if it were hard


class Lost(Exception):
    """The run is not ours any more: it was canceled, or another worker has it."""


def call(path, body, timeout=30):
    """POST until there is an answer. The request must be safe to repeat."""
    wait = 0.2
    while True:
        request = urllib.request.Request(f"{URL}/worker/v1/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
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
            pass  # no connection, or it broke
        time.sleep(wait)
        wait = min(2 * wait, 5)


class Run:
    """A run that we have claimed, with a thread that renews its lease."""

    def __init__(self, run):
        self.run = run
        self.path = f"runs/{run['taskId']}/{run['epoch']}"
        self.batches = 0
        self.over = threading.Event()  # it has ended, or is lost
        threading.Thread(target=self.keep, daemon=True).start()

    def keep(self):
        while not self.over.wait(self.run["leaseSeconds"] / 3):
            try:
                if call(self.path + "/heartbeat", {})["cancelRequested"]:
                    self.over.set()
            except Lost:
                self.over.set()

    def report(self, *events, **more):
        """Write events. The batch id makes it safe to send them again if no answer came."""
        if self.over.is_set():
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
        # The line and our progress are saved together, or not at all.
        run.report({"artifactUpdate": {
            "artifact": {"artifactId": "numbered", "name": "The text with numbers", "parts": [{"text": f"{n + 1} {lines[n]}\n"}]},
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
            except Exception as e:  # the next attempt may have more luck
                try:
                    call(run.path + "/finish", {"outcome": "retry", "error": str(e)})
                except Lost:
                    pass
            finally:
                run.over.set()


if __name__ == "__main__":
    main()
