#!/usr/bin/env bash
# langgraph-api 0.16.7 (PyPI), A2A 1.0: a stream repeats the text so far, and the task has no artifacts.
#
# A graph with one model call answers "Answer 1". A good guess is that a stream brings pieces of the text, or one
# message that grows under one id, and that GetTask shows the artifact that the stream has sent. Instead, each status
# has all of the text so far in a message with a new id, so a client that joins the messages of a task shows
# "AnswerAnswer Answer 1". The same text follows in an artifact. GetTask of the completed task has no artifacts: the
# text is in the history there, under another id, and the status has a message that the stream did not have.
#
# Seen:
#   stream   messages: Answer|Answer |Answer 1   distinct ids: 3   artifact: Answer 1   status: none
#   GetTask  messages: Answer 1                                    artifacts: none      status: Task completed successfully
#
# The script fails if a line differs.
set -euo pipefail
dir=$(mktemp -d)
trap 'kill "${server:-}" 2>/dev/null || true; rm -rf "$dir"' EXIT
python3 -m venv "$dir/env"
"$dir/env/bin/pip" install --quiet --disable-pip-version-check \
	'langgraph-api==0.16.7' 'langgraph-runtime-inmem==0.36.7' 'langgraph-cli==0.4.40' 'langgraph==1.2.24'
cat >"$dir/graph.py" <<'END'
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph


async def talk(state):
    model = GenericFakeChatModel(messages=iter([AIMessage(content=f'Answer {len(state["messages"])}')]))
    return {'messages': [await model.ainvoke(state['messages'])]}


graph = StateGraph(MessagesState).add_node('talk', talk).add_edge(START, 'talk').add_edge('talk', END).compile()
END
cat >"$dir/client.py" <<'END'
import json
import sys
import time
import urllib.request

base = sys.argv[1]


def post(path, body):
    headers = {'Content-Type': 'application/json', 'Accept': '*/*', 'A2A-Version': '1.0'}
    return urllib.request.urlopen(urllib.request.Request(base + path, json.dumps(body).encode(), headers), timeout=60)


def call(method, **params):
    return post(f'/a2a/{assistant}', {'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params})


def text(parts):
    return ''.join(p.get('text', '') for p in parts)


assistant = None
while not assistant:
    try:
        found = json.load(post('/assistants/search', {}))
        assistant = found[0]['assistant_id'] if found else None
    except OSError:
        pass
    time.sleep(0.2)

messages, ids, artifact, status = [], set(), None, None
for line in call('SendStreamingMessage', message={'messageId': 'm', 'role': 'ROLE_USER', 'parts': [{'text': 'hello'}]}):
    if not line.startswith(b'data:'):
        continue
    item = json.loads(line[5:])['result']
    if 'task' in item:
        task = item['task']['id']
    elif 'artifact' in item:
        artifact = text(item['artifact']['parts'])
    elif message := item['status'].get('message'):
        messages.append(text(message['parts']))
        ids.add(message['messageId'])
    status = item.get('status', {}).get('message') if item.get('final') else status
print(f'stream   messages: {"|".join(messages):<26} distinct ids: {len(ids)}   artifact: {artifact}   '
      f'status: {status and text(status["parts"]) or "none"}')
shown = json.load(call('GetTask', id=task))['result']
messages = [text(m['parts']) for m in shown['history'] if m['role'] == 'ROLE_AGENT']
print(f'GetTask  messages: {"|".join(messages):<43} artifacts: {len(shown.get("artifacts", [])) or "none"}      '
      f'status: {text(shown["status"]["message"]["parts"])}')
END
cd "$dir"
echo '{"dependencies": ["."], "graphs": {"agent": "./graph.py:graph"}}' >langgraph.json
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
env/bin/langgraph dev --no-browser --no-reload --port "$port" >server.log 2>&1 &
server=$!
env/bin/python client.py "http://127.0.0.1:$port" | tee out
diff - out <<'END'
stream   messages: Answer|Answer |Answer 1    distinct ids: 3   artifact: Answer 1   status: none
GetTask  messages: Answer 1                                    artifacts: none      status: Task completed successfully
END
