"""a2ad as the official Python client of A2A 1.0 sees it."""

import logging
import unittest
import uuid

import grpc
import httpx

from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import InvalidParamsError, TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError
from google.protobuf.json_format import MessageToDict, ParseDict

from server import Gate, Server


def say(text='', parts=None, **of):
    message = {
        'messageId': str(uuid.uuid4()), 'role': 'ROLE_USER', 'parts': [{'text': text}] if parts is None else parts, **of
    }
    return ParseDict({'message': message}, SendMessageRequest())


def play(*ops, **of):
    return say(parts=[{'data': {'script': list(ops)}}], **of)


def chunks(name, n):
    return {'op': 'chunk', 'id': name, 'n': n}


class Interop(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.http = httpx.AsyncClient(timeout=60)
        self.addAsyncCleanup(self.http.aclose)

    async def dial(self, agent='/agents/script', streaming=True):
        card = await A2ACardResolver(self.http, self.server.url + agent).get_agent_card()
        self.assertEqual(card.supported_interfaces[0].protocol_version, '1.0')
        client = ClientFactory(ClientConfig(
            httpx_client=self.http, streaming=streaming, supported_protocol_bindings=[self.binding],
            grpc_channel_factory=grpc.aio.insecure_channel)).create(card)
        self.addAsyncCleanup(client.close)
        return client

    async def send(self, client, request):
        """The result of a message, by a client that does not stream."""
        [answer] = [event async for event in client.send_message(request)]
        return getattr(answer, answer.WhichOneof('payload'))

    async def fold(self, stream, until=lambda event: False):
        """The task as a client that follows a stream has it."""
        task = None
        async for event in stream:
            kind = event.WhichOneof('payload')
            if task is None:
                self.assertEqual(kind, 'task')
                task = Task()
                task.CopyFrom(event.task)
            elif kind == 'status_update':
                if task.status.HasField('message'):
                    task.history.append(task.status.message)
                task.status.CopyFrom(event.status_update.status)
            else:
                update = event.artifact_update
                known = [a for a in task.artifacts if a.artifact_id == update.artifact.artifact_id]
                if update.append:
                    known[0].parts.extend(update.artifact.parts)
                elif known:
                    known[0].CopyFrom(update.artifact)
                else:
                    task.artifacts.append(update.artifact)
            if until(event):
                break
        return task

    async def test_jsonrpc(self):
        await self.check('JSONRPC')

    async def test_rest(self):
        await self.check('HTTP+JSON')

    async def test_grpc(self):
        await self.check('GRPC', '--grpc-listen', '127.0.0.1:0')

    async def check(self, binding, *flags):
        self.binding = binding
        self.server = Server(*flags)
        await self.server.start()
        self.addAsyncCleanup(self.server.stop)
        for check in (self.check_send, self.check_stream, self.check_subscribe, self.check_input, self.check_reply,
                      self.check_cancel, self.check_errors, self.check_webhooks, self.check_parts):
            with self.subTest(check.__name__):
                await check()

    async def check_send(self):
        client = await self.dial(streaming=False)
        context = str(uuid.uuid4())
        task = await self.send(client, play(chunks('a', 3), contextId=context))
        self.assertEqual(task.status.state, TaskState.TASK_STATE_COMPLETED)
        self.assertEqual(await client.get_task(GetTaskRequest(id=task.id)), task)
        page = await client.list_tasks(ListTasksRequest(context_id=context, include_artifacts=True))
        self.assertEqual((page.total_size, list(page.tasks)), (1, [task]))

    async def check_stream(self):
        client = await self.dial()
        task = await self.fold(client.send_message(play(chunks('a', 10), chunks('b', 20))))
        self.assertEqual(task, await client.get_task(GetTaskRequest(id=task.id)))

    async def check_subscribe(self):
        client, other = await self.dial(), await self.dial()
        async with Gate() as gate:
            sent = client.send_message(play(chunks('a', 5), gate.op, chunks('b', 5)))
            started = await self.fold(sent, until=lambda e: e.artifact_update.last_chunk)
            watched = other.subscribe(SubscribeToTaskRequest(id=started.id))
            first = await anext(watched)
            self.assertEqual(first.task, started)
            gate.open()
            rest = [event async for event in watched]
            self.assertEqual(rest[-1].status_update.status.state, TaskState.TASK_STATE_COMPLETED)
        with self.assertRaises(UnsupportedOperationError):
            [event async for event in other.subscribe(SubscribeToTaskRequest(id=started.id))]

    async def check_input(self):
        client = await self.dial(streaming=False)
        task = await self.send(
            client, play({'op': 'input', 'text': 'shall I?'}, {'op': 'artifact', 'id': 'a', 'text': 'done'})
        )
        self.assertEqual(task.status.state, TaskState.TASK_STATE_INPUT_REQUIRED)
        done = await self.send(client, say('yes', taskId=task.id))
        self.assertEqual((done.status.state, done.context_id), (TaskState.TASK_STATE_COMPLETED, task.context_id))
        self.assertEqual([m.parts[0].text for m in done.history][1:], ['shall I?', 'yes'])

    async def check_reply(self):
        for streaming in (False, True):
            client = await self.dial(streaming=streaming)
            reply = await self.send(client, play({'op': 'reply', 'text': 'hi'}))
            self.assertEqual((reply.parts[0].text, reply.task_id), ('hi', ''))
            page = await client.list_tasks(ListTasksRequest(context_id=reply.context_id))
            self.assertEqual(page.total_size, 0)

    async def check_cancel(self):
        client = await self.dial(streaming=False)
        task = await self.send(client, play({'op': 'input'}))
        canceled = await client.cancel_task(ParseDict(
            {'id': task.id, 'metadata': {'why': 'late'}}, CancelTaskRequest()
        ))
        self.assertEqual(canceled.status.state, TaskState.TASK_STATE_CANCELED)
        self.assertEqual(await client.cancel_task(CancelTaskRequest(id=task.id)), canceled)
        ended = await self.send(client, play())
        with self.assertRaises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=ended.id))

    async def check_errors(self):
        client, streaming = await self.dial(streaming=False), await self.dial()
        unknown = str(uuid.uuid4())
        ended = await self.send(client, play())
        for error, call in [
            (TaskNotFoundError, client.get_task(GetTaskRequest(id=unknown))),
            (TaskNotFoundError, client.cancel_task(CancelTaskRequest(id=unknown))),
            (TaskNotFoundError, self.send(client, say('more', taskId=unknown))),
            (TaskNotFoundError, self.send(streaming, say('more', taskId=unknown))),
            (UnsupportedOperationError, self.send(client, say('more', taskId=ended.id))),
            (InvalidParamsError, self.send(client, say(parts=[]))),
        ]:
            with self.assertRaises(error):
                await call

    async def check_webhooks(self):
        client = await self.dial(streaming=False)
        task = await self.send(client, play({'op': 'input'}))
        for name in ('', 'second'):
            made = await client.create_task_push_notification_config(
                TaskPushNotificationConfig(task_id=task.id, id=name, url='http://127.0.0.1:1/hook'))
            self.assertEqual(made.id, name or 'default')
        page = await client.list_task_push_notification_configs(ListTaskPushNotificationConfigsRequest(
            task_id=task.id, page_size=1
        ))
        self.assertEqual([c.id for c in page.configs], ['default'])
        rest = await client.list_task_push_notification_configs(
            ListTaskPushNotificationConfigsRequest(task_id=task.id, page_token=page.next_page_token))
        self.assertEqual(([c.id for c in rest.configs], rest.next_page_token), (['second'], ''))
        await client.delete_task_push_notification_config(DeleteTaskPushNotificationConfigRequest(
            task_id=task.id, id='second'
        ))
        with self.assertRaises(TaskNotFoundError):
            await client.get_task_push_notification_config(GetTaskPushNotificationConfigRequest(
                task_id=task.id, id='second'
            ))

    async def check_parts(self):
        client = await self.dial('', streaming=False)
        metadata = {'https://example.com/ext/v1': {'n': 1.5, 'none': None, 'deep': [{'': 'x'}]}}
        parts = [
            {'text': 'a\u0000b \u2028 🙂', 'metadata': metadata},
            {'data': {'a': [1.0, 'two', None, {}], '0': False}},
            {'data': [1.0, None]},
            {'raw': 'AP/+Pj8=', 'filename': 'naïve.bin', 'mediaType': 'application/octet-stream'},
            {'url': 'https://example.com/a%20b?c=d&e'},
        ]
        task = await self.send(client, say(parts=parts, metadata=metadata))
        self.assertEqual([MessageToDict(p) for p in task.artifacts[0].parts], parts)
        self.assertEqual(MessageToDict(task.history[0])['metadata'], metadata)


if __name__ == '__main__':
    logging.getLogger('asyncio').setLevel(logging.ERROR)  # it warns of every step that takes 0.1 s
    unittest.main()
