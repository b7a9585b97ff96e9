"""What the tests of `a2ad import` share: tasks that an SDK's server makes, the command, and the comparison."""

import asyncio
import json
import os
import unittest

import httpx
from sqlalchemy.ext.asyncio import create_async_engine

from server import Server

ENDED = ['completed', 'failed', 'rejected', 'canceled']
WAITING = ['input-required', 'auth-required']
RUNNING = ['submitted', 'working']
TEXTS = ENDED + WAITING + RUNNING + ['input-required, completed']  # the last one is of two messages


async def act(agent, updater, text):
    """Does what a message asks for: brings its task to a state. agent makes messages and parts of its SDK."""
    if text != 'submitted':
        await updater.start_work(agent.say('By train?'))
        await updater.start_work()
    match text:
        case 'completed':
            parts = agent.parts()
            await updater.add_artifact(parts, artifact_id='all', name='All', metadata={'price': 1.5, 'of': {'n': None}})
            for part in parts:
                await updater.add_artifact([part], artifact_id='grows', append=part is not parts[0])
            await updater.complete(agent.say('Done'))
        case 'failed':
            await updater.failed(agent.say('No train'))
        case 'rejected':
            await updater.reject()
        case 'canceled':
            await updater.cancel()
        case 'input-required':
            await updater.requires_input(agent.say('Where to?'))
        case 'auth-required':
            await updater.requires_auth(agent.say('Who are you?'))


class ImportCase(unittest.IsolatedAsyncioTestCase):
    """Stores of an SDK, as its server writes them, and what a2ad makes of them."""

    maxDiff = None

    async def asyncSetUp(self):
        self.server = Server()
        await self.server.start()
        self.addAsyncCleanup(self.server.stop)
        self.http = httpx.AsyncClient(timeout=60)
        self.addAsyncCleanup(self.http.aclose)

    async def engines(self):
        """A database of each kind, with its name for `a2ad import`."""
        with open(os.path.join(self.server.dir, 'pg', 'data', 'postmaster.pid')) as f:
            _, _, _, port, directory, *_ = f.read().splitlines()
        for url in (f'sqlite+aiosqlite:///{self.server.dir}/tasks.db',
                    f'postgresql+asyncpg://a2ad@/a2ad?host={directory}&port={port}'):
            engine = create_async_engine(url)
            try:
                yield engine, url
            finally:
                await engine.dispose()

    async def imports(self, url, *flags):
        """What an import says: its counts by state, and how many webhooks came with the tasks."""
        process = await asyncio.create_subprocess_exec(
            os.environ['A2AD_BIN'], 'import', '--data-dir', os.path.join(self.server.dir, 'pg'), '--from', url,
            '--agent', 'echo', '--owner', 'anonymous', '-o', 'json', *flags, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        *problems, report = [json.loads(line) for line in out.splitlines()]
        self.assertEqual((process.returncode, problems, report.get('left')), (0, [], None))
        return {state: {k: n for k, n in counts.items() if n} for state, counts in report['states'].items()}, \
            report['webhooks']

    async def ask(self, method, **params):
        """The result of a request to the agent that has the tasks now."""
        answer = await self.http.post(
            self.server.url + '/agents/echo', headers={'A2A-Version': self.version},
            json={'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params})
        return answer.json()['result']

    async def check(self, url, table, tasks):
        """Imports the tasks of a table, which its server shows as in tasks, and compares."""
        flags = ['--table', table]
        ended = {'completed': 2, 'failed': 1, 'rejected': 1, 'canceled': 1}
        still = {s: {'known': n} for s, n in {**ended, **dict.fromkeys(WAITING, 1)}.items()}
        first = {s: {'imported': n['known']} for s, n in still.items()}
        skipped = dict.fromkeys(RUNNING, {'skipped': 1})
        self.assertEqual(await self.imports(url, *flags, '--dry-run'), ({**first, **skipped}, 2))
        self.assertEqual(await self.imports(url, *flags), ({**first, **skipped}, 2))
        for text in set(TEXTS) - set(RUNNING):
            self.assertEqual(await self.ask(self.get, id=tasks[text]['id']), self.expected(tasks[text]))
        self.assertEqual(
            await self.imports(url, *flags, '--running', 'submit'),
            ({**still, **dict.fromkeys(RUNNING, {'imported': 1})}, 2))
        self.assertEqual(
            await self.imports(url, *flags, '--running', 'submit'),
            ({**still, **dict.fromkeys(RUNNING, {'known': 1})}, 0))
        for text in RUNNING:  # the agent runs the message again
            await self.until_echoed(tasks[text]['id'], text)
        for text in WAITING:  # and gets the answer of the client
            await self.answer(tasks[text], 'To Rome')
            await self.until_echoed(tasks[text]['id'], 'To Rome')

    async def until_echoed(self, id, text):
        while (task := await self.ask(self.get, id=id))['status']['state'] != self.completed:
            await asyncio.sleep(0.02)
        self.assertEqual([p['text'] for a in task['artifacts'] for p in a['parts']], [text])

    def expected(self, task):
        """A task of the SDK as a2ad shows it: times have milliseconds, and all messages name their task."""
        for message in [*task.get('history', []), *filter(None, [task['status'].get('message')])]:
            message.update(taskId=task['id'], contextId=task['contextId'])
        status = task['status']
        status['timestamp'] = status['timestamp'][:len('2026-01-02T03:04:05.678')] + 'Z'
        return task
