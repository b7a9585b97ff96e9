"""An agent for clients that send plain text: a command that is started for each run.

It goes by the text of the newest message:
  "ask"    asks which one, and completes the task with what it is told
  "hang"   works until it is canceled
  others   are said again, word by word, as pieces of one artifact
"""

import json
import signal
import sys


def agent():
    run = json.loads(sys.stdin.readline())
    said = ' '.join(p['text'] for p in run['messages'][-1]['parts'] if 'text' in p)

    def report(**event):
        print(json.dumps(event), flush=True)

    def status(state, text=None):
        message = {'message': {'parts': [{'text': text}]}} if text else {}
        report(statusUpdate={'status': {'state': 'TASK_STATE_' + state, **message}})

    if said == 'hang':
        sys.stdin.read()
        signal.pause()
    if said == 'ask':
        return status('INPUT_REQUIRED', 'Which one?')
    words = said.split()
    for i, word in enumerate(words):
        last = i == len(words) - 1
        text = word if last else word + ' '
        report(artifactUpdate={
            'artifact': {'artifactId': 'said', 'parts': [{'text': text}]}, 'append': i > 0, 'lastChunk': last
        })
    status('COMPLETED')


agent()
