"""What the tests of the frameworks share: a server with the agent of agent.py, and its tasks as it shows them."""

import asyncio
import json
import logging
import os
import sys
import unittest

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
        self.server = Server(('agents/talker.yaml', AGENT), '--agents', 'agents', *self.flags)
        await self.server.start()
        self.addAsyncCleanup(self.server.stop)

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
