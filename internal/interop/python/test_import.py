"""`a2ad import` and the stores of a2a-python 1.x."""

import logging
import unittest
import uuid

from a2a.auth.user import UnauthenticatedUser
from a2a.server.agent_execution import AgentExecutor
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import DatabasePushNotificationConfigStore, DatabaseTaskStore, TaskUpdater
from a2a.types import (
    AgentCard, GetTaskRequest, Message, Part, SendMessageRequest, Task, TaskPushNotificationConfig, TaskStatus,
)
from google.protobuf.json_format import MessageToDict, ParseDict

from importing import TEXTS, ImportCase, act

try:
    from a2a.server import cluster
except ImportError:
    cluster = None  # it is new in 1.3


def say(text, role='ROLE_AGENT', **of):
    return ParseDict({'messageId': str(uuid.uuid4()), 'role': role, 'parts': [{'text': text}], **of}, Message())


class Agent(AgentExecutor):
    def say(self, text):
        return say(text, metadata={'sure': True}, extensions=['https://example.org/x'])

    def parts(self):
        return [ParseDict(p, Part()) for p in (
            {'text': 'Day 1', 'metadata': {'n': 1}},
            {'data': {'nights': [2, 'two', None], 'price': 0.1}},
            {'raw': 'aGk/', 'filename': 'hi.txt', 'mediaType': 'text/plain'},
            {'url': 'https://example.org/map.png', 'mediaType': 'image/png'},
        )]

    async def execute(self, context, queue):
        if not context.current_task:
            await queue.enqueue_event(Task(
                id=context.task_id, context_id=context.context_id, status=TaskStatus(state='TASK_STATE_SUBMITTED'),
                history=[context.message], metadata={'ticket': 7}))
        await act(self, TaskUpdater(queue, context.task_id, context.context_id), context.get_user_input())

    async def cancel(self, context, queue):
        raise NotImplementedError


class Import(ImportCase):
    version, get, completed = '1.0', 'GetTask', 'TASK_STATE_COMPLETED'

    async def answer(self, task, text):
        await self.ask('SendMessage', message=MessageToDict(say(text, 'ROLE_USER', taskId=task['id'])))

    async def made(self, engine, store, **more):
        """A task for each text, by the handler of a server, and as that server shows it."""
        context = ServerCallContext(user=UnauthenticatedUser())
        handler = DefaultRequestHandler(Agent(), store, AgentCard(), **more)
        hooks = DatabasePushNotificationConfigStore(engine)
        tasks = {}
        for texts in TEXTS:
            task = Task()
            for text in texts.split(', '):
                task = await handler.on_message_send(SendMessageRequest(message=say(
                    text, 'ROLE_USER', metadata={'from': 'ann'}, referenceTaskIds=['elsewhere'], taskId=task.id,
                    contextId=task.context_id)), context)
            await hooks.set_info(task.id, TaskPushNotificationConfig(
                id='hook', task_id=task.id, url='https://example.org/hook', token='t'), context)
            tasks[texts] = MessageToDict(await handler.on_get_task(GetTaskRequest(id=task.id), context))
        if hasattr(handler, 'aclose'):  # since 1.2
            await handler.aclose()
        return tasks

    async def test_store(self):
        async for engine, url in self.engines():
            with self.subTest(database=engine.dialect.name):
                await self.check(url, 'tasks', await self.made(engine, DatabaseTaskStore(engine)))

    @unittest.skipUnless(cluster, 'this version has no cluster store')
    async def test_cluster_store(self):
        async for engine, url in self.engines():
            with self.subTest(database=engine.dialect.name):
                store = cluster.VersionedDatabaseTaskStore(engine)
                await store.initialize()
                stream = cluster.DatabaseTaskEventStream(engine)
                await self.check(url, 'tasks', await self.made(engine, store, event_stream=stream))


if __name__ == '__main__':
    logging.disable()
    unittest.main()
