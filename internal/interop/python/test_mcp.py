"""The agents of a2ad as the official Python client of MCP sees them, over both transports."""

import asyncio
import contextlib
import datetime
import logging
import os
import re
import unittest

import anyio
import httpx
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from server import Gate, Server

SERVES = ('--agent', 'echo', '--agent', 'script')
PATIENCE = datetime.timedelta(seconds=60)


def play(*ops):
    return {'data': {'script': list(ops)}}


class HTTP:
    """`a2ad mcp --listen` as a process."""

    def __init__(self, server):
        self.server = server

    async def __aenter__(self):
        self.process = await asyncio.create_subprocess_exec(
            os.environ['A2AD_BIN'], 'mcp', '--url', self.server.url, '--listen', '127.0.0.1:0', *SERVES,
            stderr=asyncio.subprocess.PIPE, env={},
        )
        line = (await self.process.stderr.readline()).decode()
        self.url = re.fullmatch(r'serving MCP at (\S+)\n', line)[1]
        return self

    async def __aexit__(self, *_):
        self.process.terminate()
        _, log = await self.process.communicate()
        assert self.process.returncode == 0, log.decode()


class Interop(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.server = Server('--auth', 'required')
        await self.server.start()
        self.addAsyncCleanup(self.server.stop)
        self.alice, self.bob = [await self.server.key(who, 'tasks:read,tasks:write') for who in ('alice', 'bob')]

    @contextlib.asynccontextmanager
    async def client(self, transport, answers=()):
        """A client whose user gives these answers; without any it cannot ask a user."""
        self.asked, left = [], list(answers)

        async def ask(_, params):
            self.asked.append(params.message)
            return types.ElicitResult(action='accept', content={'answer': left.pop(0)})

        async with transport as streams, ClientSession(
            *streams[:2], elicitation_callback=ask if answers else None, read_timeout_seconds=PATIENCE,
        ) as session:
            self.info = await session.initialize()
            yield session

    def stdio(self, key):
        return stdio_client(StdioServerParameters(
            command=os.environ['A2AD_BIN'], args=['mcp', '--url', self.server.url, *SERVES], env={'A2AD_API_KEY': key},
        ))

    async def transports(self):
        http = await self.enterAsyncContext(HTTP(self.server))
        yield 'stdio', self.stdio
        yield 'http', lambda key: self.over_http(http.url, key)

    @contextlib.asynccontextmanager
    async def over_http(self, url, key):
        async with httpx.AsyncClient(headers={'Authorization': f'Bearer {key}'}, timeout=60) as http:
            async with streamable_http_client(url, http_client=http) as streams:
                yield streams

    async def call(self, session, tool, error=False, progress=None, **arguments):
        result = await session.call_tool(tool, arguments, progress_callback=progress)
        self.assertEqual(bool(result.isError), error, result)
        return result

    async def test_sends_and_reads(self):
        async for name, transport in self.transports():
            with self.subTest(name):
                async with self.client(transport(self.alice)) as session:
                    self.assertEqual(self.info.serverInfo.name, 'a2ad')
                    tools = {tool.name for tool in (await session.list_tools()).tools}
                    self.assertEqual(tools, {'send_to_echo', 'send_to_script', 'get_task', 'follow_task',
                                             'answer_task', 'cancel_task', 'list_tasks'})
                    # The client checks the structured content against the schema of the tool.
                    result = await self.call(session, 'send_to_echo', message='hello', data={'n': 1.5})
                    task = result.structuredContent
                    self.assertEqual((task['state'], task['artifacts'][0]['text'], task['artifacts'][0]['data']),
                                     ('completed', 'hello', [{'n': 1.5}]))
                    self.assertEqual(result.content[0].text, 'hello')
                    again = await self.call(session, 'get_task', agent='echo', taskId=task['taskId'])
                    self.assertEqual(again.structuredContent, task)
                    listed = await self.call(session, 'list_tasks', agent='echo')
                    self.assertEqual(listed.structuredContent['tasks'][0]['taskId'], task['taskId'])

    async def test_follows_with_progress(self):
        async for name, transport in self.transports():
            with self.subTest(name):
                heard, named = [], asyncio.Event()

                async def progress(_, __, message):
                    heard.append(message)
                    named.set()

                async with Gate() as gate, self.client(transport(self.alice)) as session:
                    start = await self.call(session, 'send_to_script', waitSeconds=0, **play(
                        gate.op, {'op': 'status', 'text': 'almost'}, {'op': 'artifact', 'id': 'a', 'text': '42'},
                        {'op': 'complete', 'text': 'done'}))
                    task = start.structuredContent['taskId']
                    following = asyncio.create_task(self.call(
                        session, 'follow_task', progress=progress, agent='script', taskId=task, waitSeconds=60))
                    await named.wait()
                    gate.open()
                    end = (await following).structuredContent
                    self.assertEqual((end['state'], end['message'], end['artifacts'][0]['text']),
                                     ('completed', 'done', '42'))
                    self.assertIn(task, heard[0])
                    self.assertEqual([m for m in heard if 'Task' not in m], ['almost', '42', 'done'])

    async def test_answers_questions(self):
        ops = ({'op': 'input', 'text': 'Where?'}, {'op': 'input', 'text': 'When?'}, {'op': 'complete', 'text': 'Fine.'})
        async for name, transport in self.transports():
            with self.subTest(name):
                async with self.client(transport(self.alice), answers=['Rome', 'today']) as session:
                    result = await self.call(session, 'send_to_script', **play(*ops))
                    self.assertEqual(result.structuredContent['state'], 'completed')
                    self.assertEqual(self.asked, ['Where?', 'When?'])
                async with self.client(transport(self.alice)) as session:
                    result = await self.call(session, 'send_to_script', **play(*ops[1:]))
                    self.assertEqual(result.structuredContent['state'], 'input-required')
                    result = await self.call(session, 'answer_task', agent='script', message='today',
                                             taskId=result.structuredContent['taskId'])
                    self.assertEqual(result.structuredContent['message'], 'Fine.')

    async def test_cancels_and_refuses(self):
        async for name, transport in self.transports():
            with self.subTest(name):
                async with self.client(transport(self.alice)) as session:
                    start = await self.call(session, 'send_to_script', **play({'op': 'input', 'text': 'Go?'}))
                    task = {'agent': 'script', 'taskId': start.structuredContent['taskId']}
                    async with self.client(transport(self.bob)) as other:
                        for tool in ('get_task', 'cancel_task', 'follow_task'):
                            refused = await self.call(other, tool, error=True, **task)
                            self.assertIn('not found', refused.content[0].text)
                        listed = await self.call(other, 'list_tasks', agent='script')
                        self.assertEqual(listed.structuredContent, {'tasks': []})
                    canceled = await self.call(session, 'cancel_task', **task)
                    self.assertEqual(canceled.structuredContent['state'], 'canceled')
                    bad = await self.call(session, 'get_task', error=True, agent='nobody', taskId='x')
                    self.assertIn('arguments.agent', bad.content[0].text)
                    with self.assertRaisesRegex(McpError, 'send_to_nobody'):
                        await session.call_tool('send_to_nobody', {'message': 'x'})

    async def test_disconnects_in_the_middle(self):
        async for name, transport in self.transports():
            with self.subTest(name):
                named = asyncio.get_running_loop().create_future()

                async def progress(_, __, message):
                    if not named.done():
                        named.set_result(message.split()[1])

                async with Gate() as gate:
                    try:
                        async with self.client(transport(self.alice)) as session:
                            call = asyncio.create_task(self.call(
                                session, 'send_to_script', progress=progress, waitSeconds=3600,
                                **play(gate.op, {'op': 'artifact', 'id': 'a', 'text': 'kept'})))
                            task = await named
                            call.cancel()
                    except* anyio.BrokenResourceError:
                        pass  # this client fails if it gets a message while it closes
                    async with self.client(transport(self.alice)) as session:
                        found = await self.call(session, 'list_tasks', agent='script', state='working')
                        self.assertEqual([t['taskId'] for t in found.structuredContent['tasks']], [task])
                        gate.open()
                        end = await self.call(session, 'follow_task', agent='script', taskId=task)
                        self.assertEqual(end.structuredContent['artifacts'][0]['text'], 'kept')


if __name__ == '__main__':
    logging.getLogger('asyncio').setLevel(logging.ERROR)  # it warns of every step that takes 0.1 s
    unittest.main()
