"""a2ad as the official Python client sees it."""

import logging
import unittest
import uuid
from importlib.metadata import version

import grpc
import httpx

from a2a.client import (
    A2ACardResolver, AuthInterceptor, ClientCallContext, ClientConfig, ClientFactory, InMemoryContextCredentialStore,
)
from a2a.client.errors import A2AClientError, A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import (
    DataPart,
    FilePart,
    FileWithBytes,
    FileWithUri,
    GetTaskPushNotificationConfigParams,
    Message,
    Part,
    PushNotificationConfig,
    Role,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TaskState,
    TextPart,
    TransportProtocol,
)

from server import Gate, Server

# The oldest client of 0.3 loses the names and types of files over HTTP+JSON and gRPC, and its get_card does not sign
# in.
OLDEST = version('a2a-sdk') == '0.3.0'

QUICK = ('--lease-ttl', '1s', '--rescue-interval', '50ms', '--retry-backoff-base', '10ms')


def say(text, **of):
    return Message(role=Role.user, message_id=str(uuid.uuid4()), parts=[Part(root=TextPart(text=text))], **of)


def play(*ops):
    return Message(
        role=Role.user, message_id=str(uuid.uuid4()), parts=[Part(root=DataPart(data={'script': list(ops)}))]
    )


def chunks(name, n):
    return {'op': 'chunk', 'id': name, 'n': n}


def numbered(name, n):
    return [f'{name}:{k}:' for k in range(n)]


def texts(task, name):
    return [p.root.text for a in task.artifacts for p in a.parts if a.artifact_id == name]


class Interop(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.http = httpx.AsyncClient(timeout=60)
        self.addAsyncCleanup(self.http.aclose)

    async def server(self, *flags):
        server = Server(*flags)
        await server.start()
        self.addAsyncCleanup(server.stop)
        return server

    async def dial(self, server, agent='', **config):
        card = await A2ACardResolver(self.http, server.url + agent).get_agent_card()
        return ClientFactory(ClientConfig(httpx_client=self.http, **config)).create(card)

    async def send(self, client, message):
        """The task that a message creates or continues, by a client that does not stream."""
        [(task, update)] = [event async for event in client.send_message(message)]
        self.assertIsNone(update)
        return task

    async def until(self, stream, wanted):
        """The task as the client has it after the first wanted event."""
        async for task, update in stream:
            if wanted(update):
                return task
        self.fail('the stream has ended')

    async def to_end(self, stream):
        """The task as the client has it at the end of a stream, whose last event alone must be final."""
        finals = []
        async for task, update in stream:
            finals.append(bool(getattr(update, 'final', False)))
        self.assertEqual(finals, [False] * (len(finals) - 1) + [True])
        return task

    async def get(self, client, task, **params):
        return await client.get_task(TaskQueryParams(id=task.id, **params))

    def assert_same(self, folded, task):
        # This client also keeps the message of the current status in the history, and the metadata of events in
        # the task.
        exclude = {'history', 'metadata'}
        self.assertEqual(folded.model_dump(exclude=exclude), task.model_dump(exclude=exclude))

    async def test_tasks(self):
        server = await self.server()
        for name, check in {
            'card': self.check_card,
            'send': self.check_send,
            'stream': self.check_stream,
            'input': self.check_input,
            'cancel': self.check_cancel,
            'leave': self.check_leave,
            'errors': self.check_errors,
            'parts': self.check_parts,
        }.items():
            with self.subTest(name):
                await check(server)

    async def check_card(self, server):
        card = await A2ACardResolver(self.http, server.url + '/agents/script').get_agent_card()
        self.assertEqual((card.name, card.protocol_version, card.preferred_transport), ('script', '0.3.0', 'JSONRPC'))
        self.assertEqual(card.url, server.url + '/agents/script')
        self.assertTrue(card.capabilities.streaming)
        self.assertTrue(card.capabilities.push_notifications)

    async def check_send(self, server):
        client = await self.dial(server, streaming=False)
        message = say('hello, wörld')
        task = await self.send(client, message)
        self.assertEqual(task.status.state, TaskState.completed)
        self.assertEqual(task.artifacts[0].parts, message.parts)
        self.assertEqual(task.history, [message.model_copy(update={'task_id': task.id, 'context_id': task.context_id})])
        self.assertEqual(await self.get(client, task), task)

        polling = await self.dial(server, '/agents/script', streaming=False, polling=True)
        async with Gate() as gate:
            task = await self.send(polling, play(gate.op))
            self.assertIn(task.status.state, (TaskState.submitted, TaskState.working))
            self.assertEqual((await polling.cancel_task(TaskIdParams(id=task.id))).id, task.id)

    async def check_stream(self, server):
        client = await self.dial(server, '/agents/script')
        folded = await self.to_end(client.send_message(play(
            {'op': 'status', 'state': 'working', 'text': 'thinking'},
            chunks('a', 20),
            {'op': 'chunk', 'id': 'big', 'n': 2, 'bytes': 200_000},
            {'op': 'artifact', 'id': 'whole', 'text': 'at once'},
            {'op': 'complete', 'text': 'there you are'},
        )))
        task = await self.get(client, folded)
        self.assertEqual(task.status.state, TaskState.completed)
        self.assertEqual(texts(task, 'a'), numbered('a', 20))
        self.assert_same(folded, task)

    async def check_input(self, server):
        client = await self.dial(server, '/agents/script', streaming=False)
        streaming = await self.dial(server, '/agents/script')
        task = await self.send(
            client, play({'op': 'input', 'text': 'shall I?'}, {'op': 'artifact', 'id': 'a', 'text': 'done'})
        )
        self.assertEqual(task.status.state, TaskState.input_required)
        folded = await self.to_end(streaming.send_message(say('yes', task_id=task.id, context_id=task.context_id)))
        done = await self.get(client, task)
        self.assertEqual(done.status.state, TaskState.completed)
        self.assert_same(folded, done)
        self.assertEqual([m.parts[0].root.text for m in done.history[1:]], ['shall I?', 'yes'])
        for n in (1, 2, 9):
            self.assertEqual((await self.get(client, task, history_length=n)).history, done.history[-n:])
        self.assertFalse((await self.get(client, task, history_length=0)).history)

    async def check_cancel(self, server):
        client = await self.dial(server, '/agents/script')
        async with Gate() as gate:
            stream = client.send_message(play(chunks('a', 3), gate.op))
            seen = await self.until(stream, lambda u: getattr(u, 'last_chunk', False))
            task = await client.cancel_task(TaskIdParams(id=seen.id))
            self.assertEqual(task.status.state, TaskState.canceled)
            self.assert_same(await self.to_end(stream), await self.get(client, task))
        await self.refused(-32002, client.cancel_task(TaskIdParams(id=task.id)))

    async def check_leave(self, server):
        client = await self.dial(server, '/agents/script')
        async with Gate() as gate:
            stream = client.send_message(play(chunks('a', 10), gate.op, chunks('b', 20)))
            seen = await self.until(stream, lambda u: getattr(u, 'last_chunk', False))
            await stream.aclose()
            await self.come_back(client, seen, gate)

    async def come_back(self, client, seen, gate):
        back = client.resubscribe(TaskIdParams(id=seen.id))
        start = await self.until(back, lambda u: u is None)
        self.assertEqual(texts(start, 'a'), numbered('a', 10))
        gate.open()
        folded = await self.to_end(back)
        task = await self.get(client, seen)
        self.assertEqual(task.status.state, TaskState.completed)
        self.assert_same(folded, task)
        self.assertEqual((texts(task, 'a'), texts(task, 'b')), (numbered('a', 10), numbered('b', 20)))

    async def test_a_task_outlives_a_server_that_is_killed(self):
        server = await self.server(*QUICK)
        client = await self.dial(server, '/agents/script')
        async with Gate() as gate:
            stream = client.send_message(play(chunks('a', 10), gate.op, chunks('b', 20)))
            seen = await self.until(stream, lambda u: getattr(u, 'last_chunk', False))
            await server.kill()
            with self.assertRaises(A2AClientError):
                await self.to_end(stream)
            await server.restart()
            await self.come_back(client, seen, gate)

    async def test_other_bindings(self):
        server = await self.server('--default-agent', 'script', '--grpc-listen', '127.0.0.1:0')
        rpc = await self.dial(server)
        for transport, error, place in (
            (TransportProtocol.http_json, A2AClientHTTPError, lambda e: e.status_code),
            (TransportProtocol.grpc, grpc.aio.AioRpcError, lambda e: e.code()),
        ):
            with self.subTest(transport):
                config = {'supported_transports': [transport], 'grpc_channel_factory': grpc.aio.insecure_channel}
                client = await self.dial(server, streaming=False, **config)
                streaming = await self.dial(server, **config)
                message = play(chunks('a', 3), {'op': 'input', 'text': 'more?'})
                file = FilePart(file=FileWithBytes(bytes='AP/+Pj8=', name='f', mime_type='a/b'))
                message.parts.append(Part(root=file))
                asked = await self.send(client, message)
                self.assertEqual(asked.status.state, TaskState.input_required)
                known = FileWithBytes(bytes=file.file.bytes) if OLDEST else file.file
                self.assertEqual(asked.history[0].parts[1].root.file, known)
                self.assert_same_as_json(asked, await self.get(rpc, asked))
                folded = await self.to_end(streaming.send_message(say(
                    'yes', task_id=asked.id, context_id=asked.context_id
                )))
                done = await self.get(rpc, asked)
                self.assertEqual(done.status.state, TaskState.completed)
                self.assert_same_as_json(folded, done)
                self.assert_same_as_json(await self.get(client, asked), done)
                for status, call in (
                    (
                        (404, grpc.StatusCode.NOT_FOUND),
                        self.get(client, asked.model_copy(update={'id': str(uuid.uuid4())}))
                    ),
                    ((409, grpc.StatusCode.FAILED_PRECONDITION), client.cancel_task(TaskIdParams(id=asked.id))),
                    (
                        (422, grpc.StatusCode.INVALID_ARGUMENT),
                        anext(client.send_message(say('more', task_id=asked.id)))
                    ),
                ):
                    with self.assertRaises(error) as caught:
                        await call
                    self.assertIn(place(caught.exception), status)

    def assert_same_as_json(self, task, of_rpc):
        # Over these bindings the client drops the time of a status, and makes messages, lists and metadata where there
        # are none.
        self.assertEqual(*(
            (t.id, t.context_id, t.status.state, [(a.artifact_id, a.parts) for a in t.artifacts])
            for t in (task, of_rpc)
        ))

    async def check_errors(self, server):
        client = await self.dial(server, streaming=False)
        streaming = await self.dial(server)
        ended = await self.send(client, say('hello'))
        unknown = str(uuid.uuid4())
        empty = say('').model_copy(update={'parts': []})
        push = TaskPushNotificationConfig(
            task_id=unknown, push_notification_config=PushNotificationConfig(url='https://example.com/hook')
        )

        await self.refused(-32001, client.get_task(TaskQueryParams(id=unknown)))
        await self.refused(-32602, client.get_task(TaskQueryParams(id=ended.id, history_length=-1)))
        await self.refused(-32001, client.cancel_task(TaskIdParams(id=unknown)))
        await self.refused(-32001, client.set_task_callback(push))
        await self.refused(-32001, client.get_task_callback(GetTaskPushNotificationConfigParams(id=ended.id)))
        # Errors of streams arrive as events, because the client would not recognize others.
        for c in (client, streaming):
            await self.refused(-32001, anext(c.send_message(say('more', task_id=unknown))))
            await self.refused(-32602, anext(c.send_message(say('more', task_id=ended.id))))
            await self.refused(-32602, anext(c.send_message(empty)))
        await self.refused(-32001, anext(streaming.resubscribe(TaskIdParams(id=unknown))))
        self.assertEqual(await self.get(client, ended), ended)

    async def refused(self, code, call):
        with self.assertRaises(A2AClientJSONRPCError) as caught:
            await call
        self.assertEqual(caught.exception.error.code, code)
        self.assertTrue(caught.exception.error.data['reason'])

    async def check_parts(self, server):
        metadata = {'https://example.com/ext/v1': {'big': 2**60 + 1, 'n': 1.5, 'none': None, 'deep': [{'': 'x'}]}}
        message = say('', metadata=metadata, extensions=['https://example.com/ext/v1'], context_id=str(uuid.uuid4()))
        message.parts = [Part(root=p) for p in (
            TextPart(text='a\0b \u2028 🙂', metadata=metadata),
            TextPart(text=''),
            DataPart(data={'a': [1, 'two', None, {}], 'big': 2**60 + 1}, metadata=metadata),
            FilePart(
                file=FileWithBytes(bytes='AP/+Pj8=', name='naïve.bin', mime_type='application/octet-stream'),
                metadata=metadata
            ),
            FilePart(file=FileWithUri(uri='https://example.com/a%20b?c=d&e')),
        )]
        client = await self.dial(server)
        folded = await self.to_end(client.send_message(message))
        task = await self.get(client, folded)
        self.assertEqual(task.history, [message.model_copy(update={'task_id': task.id})])
        self.assertEqual(task.artifacts[0].parts, message.parts)
        self.assert_same(folded, task)

    async def test_signing_in(self):
        """The flow of the SDK's documents: resolve the card, sign in with AuthInterceptor, read the extended card."""
        server = await self.server(
            ('agents/words.yaml', GUARDED), '--auth', 'required', '--agents', 'agents', '--default-agent', 'words'
        )
        keys = {owner: await server.key(owner, 'tasks:read,tasks:write') for owner in ('ann', 'bob')}
        public = await A2ACardResolver(self.http, server.url).get_agent_card()
        self.assertEqual([s.id for s in public.skills], ['words'])
        self.assertTrue(public.supports_authenticated_extended_card)
        self.assertEqual(public.security_schemes['apiKey'].root.name, 'X-API-Key')
        self.assertEqual(public.security_schemes['bearer'].root.scheme.lower(), 'bearer')

        async def client(owner, scheme, **config):
            store = InMemoryContextCredentialStore()
            await store.set_credentials('session', scheme, keys[owner])
            factory = ClientFactory(ClientConfig(httpx_client=self.http, **config))
            return factory.create(public, interceptors=[AuthInterceptor(store)])

        session = ClientCallContext(state={'sessionId': 'session'})
        for scheme in ('apiKey', 'bearer'):
            for config in ({'streaming': False}, {}):
                ann = await client('ann', scheme, **config)
                events = [e async for e in ann.send_message(say('one two three'), context=session)]
                task = events[-1][0]
                self.assertEqual(task.status.state, TaskState.completed)
                self.assertEqual((await ann.get_task(TaskQueryParams(id=task.id), context=session)).id, task.id)
            card = await ann.get_card(context=session)
            self.assertEqual([s.id for s in card.skills], ['words'] if OLDEST else ['words', 'more'])
            bob = await client('bob', scheme)
            await self.refused(-32001, bob.get_task(TaskQueryParams(id=task.id), context=session))
        nobody = ClientFactory(ClientConfig(httpx_client=self.http, streaming=False)).create(public)
        with self.assertRaises(A2AClientError) as caught:
            await anext(nobody.send_message(say('hello')))
        self.assertIn('401', str(caught.exception))


GUARDED = """
name: words
description: Says what it is told.
executor: {echo: {}}
extended_card: {skills: [{id: more, name: More, description: For members., tags: [x]}]}
"""


if __name__ == '__main__':
    logging.getLogger('asyncio').setLevel(logging.ERROR)  # it warns of every step that takes 0.1 s
    unittest.main()
