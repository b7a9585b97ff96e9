// `a2ad import` and the database store of a2a-js 1.x.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import {
  AgentCard, GetTaskRequest, Message, SendMessageRequest, Task, TaskArtifactUpdateEvent, TaskPushNotificationConfig,
  TaskStatusUpdateEvent,
} from '@a2a-js/sdk-v1';
import { AgentEvent, DefaultRequestHandler, ServerCallContext, UnauthenticatedUser } from '@a2a-js/sdk-v1/server';
import { DatabasePushNotificationStore, DatabaseTaskStore } from '@a2a-js/sdk-v1/server/database';
import { Server } from './server.js';

const limit = { timeout: 60_000 };
const run = promisify(execFile);

let server, database;
before(async () => {
  server = await Server.start();
  database = await server.database();
}, limit);
after(() => server?.stop(), limit);

const message = (role, text, of = {}) => ({ messageId: randomUUID(), role, parts: [{ text }], ...of });
const parts = [
  { text: 'Day 1', metadata: { n: 1 } },
  { data: { nights: [2, 'two', null], price: 0.1 } },
  { raw: 'aGk/', filename: 'hi.txt', mediaType: 'text/plain' },
  { url: 'https://example.org/map.png', mediaType: 'image/png' },
];

// The agent brings a task to the state that the message asks for.
const agent = {
  async execute({ taskId, contextId, userMessage, task }, bus) {
    const ids = { taskId, contextId };
    const status = (state, text) => ({
      state: `TASK_STATE_${state}`, timestamp: new Date().toISOString(),
      message: text && message('ROLE_AGENT', text, { metadata: { sure: true }, extensions: ['https://example.org/x'] }),
    });
    const become = (state, text) => bus.publish(AgentEvent.statusUpdate(
      TaskStatusUpdateEvent.fromJSON({ ...ids, status: status(state, text) })));
    const write = (artifact, append) => bus.publish(AgentEvent.artifactUpdate(
      TaskArtifactUpdateEvent.fromJSON({ ...ids, append, artifact })));

    bus.publish(AgentEvent.task(task ?? Task.fromJSON({
      id: taskId, contextId, status: status('SUBMITTED'), history: [Message.toJSON(userMessage)], metadata: { n: 7 },
    })));
    const state = userMessage.parts[0].content.value.toUpperCase().replace('-', '_');
    if (state !== 'SUBMITTED') become('WORKING', 'By train?');
    if (state === 'COMPLETED') {
      write({ artifactId: 'all', name: 'All', metadata: { price: 1.5 }, parts });
      for (const [i, part] of parts.entries()) write({ artifactId: 'grows', parts: [part] }, i > 0);
    }
    if (state !== 'SUBMITTED' && state !== 'WORKING') become(state, state === 'REJECTED' ? undefined : 'Well');
    bus.finished();
  },
  async cancelTask() {},
};

const client = (text, of) =>
  SendMessageRequest.fromJSON({ message: message('ROLE_USER', text, { metadata: { from: 'ann' }, ...of }) });

// imports runs the command, and returns what it says about the tasks.
async function imports(...flags) {
  const { stdout } = await run(process.env.A2AD_BIN, [
    'import', '--data-dir', server.data, '--from', database, '--agent', 'echo', '--owner', 'anonymous', '-o', 'json',
    ...flags,
  ]);
  const { states, webhooks, left } = JSON.parse(stdout);
  assert.equal(left, undefined);
  const done = Object.entries(states).map(([state, counts]) => [state, Object.keys(counts).find((k) => counts[k])]);
  return { ...Object.fromEntries(done), webhooks };
}

async function ask(method, params) {
  const answer = await fetch(new URL('/agents/echo', server.url), {
    method: 'POST', headers: { 'Content-Type': 'application/json', 'A2A-Version': '1.0' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
  });
  return (await answer.json()).result;
}

// expected is a task of the SDK as a2ad shows it. The message of the status gets into the history with the next status,
// and messages name their task.
function expected(task) {
  const { status, history } = task;
  if (status.message && history.at(-1).messageId === status.message.messageId) history.pop();
  for (const m of [...history, ...(status.message ? [status.message] : [])]) {
    Object.assign(m, { taskId: task.id, contextId: task.contextId });
  }
  return task;
}

async function echoed(id, text) {
  let task;
  do task = await ask('GetTask', { id });
  while (task.status.state !== 'TASK_STATE_COMPLETED');
  assert.deepEqual(task.artifacts.map((a) => a.parts), [[{ text }]]);
  const messages = task.history.map((m) => m.messageId);
  assert.equal(new Set(messages).size, messages.length, 'each message is in the history once');
}

test('tasks of the database store are imported', limit, async (t) => {
  const cli = fileURLToPath(import.meta.resolve('@a2a-js/sdk-v1').replace('index.js', 'cli/a2a_db.js'));
  await run(process.execPath, [cli, 'upgrade', '--url', database]);
  const db = new Kysely({ dialect: new PostgresDialect({ pool: new pg.Pool({ connectionString: database }) }) });
  t.after(() => db.destroy());
  const hooks = new DatabasePushNotificationStore(db);
  const handler = new DefaultRequestHandler(AgentCard.fromJSON({}), new DatabaseTaskStore(db), agent);
  const context = new ServerCallContext({ user: new UnauthenticatedUser(), requestedVersion: '1.0' });

  const [ended, running] = [['completed', 'failed', 'rejected', 'canceled'], ['submitted', 'working']];
  const still = [...ended, 'input-required'];
  const tasks = {};
  for (const state of [...still, ...running]) {
    const { id } = await handler.sendMessage(client(state), context);
    await hooks.save(id, context, TaskPushNotificationConfig.fromJSON({
      id: 'hook', url: 'https://example.org/hook', token: 't',
    }));
    tasks[state] = Task.toJSON(await handler.getTask(GetTaskRequest.fromJSON({ id }), context));
  }

  const all = (states, what) => Object.fromEntries(states.map((state) => [state, what]));
  const first = { ...all(still, 'imported'), ...all(running, 'skipped'), webhooks: 1 };
  assert.deepEqual(await imports('--dry-run'), first);
  assert.deepEqual(await imports(), first);
  for (const state of still) assert.deepEqual(await ask('GetTask', { id: tasks[state].id }), expected(tasks[state]));
  assert.deepEqual(
    await imports('--running', 'submit'), { ...all(still, 'known'), ...all(running, 'imported'), webhooks: 2 });
  assert.deepEqual(
    await imports('--running', 'submit'), { ...all(still, 'known'), ...all(running, 'known'), webhooks: 0 });
  for (const state of running) await echoed(tasks[state].id, state); // the agent runs the message again
  const { id } = tasks['input-required']; // and gets the answer of the client
  await ask('SendMessage', { message: message('ROLE_USER', 'To Rome', { taskId: id }) });
  await echoed(id, 'To Rome');
});
