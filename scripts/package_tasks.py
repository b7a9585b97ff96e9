"""The client of scripts/package-test.sh. It makes tasks before an upgrade, and checks them after it.

    package_tasks.py make URL FILE      make tasks that have ended or ask, and write what the server says of them to FILE
    package_tasks.py add URL FILE       make one more task that has ended
    package_tasks.py run URL FILE       make tasks that are still running
    package_tasks.py check URL FILE     check that the tasks of FILE are as they were, and let the others complete

It speaks A2A 0.3, which all releases speak, with the key in A2AD_API_KEY. It fails if an answer is an error.
"""

import json
import os
import sys
import time
import urllib.request
import uuid

CHUNKS = 200  # of a task that runs while the server is replaced, ten a second
PATIENCE = 120  # seconds


def call(url, agent, method, params):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["A2AD_API_KEY"]}
    request = urllib.request.Request(f"{url}/agents/{agent}", body, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        parsed = json.load(answer)
    if "result" not in parsed:
        sys.exit(f"{method} of {agent}: {parsed.get('error')}")
    return parsed["result"]


def send(url, agent, part, task=None, blocking=True):
    message = {"kind": "message", "role": "user", "messageId": str(uuid.uuid4()), "parts": [part]}
    if task:
        message["taskId"] = task
    return call(url, agent, "message/send", {"message": message, "configuration": {"blocking": blocking}})


def script(*ops):
    return {"kind": "data", "data": {"script": list(ops)}}


def get(url, agent, task):
    return call(url, agent, "tasks/get", {"id": task})


def text(task):
    return "".join(part["text"] for artifact in task.get("artifacts", []) for part in artifact["parts"])


def await_state(url, agent, task, state):
    limit = time.monotonic() + PATIENCE
    while True:
        found = get(url, agent, task)
        if found["status"]["state"] == state:
            return found
        if found["status"]["state"] in ("failed", "canceled", "rejected") or time.monotonic() > limit:
            sys.exit(f"task {task} of {agent} is {found['status']}, want {state}")
        time.sleep(0.1)


def content(task):
    """Return what a client has been told of a task, without what two versions may show differently."""
    history = [(m["messageId"], m["role"], m["parts"]) for m in task.get("history", [])]
    artifacts = [(a["artifactId"], a["parts"]) for a in task.get("artifacts", [])]
    return json.loads(json.dumps([task["contextId"], task["status"]["state"], history, artifacts]))


def completed(url, n):
    task = send(url, "echo", {"kind": "text", "text": f"hello {n}"})
    if task["status"]["state"] != "completed" or f"hello {n}" not in json.dumps(task["artifacts"]):
        sys.exit(f"echo answers {task}")
    return ["completed", "echo", task["id"], content(get(url, "echo", task["id"]))]


def make(url):
    tasks = [completed(url, n) for n in range(20)]
    failed = send(url, "script", script({"op": "fail", "text": "on purpose"}))
    tasks.append(["failed", "script", failed["id"], content(get(url, "script", failed["id"]))])
    asking = send(url, "script", script({"op": "artifact", "id": "a", "text": "before "}, {"op": "input", "text": "?"}))
    asking = await_state(url, "script", asking["id"], "input-required")
    tasks.append(["asking", "script", asking["id"], content(asking)])
    return tasks


def run(url):
    task = send(url, "script", script({"op": "chunk", "id": "a", "n": CHUNKS, "every_ms": 100}), blocking=False)
    await_state(url, "script", task["id"], "working")
    return ["running", "script", task["id"], None]


def check(url, kind, agent, task, before):
    now = get(url, agent, task)
    if kind in ("completed", "failed", "asking") and content(now) != before:
        sys.exit(f"the {kind} task {task} was\n{before}\nand is\n{content(now)}")
    if kind == "asking":
        send(url, agent, script({"op": "artifact", "id": "b", "text": "after"}), task=task)
        if text(await_state(url, agent, task, "completed")) != "before after":
            sys.exit(f"the task {task} that asked is {get(url, agent, task)}")
    if kind == "running":
        want = "".join(f"a:{n}:" for n in range(CHUNKS))
        if text(await_state(url, agent, task, "completed")) != want:
            sys.exit(f"the task {task} that ran while the server was replaced lacks chunks: {get(url, agent, task)}")


def main():
    verb, url, file = sys.argv[1:]
    tasks = []
    if verb != "make":
        with open(file, encoding="utf-8") as source:
            tasks = json.load(source)
    if verb == "make":
        tasks = make(url)
    elif verb == "add":
        tasks.append(completed(url, len(tasks)))
    elif verb == "run":
        tasks += [run(url) for _ in range(3)]
    else:
        for task in tasks:
            check(url, *task)
        print(f"{len(tasks)} tasks are as they were, or have completed")
        return
    with open(file, "w", encoding="utf-8") as out:
        json.dump(tasks, out)


main()
