// a2ad as the oldest official JavaScript client of A2A 0.3 sees it: 0.3.0, which reads /.well-known/agent.json, speaks
// JSON-RPC alone, and returns the response as it is, also one with an error.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, test } from 'node:test';
import { A2AClient } from '@a2a-js/sdk-oldest/client';
import { Gate, Server } from './server.js';

const limit = { timeout: 60_000 };

let shared;
before(async () => (shared = await Server.start()), limit);
after(() => shared?.stop(), limit);

const dial = (agent = '/agents/script') => new A2AClient(new URL(agent, shared.url).href);
const say = (text, of = {}) => ({
  message: { kind: 'message', messageId: randomUUID(), role: 'user', parts: [{ kind: 'text', text }], ...of },
});
const play = (...ops) => say('', { parts: [{ kind: 'data', data: { script: ops } }] });
const chunks = (id, n) => ({ op: 'chunk', id, n });

async function result(call) {
  const answer = await call;
  assert.ok(!answer.error, JSON.stringify(answer.error));
  return answer.result;
}

async function refused(code, call) {
  assert.equal((await call).error?.code, code);
}

// until reads up to the first wanted event and leaves the stream open.
async function until(stream, wanted) {
  for (;;) {
    const { value, done } = await stream.next();
    assert.ok(!done, 'the stream has ended');
    if (wanted(value)) return value;
  }
}

async function collect(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  assert.deepEqual(
    events.map((e) => e.final === true), events.map((_, i) => i === events.length - 1), 'final is said once'
  );
  return events;
}

test('a task is sent, streamed and read', limit, async () => {
  const client = dial();
  assert.equal((await client.getAgentCard()).name, 'script');
  const sent = await result(client.sendMessage(play(chunks('a', 3))));
  assert.deepEqual([sent.kind, sent.status.state, sent.artifacts[0].parts.length], ['task', 'completed', 3]);
  assert.deepEqual(await result(client.getTask({ id: sent.id })), sent);
  const events = await collect(client.sendMessageStream(play(chunks('a', 5))));
  assert.deepEqual([events[0].kind, events.at(-1).status.state], ['task', 'completed']);
  assert.equal(events.filter((e) => e.kind === 'artifact-update').length, 5);
});

test('a task goes on with the input it asked for', limit, async () => {
  const client = dial();
  const asked = await result(client.sendMessage(play(
    { op: 'input', text: 'shall I?' }, { op: 'artifact', id: 'a', text: 'done' }
  )));
  assert.deepEqual([asked.status.state, asked.status.message.parts[0].text], ['input-required', 'shall I?']);
  const done = await result(client.sendMessage(say('yes', { taskId: asked.id, contextId: asked.contextId })));
  assert.deepEqual([done.id, done.status.state], [asked.id, 'completed']);
  await refused(-32602, client.sendMessage(say('more', { taskId: asked.id })));
});

test('a task is followed again and canceled', limit, async (t) => {
  const [client, other, gate] = [dial(), dial(), await Gate.make(t)];
  const sent = client.sendMessageStream(play(chunks('a', 3), gate.op));
  const { taskId: id } = await until(sent, (e) => e.lastChunk);
  const back = other.resubscribeTask({ id });
  const start = await until(back, () => true);
  assert.equal(start.artifacts[0].parts.length, 3);
  assert.equal((await result(other.cancelTask({ id }))).status.state, 'canceled');
  for (const stream of [sent, back]) assert.equal((await collect(stream)).at(-1).status.state, 'canceled');
  await refused(-32002, client.cancelTask({ id }));
});

test('errors have their code', limit, async () => {
  const client = dial('/');
  const id = randomUUID();
  await refused(-32001, client.getTask({ id }));
  await refused(-32001, client.cancelTask({ id }));
  await refused(-32602, client.sendMessage(say('', { parts: [] })));
  await assert.rejects(collect(client.resubscribeTask({ id })), /-32001/);
});

test('a webhook is set and read', limit, async () => {
  const client = dial();
  const { id: taskId } = await result(client.sendMessage(play({ op: 'input' })));
  const pushNotificationConfig = { url: 'http://127.0.0.1:1/hook', authentication: { schemes: ['Bearer'] } };
  const set = await result(client.setTaskPushNotificationConfig({ taskId, pushNotificationConfig }));
  assert.equal(set.pushNotificationConfig.url, pushNotificationConfig.url);
  assert.deepEqual(await result(client.getTaskPushNotificationConfig({ id: taskId })), set);
});
