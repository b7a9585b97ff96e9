// a2ad as the official JavaScript client of A2A 1.0 sees it.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, test } from 'node:test';
import { Gate, Server } from './server.js';

// `npm test` runs this file twice: with the newest client and with the oldest.
const sdk = process.env.A2A_SDK_V1 ?? '@a2a-js/sdk-v1';
const {
  AgentCard, ListTasksRequest, Message, Part, SendMessageRequest, StreamResponse, Task, TaskState
} = await import(sdk);
const { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver } = await import(`${sdk}/client`);
const { GrpcTransportFactory } = await import(`${sdk}/client/grpc`);
const errors = await import(`${sdk}/errors`);

// The client of 1.0.1 throws errors of another class for each binding, which do not extend those of its package.
const thrown = (name) => (sdk.endsWith('-oldest') ? (e) => e.constructor.name.endsWith(name) : errors[name]);
const [RequestMalformedError, TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError] = [
  'RequestMalformedError', 'TaskNotCancelableError', 'TaskNotFoundError', 'UnsupportedOperationError',
].map(thrown);

const limit = { timeout: 60_000 };

let shared;
before(async () => (shared = await Server.start('--grpc-listen', '127.0.0.1:0')), limit);
after(() => shared?.stop(), limit);

const transports = [...ClientFactoryOptions.default.transports, new GrpcTransportFactory()];
const dial = (agent, binding) =>
  new ClientFactory({
    ...ClientFactoryOptions.default, transports, preferredTransports: [binding]
  }).createFromUrl(new URL(agent, shared.url).href);

// each runs a test over every binding, with a function that makes a client of an agent.
function each(name, run) {
  for (const binding of ['JSONRPC', 'HTTP+JSON', 'GRPC']) {
    test(
      `${name}, over ${binding}`, limit, (t) => run((agent = '/agents/script/') => dial(agent, binding), t, binding)
    );
  }
}

const say = (text, of = {}) => SendMessageRequest.fromJSON({ message: {
  messageId: randomUUID(), role: 'ROLE_USER', parts: [{ text }], ...of
} });
const play = (...ops) => say('', { parts: [{ data: { script: ops } }] });
const chunks = (id, n) => ({ op: 'chunk', id, n });
const ask = (id) => ({ tenant: '', id });

// fold returns the task as a client that follows a stream has it.
function fold([first, ...events]) {
  assert.equal(first.payload.$case, 'task', 'the first event is a task');
  const task = structuredClone(first.payload.value);
  for (const { payload } of structuredClone(events)) {
    assert.deepEqual([payload.value.taskId, payload.value.contextId], [task.id, task.contextId]);
    if (payload.$case === 'statusUpdate') {
      if (task.status.message) task.history.push(task.status.message);
      task.status = payload.value.status;
    } else {
      assert.equal(payload.$case, 'artifactUpdate');
      const at = task.artifacts.findIndex((a) => a.artifactId === payload.value.artifact.artifactId);
      if (payload.value.append) task.artifacts[at].parts.push(...payload.value.artifact.parts);
      else if (at < 0) task.artifacts.push(payload.value.artifact);
      else task.artifacts[at] = payload.value.artifact;
    }
  }
  return task;
}

async function collect(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

async function until(stream, wanted) {
  const events = [];
  for (;;) {
    const { value, done } = await stream.next();
    assert.ok(!done, 'the stream goes on');
    events.push(value);
    if (wanted(value.payload)) return events;
  }
}

const lastOf = (id) => (p) => p.$case === 'artifactUpdate' && p.value.artifact.artifactId === id && p.value.lastChunk;
// Over JSON-RPC, errors of streams arrive as events, because the Go client needs that. This client has no types for
// them, but their text has the reason.
const early = (type, reason, binding) => (
  binding === 'JSONRPC' ? (e) => e.message.includes(`"reason":"${reason}"`) : type
);
const same = (got, want) => assert.deepEqual(Task.toJSON(got), Task.toJSON(want));

test('the client speaks 1.0 by the card', limit, async () => {
  const client = await dial('/agents/script/', 'JSONRPC');
  assert.equal(client.protocolVersion, '1.0');
  const card = await new DefaultAgentCardResolver().resolve(new URL('/agents/script/', shared.url).href);
  assert.deepEqual(
    card.supportedInterfaces.map((i) => [i.protocolBinding, i.protocolVersion]).filter(([b]) => b === 'JSONRPC'),
    [['JSONRPC', '1.0'], ['JSONRPC', '0.3']],
  );
});

each('a task is sent, streamed, read and listed', async (script) => {
  const client = await script();
  const contextId = randomUUID();
  const sent = await client.sendMessage(say('', { contextId, parts: [{ data: { script: [chunks('a', 3)] } }] }));
  assert.equal(sent.status.state, TaskState.TASK_STATE_COMPLETED);
  same(await client.getTask(ask(sent.id)), sent);
  const stream = await collect(client.sendMessageStream(play(chunks('a', 10), chunks('b', 20))));
  same(fold(stream), await client.getTask(ask(fold(stream).id)));
  const list = await client.listTasks(ListTasksRequest.fromJSON({ contextId, includeArtifacts: true }));
  assert.deepEqual([list.totalSize, list.tasks.map((t) => t.id)], [1, [sent.id]]);
});

each('a subscription has the task and all that follows', async (script, t, binding) => {
  const [client, other, gate] = [await script(), await script(), await Gate.make(t)];
  const sent = client.sendMessageStream(play(chunks('a', 5), gate.op, chunks('b', 5)));
  const seen = await until(sent, lastOf('a'));
  const id = seen[0].payload.value.id;
  const watched = other.resubscribeTask(ask(id));
  const [start] = await until(watched, () => true);
  same(start.payload.value, fold(seen));
  gate.open();
  const [rest, theirs] = await Promise.all([collect(sent), collect(watched)]);
  assert.deepEqual(theirs.map(StreamResponse.toJSON), rest.map(StreamResponse.toJSON));
  await assert.rejects(
    collect(other.resubscribeTask(ask(id))), early(UnsupportedOperationError, 'UNSUPPORTED_OPERATION', binding)
  );
});

each('a task goes on with the input it asked for', async (script) => {
  const client = await script();
  const task = await client.sendMessage(play(
    { op: 'input', text: 'shall I?' }, { op: 'artifact', id: 'a', text: 'done' }
  ));
  assert.equal(task.status.state, TaskState.TASK_STATE_INPUT_REQUIRED);
  const done = await client.sendMessage(say('yes', { taskId: task.id }));
  assert.deepEqual([done.status.state, done.contextId], [TaskState.TASK_STATE_COMPLETED, task.contextId]);
  assert.deepEqual(done.history.slice(1).map((m) => m.parts[0].content.value), ['shall I?', 'yes']);
  await assert.rejects(client.sendMessage(say('more', { taskId: task.id })), UnsupportedOperationError);
});

each('an agent replies with a message alone', async (script) => {
  const client = await script();
  const reply = await client.sendMessage(play({ op: 'reply', text: 'hi' }));
  assert.deepEqual([reply.parts[0].content.value, reply.taskId], ['hi', '']);
  assert.equal(Message.toJSON(reply).role, 'ROLE_AGENT');
  const stream = await collect(client.sendMessageStream(play({ op: 'reply', text: 'hi' })));
  assert.deepEqual(stream.map((e) => e.payload.$case), ['message']);
  assert.equal((await client.listTasks(ListTasksRequest.fromJSON({ contextId: reply.contextId }))).totalSize, 0);
});

each('a task is canceled', async (script) => {
  const client = await script();
  const task = await client.sendMessage(play({ op: 'input' }));
  const canceled = await client.cancelTask({ ...ask(task.id), metadata: { why: 'late' } });
  assert.equal(canceled.status.state, TaskState.TASK_STATE_CANCELED);
  same(await client.cancelTask(ask(task.id)), canceled);
  const ended = await client.sendMessage(play());
  await assert.rejects(client.cancelTask(ask(ended.id)), TaskNotCancelableError);
});

each('errors are those of the client', async (script, _, binding) => {
  const client = await script();
  const id = randomUUID();
  for (const call of [
    () => client.getTask(ask(id)),
    () => client.cancelTask(ask(id)),
    () => client.sendMessage(say('more', { taskId: id })),
    () => client.listTaskPushNotificationConfig({ tenant: '', taskId: id, pageSize: 0, pageToken: '' }),
  ]) {
    await assert.rejects(call, TaskNotFoundError);
  }
  await assert.rejects(
    collect(client.sendMessageStream(say('more', { taskId: id }))), early(TaskNotFoundError, 'TASK_NOT_FOUND', binding)
  );
  await assert.rejects(collect(client.resubscribeTask(ask(id))), early(TaskNotFoundError, 'TASK_NOT_FOUND', binding));
  await assert.rejects(client.sendMessage(say('', { parts: [] })), RequestMalformedError);
});

each('webhooks are set, listed in pages and deleted', async (script, _, binding) => {
  const client = await script();
  const task = await client.sendMessage(play({ op: 'input' }));
  const push = (id) => ({
    tenant: '', taskId: task.id, id, url: 'http://127.0.0.1:1/hook', token: '', authentication: undefined
  });
  assert.equal((await client.createTaskPushNotificationConfig(push(''))).id, 'default');
  await client.createTaskPushNotificationConfig(push('second'));
  const list = (paging) => client.listTaskPushNotificationConfig({
    tenant: '', taskId: task.id, pageSize: 0, pageToken: '', ...paging
  });
  const ids = (page) => page.configs.map((c) => c.id);
  assert.deepEqual(ids(await list()), ['default', 'second']);
  if (binding !== 'HTTP+JSON') { // where this client does not say which page it wants
    const page = await list({ pageSize: 1 });
    assert.deepEqual(ids(page), ['default']);
    const next = await list({ pageToken: page.nextPageToken });
    assert.deepEqual([ids(next), next.nextPageToken], [['second'], '']);
  }
  await client.deleteTaskPushNotificationConfig({ tenant: '', taskId: task.id, id: 'second' });
  await assert.rejects(
    client.getTaskPushNotificationConfig({ tenant: '', taskId: task.id, id: 'second' }), TaskNotFoundError
  );
});

each('parts and metadata come back as they were sent', async (script) => {
  const metadata = { 'https://example.com/ext/v1': { n: 1.5, none: null, deep: [{ '': 'x' }] } };
  const parts = [
    { text: 'a\u0000b \u2028 🙂', metadata },
    { data: { a: [1, 'two', null, {}], 0: false }, metadata },
    { data: [1, null] },
    { raw: 'AP/+Pj8=', filename: 'naïve.bin', mediaType: 'application/octet-stream' },
    { url: 'https://example.com/a%20b?c=d&e' },
  ];
  const client = await script('/');
  const task = await client.sendMessage(say('', { parts, metadata }));
  assert.deepEqual(task.artifacts[0].parts.map(Part.toJSON), parts.map((p) => Part.toJSON(Part.fromJSON(p))));
  assert.deepEqual(task.history[0].metadata, metadata);
});

test('the card is one of both versions and of each', limit, async () => {
  const at = new URL('/.well-known/agent-card.json', shared.url);
  const [all, pure] = await Promise.all([fetch(at), fetch(at, { headers: { 'A2A-Version': '1.0' } })]);
  assert.notEqual(all.headers.get('etag'), pure.headers.get('etag'));
  const card = await pure.json();
  assert.ok(!('url' in card) && !('protocolVersion' in card), 'no member of 0.3');
  assert.deepEqual(AgentCard.toJSON(AgentCard.fromJSON(card)).supportedInterfaces, card.supportedInterfaces);
});
