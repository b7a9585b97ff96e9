"""An agent over HTTP that numbers the lines of a text. It uses only the standard library.

a2ad sends a run as a POST, and the agent answers with one event per line. Checkpoints record its
progress. After a crash the next attempt continues after the last line that a2ad has saved.
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ADDRESS = "127.0.0.1:7001"
PAUSE = float(sys.argv[1]) if len(sys.argv) > 1 else 0.2  # seconds per line, to simulate work


def status(state, text=None):
    value = {"state": "TASK_STATE_" + state}
    if text:
        value["message"] = {"parts": [{"text": text}]}
    return {"statusUpdate": {"status": value}}


def work(run):
    text = "\n".join(part["text"] for message in run["messages"] for part in message["parts"] if "text" in part)
    lines = text.splitlines()
    if not lines:
        yield status("INPUT_REQUIRED", "Which text?")
        return
    for n in range(run.get("checkpoint", {}).get("lines", 0), len(lines)):
        time.sleep(PAUSE)
        # The checkpoint comes first: it is saved together with the event that follows it.
        yield {"checkpoint": {"lines": n + 1}}
        yield {"artifactUpdate": {
            "artifact": {
                "artifactId": "numbered",
                "name": "The text with numbers",
                "parts": [{"text": f"{n + 1} {lines[n]}\n"}],
            },
            "append": n > 0,
            "lastChunk": n + 1 == len(lines),
        }}
    yield status("COMPLETED")


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        run = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/cancel":
            self.send_response(204)
            self.end_headers()
            print(f"run {run['epoch']} of task {run['taskId']} is over: {run['reason']}", flush=True)
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.end_headers()
        try:
            for event in work(run):
                self.wfile.write(json.dumps(event).encode() + b"\n")
        except ConnectionError:
            pass  # the run has ended, and a2ad has closed the connection

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    host, port = ADDRESS.split(":")
    ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
