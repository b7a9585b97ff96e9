"""A fake model, to try agent.py without a real one. It implements the part of the API that the agent needs.

If the conversation names no topic ("about …"), it asks for one. Then it writes thirty words of one
token each. GET /served returns the number of tokens that it has written, which a real model would charge.
"""

import json
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ADDRESS = "127.0.0.1:7002"
PAUSE = float(sys.argv[1]) if len(sys.argv) > 1 else 0.1  # seconds per token

served = 0


def answer(messages):
    said = [m["content"] for m in messages if m["role"] == "user"]
    topic = re.search(r"about (\w+)", " ".join(said))
    if not topic:
        return ["QUESTION", ": ", "About ", "what?"]
    return [f"{topic[1]}-{n} " for n in range(1, 31)]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{served}\n".encode())

    def do_POST(self):
        global served
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        tokens = answer(body["messages"])
        if body["messages"][-1]["content"].startswith("Your answer was cut off."):
            written = body["messages"][-2]["content"]
            while tokens and written.startswith(tokens[0]):
                written = written.removeprefix(tokens.pop(0))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            for token in tokens:
                time.sleep(PAUSE)
                self.chunk(json.dumps({"choices": [{"index": 0, "delta": {"content": token}}]}))
                served += 1
            self.chunk("[DONE]")
        except ConnectionError:
            pass

    def chunk(self, data):
        self.wfile.write(f"data: {data}\n\n".encode())

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    host, port = ADDRESS.split(":")
    ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
