"""`a2ad import` and the store of a2a-python 0.3."""

import logging
import unittest
import uuid

from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import DatabasePushNotificationConfigStore, DatabaseTaskStore, TaskUpdater
from a2a.types import (
    Message, MessageSendParams, Part, PushNotificationConfig, Role, Task, TaskQueryParams, TaskState, TaskStatus,
    TextPart,
)

from importing import TEXTS, ImportCase, act


def say(text, role=Role.user, **of):
    return Message(message_id=str(uuid.uuid4()), role=role, parts=[Part(root=TextPart(text=text))], **of)


class Agent(AgentExecutor):
    def say(self, text):
        return say(text, Role.agent, metadata={'sure': True}, extensions=['https://example.org/x'])

    def parts(self):
        return [Part.model_validate(p) for p in (
            {'kind': 'text', 'text': 'Day 1', 'metadata': {'n': 1}},
            {'kind': 'data', 'data': {'nights': [2, 'two', None], 'price': 0.1}},
            {'kind': 'file', 'file': {'bytes': 'aGk/', 'name': 'hi.txt', 'mimeType': 'text/plain'}},
            {'kind': 'file', 'file': {'uri': 'https://example.org/map.png', 'mimeType': 'image/png'}},
        )]

    async def execute(self, context, queue):
        if not context.current_task:
            await queue.enqueue_event(Task(
                id=context.task_id, context_id=context.context_id, status=TaskStatus(state=TaskState.submitted),
                history=[context.message], metadata={'ticket': 7}))
        await act(self, TaskUpdater(queue, context.task_id, context.context_id), context.get_user_input())

    async def cancel(self, context, queue):
        raise NotImplementedError


class Import(ImportCase):
    version, get, completed = '0.3', 'tasks/get', 'completed'

    async def answer(self, task, text):
        await self.ask('message/send', message=say(text, task_id=task['id']).model_dump(mode='json', by_alias=True))

    async def made(self, engine):
        """A task for each text, by the handler of a server, and as that server shows it."""
        handler = DefaultRequestHandler(Agent(), DatabaseTaskStore(engine))
        hooks = DatabasePushNotificationConfigStore(engine)
        tasks = {}
        for texts in TEXTS:
            of = {}
            for text in texts.split(', '):
                task = await handler.on_message_send(MessageSendParams(message=say(
                    text, metadata={'from': 'ann'}, reference_task_ids=['elsewhere'], **of)))
                of = {'task_id': task.id, 'context_id': task.context_id}
            await hooks.set_info(task.id, PushNotificationConfig(id='hook', url='https://example.org/hook', token='t'))
            task = await handler.on_get_task(TaskQueryParams(id=task.id))
            tasks[texts] = task.model_dump(mode='json', by_alias=True, exclude_none=True)
        return tasks

    async def test_store(self):
        async for engine, url in self.engines():
            with self.subTest(database=engine.dialect.name):
                await self.check(url, 'tasks', await self.made(engine))


if __name__ == '__main__':
    logging.disable()
    unittest.main()
