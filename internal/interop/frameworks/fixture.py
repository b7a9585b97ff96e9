"""What the tests of the frameworks share: a server with the agent of agent.py, and its tasks as it shows them."""

import asyncio
import json
import logging
import os
import socket
import sys
import tempfile
import unittest
import urllib.request
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'python'))
from server import Server  # noqa: E402

logging.getLogger('asyncio').setLevel(logging.ERROR)  # it warns of every step that takes 0.1 s

AGENT = f"""
name: talker
description: Says what it is told.
default: true
executor: {{exec: {{command: ['{sys.executable}', '-I', '-S', '{HERE}/agent.py']}}}}
"""


class Interop(unittest.IsolatedAsyncioTestCase):
    """A test of a framework, with a server for all of its methods."""

    flags = ()

    async def asyncSetUp(self):
        self.server = Server(('agents/talker.yaml', await self.agent()), '--agents', 'agents', *self.flags)
        await self.server.start()
        self.addAsyncCleanup(self.server.stop)

    async def agent(self):
        """The agent file."""
        return AGENT

    @property
    def url(self):
        return self.server.url

    async def call(self, method, **params):
        """An answer of the server to a request of A2A 1.0, made without any framework."""
        body = json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params}).encode()
        host, port = self.server.address.split(':')
        reader, writer = await asyncio.open_connection(host, port)
        head = (
            f'POST / HTTP/1.1\r\nHost: {self.server.address}\r\n'
            'Content-Type: application/json\r\nA2A-Version: 1.0\r\n'
        )
        writer.write(f'{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n'.encode() + body)
        answer = await reader.read()
        writer.close()
        answer = json.loads(answer.partition(b'\r\n\r\n')[2])
        self.assertNotIn('error', answer)
        return answer['result']

    async def tasks(self):
        """The tasks of the server, newest first."""
        return (await self.call('ListTasks', includeArtifacts=True, historyLength=10))['tasks']

    async def check_task(self, state, artifact, messages):
        """The newest task has this state, this text as its only artifact, and this many messages of the client."""
        task = (await self.tasks())[0]
        self.assertEqual(task['status']['state'], 'TASK_STATE_' + state)
        self.assertEqual(''.join(p['text'] for a in task.get('artifacts', []) for p in a['parts']), artifact)
        self.assertEqual(len([m for m in task['history'] if m['role'] == 'ROLE_USER']), messages)
        return task


class Front(Interop):
    """A test of an agent that a2ad stands in front of: a program, which gets the port that it must listen on."""

    program = ''
    card = '/.well-known/agent-card.json'

    async def agent(self):
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            port = free.getsockname()[1]
        self.upstream = await asyncio.create_subprocess_exec(
            sys.executable, os.path.join(HERE, self.program), str(port), cwd=tempfile.mkdtemp(),
        )
        self.addAsyncCleanup(self.end)
        card = await self.started(f'http://127.0.0.1:{port}')
        return f'name: front\ndescription: In front of another.\ndefault: true\nexecutor: {{a2a: {{card: "{card}"}}}}\n'

    async def started(self, address):
        """Waits until the card can be read, and returns its URL."""
        while True:
            self.assertIsNone(self.upstream.returncode)
            try:
                urllib.request.urlopen(address + self.card, timeout=10).close()
                return address + self.card
            except OSError:
                await asyncio.sleep(0.2)

    async def end(self):
        self.upstream.terminate()
        await self.upstream.wait()

    async def ask(self, text, **of):
        """A task of the front, after its end, with its history."""
        message = {'messageId': str(uuid.uuid4()), 'role': 'ROLE_USER', 'parts': [{'text': text}], **of}
        task = (await self.call('SendMessage', message=message))['task']
        return await self.call('GetTask', id=task['id'])

    def said(self, task):
        """The texts of the agent in the history, those of the artifacts, and that of the last status."""
        def text(parts):
            return ''.join(p.get('text', '') for p in parts)

        return (
            [text(m['parts']) for m in task.get('history', []) if m['role'] == 'ROLE_AGENT'],
            [text(a['parts']) for a in task.get('artifacts', [])],
            text(task['status'].get('message', {}).get('parts', [])),
        )
