#!/usr/bin/env bash
# a2a-sdk 1.3.0 (PyPI) and @a2a-js/sdk 1.3.0 (npm), A2A 1.0: the same agent leaves another history in each.
#
# An agent says "By train?" while it works, then asks "Where to?". A good guess is that the official SDKs keep the same
# task. a2a-python puts the message of a status into the history when the next status comes. a2a-js does it at once, so
# the open question is both in the status and in the history, and a client that shows the history and then the status
# shows it twice. Who moves tasks between the two, or writes a client for both, must compare message ids.
#
# Seen:
#   a2a-python  history: hello / By train?               status: Where to?
#   a2a-js      history: hello / By train? / Where to?   status: Where to?
#
# The script fails if a line differs.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/env"
"$dir/env/bin/pip" install --quiet --disable-pip-version-check 'a2a-sdk==1.3.0'
cat >"$dir/agent.py" <<'END'
import asyncio
import logging

from a2a.auth.user import UnauthenticatedUser
from a2a.server.agent_execution import AgentExecutor
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCard, GetTaskRequest, Message, Part, SendMessageRequest, Task, TaskStatus

logging.disable()


class Agent(AgentExecutor):
    async def execute(self, context, queue):
        await queue.enqueue_event(Task(
            id=context.task_id, context_id=context.context_id, status=TaskStatus(state='TASK_STATE_SUBMITTED'),
            history=[context.message]))
        updater = TaskUpdater(queue, context.task_id, context.context_id)
        await updater.start_work(updater.new_agent_message([Part(text='By train?')]))
        await updater.requires_input(updater.new_agent_message([Part(text='Where to?')]))

    async def cancel(self, context, queue):
        pass


async def main():
    handler = DefaultRequestHandler(Agent(), InMemoryTaskStore(), AgentCard())
    context = ServerCallContext(user=UnauthenticatedUser())
    message = Message(message_id='m', role='ROLE_USER', parts=[Part(text='hello')])
    task = await handler.on_message_send(SendMessageRequest(message=message), context)
    task = await handler.on_get_task(GetTaskRequest(id=task.id), context)
    said = ' / '.join(m.parts[0].text for m in task.history)
    print(f'a2a-python  history: {said:<31} status: {task.status.message.parts[0].text}')
    await handler.aclose()

asyncio.run(main())
END
cat >"$dir/agent.mjs" <<'END'
import { AgentCard, GetTaskRequest, SendMessageRequest, Task, TaskStatusUpdateEvent } from '@a2a-js/sdk';
import {
  AgentEvent, DefaultRequestHandler, InMemoryTaskStore, ServerCallContext, UnauthenticatedUser,
} from '@a2a-js/sdk/server';

const agent = {
  async execute({ taskId, contextId, userMessage }, bus) {
    const task = Task.fromJSON({ id: taskId, contextId, status: { state: 'TASK_STATE_SUBMITTED' } });
    bus.publish(AgentEvent.task({ ...task, history: [userMessage] }));
    for (const [state, text] of [['WORKING', 'By train?'], ['INPUT_REQUIRED', 'Where to?']]) {
      const message = { messageId: text, role: 'ROLE_AGENT', parts: [{ text }] };
      bus.publish(AgentEvent.statusUpdate(TaskStatusUpdateEvent.fromJSON({
        taskId, contextId, status: { state: `TASK_STATE_${state}`, message },
      })));
    }
    bus.finished();
  },
  async cancelTask() {},
};
const handler = new DefaultRequestHandler(AgentCard.fromJSON({}), new InMemoryTaskStore(), agent);
const context = new ServerCallContext({ user: new UnauthenticatedUser(), requestedVersion: '1.0' });
const message = { messageId: 'm', role: 'ROLE_USER', parts: [{ text: 'hello' }] };
const { id } = await handler.sendMessage(SendMessageRequest.fromJSON({ message }), context);
const task = Task.toJSON(await handler.getTask(GetTaskRequest.fromJSON({ id }), context));
const said = task.history.map((m) => m.parts[0].text).join(' / ').padEnd(31);
console.log(`a2a-js      history: ${said} status: ${task.status.message.parts[0].text}`);
END
cd "$dir"
npm install --silent --ignore-scripts --no-audit --no-fund @a2a-js/sdk@1.3.0
{ env/bin/python agent.py && node agent.mjs; } | tee out
diff - out <<'END'
a2a-python  history: hello / By train?               status: Where to?
a2a-js      history: hello / By train? / Where to?   status: Where to?
END
