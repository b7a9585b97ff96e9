"""An LLM agent for any endpoint with OpenAI's chat completions. It uses only the standard library.

a2ad starts it once for every run (exec). The run is one line of JSON on stdin, and every line on stdout
is an event. The agent appends tokens to an artifact as they arrive, and saves a checkpoint with each
piece. After a crash the next attempt asks the model to continue after the last saved piece, so the
tokens before it are not paid twice. If the model asks a question, the task asks its client, and the
next message continues the conversation.

Environment variables: LLM_URL (http://127.0.0.1:7002/v1), LLM_MODEL, LLM_API_KEY.
"""

import http.client
import json
import os
import sys
import urllib.error
import urllib.request

URL = os.environ.get("LLM_URL", "http://127.0.0.1:7002/v1")
MODEL = os.environ.get("LLM_MODEL", "small")
KEY = os.environ.get("LLM_API_KEY", "")

ASK = "QUESTION:"
SYSTEM = (
    "You are a helpful assistant. "
    f"If you cannot answer without knowing more, answer with one question that begins with {ASK}"
)
CONTINUE = "Your answer was cut off. Continue exactly after its last character, and repeat nothing."
TRY_AGAIN = 75  # EX_TEMPFAIL: a later attempt may succeed


def emit(event):
    print(json.dumps(event), flush=True)


def status(state, text):
    emit({"statusUpdate": {"status": {"state": "TASK_STATE_" + state, "message": {"parts": [{"text": text}]}}}})


def conversation(run):
    """Yield the messages of the task so far, in the form that the model expects."""
    roles = {"ROLE_USER": "user", "ROLE_AGENT": "assistant"}
    for message in run["task"].get("history", []):
        text = "\n".join(part["text"] for part in message["parts"] if "text" in part)
        if text:
            yield {"role": roles[message["role"]], "content": text}


def tokens(messages, user):
    """Yield the pieces of the model's answer as they arrive."""
    headers = {"Content-Type": "application/json"}
    if KEY:
        headers["Authorization"] = "Bearer " + KEY
    body = json.dumps({"model": MODEL, "messages": messages, "stream": True, "user": user}).encode()
    request = urllib.request.Request(URL + "/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        for line in answer:
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                return
            choice = json.loads(data)["choices"][0]
            yield choice["delta"].get("content") or ""
    raise ConnectionError("the model's answer was cut")


def main():
    run = json.loads(sys.stdin.readline())
    turn = sum(message["role"] == "ROLE_USER" for message in run["task"].get("history", []))
    messages = [{"role": "system", "content": SYSTEM}, *conversation(run)]
    saved = run.get("checkpoint", {})
    text = saved.get("text", "") if saved.get("turn") == turn else ""  # not the text of another turn
    if text:
        messages += [
            {"role": "assistant", "content": text},
            {"role": "user", "content": CONTINUE},
        ]
    reported = len(text)

    def report():
        nonlocal reported
        if reported == len(text):
            return
        emit({"checkpoint": {"turn": turn, "text": text}})
        emit({"artifactUpdate": {
            "artifact": {"artifactId": f"answer-{turn}", "name": "Answer", "parts": [{"text": text[reported:]}]},
            "append": reported > 0,
        }})
        reported = len(text)

    for token in tokens(messages, run["contextKey"]):
        text += token
        if not ASK.startswith(text) and not text.startswith(ASK):  # it is not a question and cannot become one
            report()
    if text.startswith(ASK):
        status("INPUT_REQUIRED", text.removeprefix(ASK).strip())
    else:
        report()
        status("COMPLETED", "Done.")


if __name__ == "__main__":
    try:
        main()
    except urllib.error.HTTPError as e:
        print(f"the model answers {e.code}: {e.read(300).decode(errors='replace')}", file=sys.stderr)
        sys.exit(TRY_AGAIN if e.code in (408, 409, 429) or e.code >= 500 else 1)
    except (OSError, http.client.HTTPException) as e:
        print(f"the model cannot be reached: {e}", file=sys.stderr)
        sys.exit(TRY_AGAIN)
