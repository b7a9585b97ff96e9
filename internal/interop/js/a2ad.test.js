// a2ad as the official JavaScript client sees it.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, test } from 'node:test';
import {
  ClientFactory,
  JsonRpcTransportFactory,
  JsonRpcTransport,
  RestTransport,
  AuthenticatedExtendedCardNotConfiguredError,
  TaskNotCancelableError,
  TaskNotFoundError,
} from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';
import { Gate, Server } from './server.js';

const limit = { timeout: 60_000 };

// All tests share a server, except those that kill it.
let shared;
before(async () => (shared = await Server.start()), limit);
after(() => shared?.stop(), limit);

const dial = (agent, server = shared) => new ClientFactory().createFromUrl(new URL(agent, server.url).href);
const echo = () => dial('/');
const script = (server) => dial('/agents/script/', server);

const say = (text, of = {}) => ({
  message: { kind: 'message', messageId: randomUUID(), role: 'user', parts: [{ kind: 'text', text }], ...of },
});
const play = (...ops) => say('', { parts: [{ kind: 'data', data: { script: ops } }] });
const chunks = (id, n) => ({ op: 'chunk', id, n });
const numbered = (id, n) => Array.from({ length: n }, (_, k) => `${id}:${k}:`);
const texts = (task, id) => task.artifacts.find((a) => a.artifactId === id)?.parts.map((p) => p.text);

// fold returns the task as a client that follows a stream has it.
function fold([first, ...events]) {
  assert.equal(first.kind, 'task', 'the first event is a task');
  const task = structuredClone(first);
  for (const event of structuredClone(events)) {
    assert.deepEqual([event.taskId, event.contextId], [task.id, task.contextId]);
    switch (event.kind) {
      case 'status-update':
        if (task.status.message) (task.history ??= []).push(task.status.message);
        task.status = event.status;
        break;
      case 'artifact-update': {
        const list = (task.artifacts ??= []);
        const at = list.findIndex((a) => a.artifactId === event.artifact.artifactId);
        if (event.append) list[at].parts.push(...event.artifact.parts);
        else if (at < 0) list.push(event.artifact);
        else list[at] = event.artifact;
        break;
      }
      default:
        assert.fail(`a ${event.kind} in the middle of a stream`);
    }
  }
  return task;
}

// checkStream checks a complete stream against the rules for every stream.
function checkStream(events) {
  assert.deepEqual(
    events.map((e) => e.final === true),
    events.map((_, i) => i === events.length - 1),
    'final is said once, with the last event',
  );
  return events;
}

async function collect(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return checkStream(events);
}

// until reads up to the first wanted event and leaves the stream open.
async function until(stream, wanted) {
  const events = [];
  for (;;) {
    const { value, done } = await stream.next();
    assert.ok(!done, 'the stream goes on');
    events.push(value);
    if (wanted(value)) return events;
  }
}

const lastOf = (id) => (e) => e.kind === 'artifact-update' && e.artifact.artifactId === id && e.lastChunk;

test('the card leads to the agent', limit, async () => {
  const card = await (await script()).getAgentCard();
  assert.equal(card.name, 'script');
  assert.equal(card.protocolVersion, '0.3.0');
  assert.deepEqual([card.url, card.preferredTransport], [`${shared.url}agents/script`, 'JSONRPC']);
  assert.deepEqual([card.capabilities.streaming, card.capabilities.pushNotifications], [true, true]);
  await assert.rejects(
    new JsonRpcTransport({ endpoint: shared.url }).getExtendedAgentCard(), AuthenticatedExtendedCardNotConfiguredError
  );
});

test('a send waits for the task', limit, async () => {
  const client = await echo();
  const params = say('hello, wörld');
  const task = await client.sendMessage(params);
  assert.equal(task.status.state, 'completed');
  assert.match(task.status.timestamp, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  assert.deepEqual(task.artifacts[0].parts, params.message.parts);
  assert.deepEqual(task.history, [{ ...params.message, taskId: task.id, contextId: task.contextId }]);
  assert.deepEqual(await client.getTask({ id: task.id }), task);
});

test('a send that does not wait returns at once', limit, async (t) => {
  const [client, gate] = [await script(), await Gate.make(t)];
  const params = play(gate.op, { op: 'artifact', id: 'a', text: 'done' });
  const task = await client.sendMessage({ ...params, configuration: { blocking: false } });
  assert.ok(['submitted', 'working'].includes(task.status.state), task.status.state);
  const stream = client.resubscribeTask({ id: task.id });
  await until(stream, (e) => e.kind === 'task');
  gate.open();
  for await (const _ of stream);
  assert.deepEqual(texts(await client.getTask({ id: task.id }), 'a'), ['done']);
});

test('a stream adds up to the task', limit, async () => {
  const client = await script();
  const stream = await collect(
    client.sendMessageStream(
      play(
        { op: 'status', state: 'working', text: 'thinking' },
        chunks('a', 20),
        { op: 'chunk', id: 'big', n: 2, bytes: 200_000 },
        { op: 'artifact', id: 'whole', text: 'at once' },
        { op: 'complete', text: 'there you are' },
      ),
    ),
  );
  const task = await client.getTask({ id: stream[0].id });
  assert.equal(task.status.state, 'completed');
  assert.deepEqual(texts(task, 'a'), numbered('a', 20));
  assert.deepEqual(fold(stream), task);
});

test('a client that goes away comes back and misses nothing', limit, async (t) => {
  const [client, gate] = [await script(), await Gate.make(t)];
  const gone = new AbortController();
  const stream = client.sendMessageStream(play(chunks('a', 10), gate.op, chunks('b', 20)), { signal: gone.signal });
  const seen = await until(stream, lastOf('a'));
  gone.abort();
  await assert.rejects(stream.next(), { name: 'AbortError' });

  const back = client.resubscribeTask({ id: seen[0].id });
  const [start] = await until(back, () => true);
  assert.deepEqual(start, fold(seen));
  gate.open();
  const all = await collect(chain(start, back));
  const task = await client.getTask({ id: start.id });
  assert.deepEqual(fold(all), task);
  assert.deepEqual([texts(task, 'a'), texts(task, 'b')], [numbered('a', 10), numbered('b', 20)]);
});

test('a task outlives a server that is killed', limit, async (t) => {
  const server = await Server.start('--lease-ttl', '1s', '--rescue-interval', '50ms', '--retry-backoff-base', '10ms');
  t.after(() => server.stop());
  const [client, gate] = [await script(server), await Gate.make(t)];
  const stream = client.sendMessageStream(play(chunks('a', 10), gate.op, chunks('b', 20)));
  const seen = await until(stream, lastOf('a'));
  await server.kill();
  await assert.rejects(stream.next(), 'a stream that is cut does not look like one that has ended');

  await server.restart();
  const back = client.resubscribeTask({ id: seen[0].id });
  const [start] = await until(back, () => true);
  assert.deepEqual(texts(start, 'a'), numbered('a', 10));
  gate.open();
  const all = await collect(chain(start, back));
  const task = await client.getTask({ id: start.id });
  assert.equal(task.status.state, 'completed');
  assert.deepEqual(fold(all), task);
  assert.deepEqual([texts(task, 'a'), texts(task, 'b')], [numbered('a', 10), numbered('b', 20)]);
});

async function* chain(first, rest) {
  yield first;
  yield* rest;
}

test('two clients see the same', limit, async (t) => {
  const [one, two, gate] = [await script(), await script(), await Gate.make(t)];
  const sent = one.sendMessageStream(play(chunks('a', 5), gate.op, chunks('b', 5)));
  const seen = await until(sent, lastOf('a'));
  const watched = two.resubscribeTask({ id: seen[0].id });
  const [start] = await until(watched, () => true);
  assert.deepEqual(start, fold(seen));
  gate.open();
  const [rest, theirs] = await Promise.all([collect(sent), collect(watched)]);
  assert.deepEqual(theirs, rest);
});

test('a task goes on with the input it asked for', limit, async () => {
  const client = await script();
  const task = await client.sendMessage(
    play({ op: 'input', text: 'shall I?' }, { op: 'auth', text: 'sign in' }, { op: 'artifact', id: 'a', text: 'done' }),
  );
  assert.equal(task.status.state, 'input-required');
  const reply = (text) => say(text, { taskId: task.id, contextId: task.contextId });
  assert.equal((await client.sendMessage(reply('yes'))).status.state, 'auth-required');
  const stream = await collect(client.sendMessageStream(reply('signed in')));
  const done = await client.getTask({ id: task.id });
  assert.equal(done.status.state, 'completed');
  assert.deepEqual(fold(stream), done);
  assert.deepEqual(done.history.slice(1).map((m) => m.parts[0].text), ['shall I?', 'yes', 'sign in', 'signed in']);
  for (const n of [0, 1, 3, 9]) {
    const { history = [] } = await client.getTask({ id: task.id, historyLength: n });
    assert.deepEqual(history, done.history.slice(Math.max(0, done.history.length - n)), `history of ${n}`);
  }
});

test('a task is canceled once', limit, async (t) => {
  const [client, gate] = [await script(), await Gate.make(t)];
  const stream = client.sendMessageStream(play(chunks('a', 3), gate.op, chunks('b', 1)));
  const seen = await until(stream, lastOf('a'));
  const task = await client.cancelTask({ id: seen[0].id });
  assert.equal(task.status.state, 'canceled');
  const rest = await collect(stream);
  assert.deepEqual(fold([...seen, ...rest]), await client.getTask({ id: task.id }));
  await assert.rejects(client.cancelTask({ id: task.id }), TaskNotCancelableError);
});

test('errors are those of the client', limit, async () => {
  const client = await echo();
  const ended = await client.sendMessage(say('hello'));
  const id = randomUUID();
  const to = (task) => say('more', { taskId: task });
  const push = { taskId: id, pushNotificationConfig: { url: 'https://example.com/hook' } };
  const code = (want) => (e) => e.errorResponse.error.code === want && Boolean(e.errorResponse.error.data.reason);
  const early = (check) => (e) => (check.prototype instanceof Error ? e.cause instanceof check : check(e.cause));

  await assert.rejects(client.getTask({ id }), TaskNotFoundError);
  await assert.rejects(client.cancelTask({ id }), TaskNotFoundError);
  await assert.rejects(client.cancelTask({ id: ended.id }), TaskNotCancelableError);
  await assert.rejects(client.sendMessage(to(id)), TaskNotFoundError);
  await assert.rejects(client.sendMessage(to(ended.id)), code(-32602));
  await assert.rejects(client.sendMessage(say('', { parts: [] })), code(-32602));
  await assert.rejects(client.getTask({ id: ended.id, historyLength: -1 }), code(-32602));
  // Errors of streams arrive as events, because the client would not recognize others.
  await assert.rejects(client.resubscribeTask({ id }).next(), early(TaskNotFoundError));
  await assert.rejects(client.sendMessageStream(to(id)).next(), early(TaskNotFoundError));
  await assert.rejects(client.sendMessageStream(to(ended.id)).next(), early(code(-32602)));
  await assert.rejects(client.sendMessageStream(say('', { parts: [] })).next(), early(code(-32602)));
  for (const call of [
    () => client.setTaskPushNotificationConfig(push),
    () => client.getTaskPushNotificationConfig({ id: ended.id }), // there is none
    () => client.listTaskPushNotificationConfig({ id }),
    () => client.deleteTaskPushNotificationConfig({ id, pushNotificationConfigId: 'default' }),
  ]) {
    await assert.rejects(call, TaskNotFoundError);
  }
  assert.deepEqual(await client.getTask({ id: ended.id }), ended, 'the finished task is as it was');
});

test('parts and metadata come back as they were sent', limit, async () => {
  const metadata = { 'https://example.com/ext/v1': { n: 1.5, none: null, deep: [{ '': 'x' }] } };
  const parts = [
    { kind: 'text', text: 'a\u0000b \u2028 🙂', metadata },
    { kind: 'text', text: '' },
    { kind: 'data', data: { a: [1, 'two', null, {}], 0: false }, metadata },
    { kind: 'file', file: { bytes: 'AP/+Pj8=', name: 'naïve.bin', mimeType: 'application/octet-stream' }, metadata },
    { kind: 'file', file: { uri: 'https://example.com/a%20b?c=d&e' } },
  ];
  const client = await echo();
  const params = say('', { parts, metadata, extensions: ['https://example.com/ext/v1'], contextId: randomUUID() });
  const stream = await collect(client.sendMessageStream(params));
  const task = await client.getTask({ id: stream[0].id });
  assert.deepEqual(task.history, [{ ...params.message, taskId: task.id }]);
  assert.deepEqual(task.artifacts[0].parts, parts);
  assert.deepEqual(fold(stream), task);
});

test('HTTP+JSON says the same', limit, async () => {
  const [client, other] = [new RestTransport({ endpoint: new URL('/agents/script', shared.url).href }), await script()];
  const asked = await client.sendMessage(play(chunks('a', 3), { op: 'input', text: 'more?' }));
  assert.equal(asked.status.state, 'input-required');
  // The client adds empty lists to what it reads in ProtoJSON, and drops the flag that a chunk is to be appended.
  const plain = (v) => JSON.parse(JSON.stringify(v, (k, x) => (Array.isArray(x) && !x.length ? undefined : x)));
  assert.deepEqual(plain(asked), await other.getTask({ id: asked.id }));
  const done = fold(await collect(client.sendMessageStream(say(
    '', { ...play(chunks('a', 1), { op: 'complete' }).message, taskId: asked.id }
  ))));
  assert.deepEqual(plain(done), await other.getTask({ id: asked.id }));
  assert.deepEqual(plain(await client.getTask({ id: asked.id })), plain(done));
  assert.deepEqual(
    (await collect(client.resubscribeTask({ id: asked.id }))).map((e) => e.kind), ['task', 'status-update']
  );
  const id = randomUUID();
  await assert.rejects(client.getTask({ id }), TaskNotFoundError);
  await assert.rejects(client.cancelTask({ id: asked.id }), TaskNotCancelableError);
  await assert.rejects(client.resubscribeTask({ id }).next(), TaskNotFoundError);
  await assert.rejects(client.getExtendedAgentCard(), AuthenticatedExtendedCardNotConfiguredError);
  const config = {
    taskId: asked.id,
    pushNotificationConfig: {
      id: 'one', url: 'http://127.0.0.1:1/x', authentication: { schemes: ['Bearer'], credentials: '' }
    }
  };
  assert.deepEqual(plain(await client.setTaskPushNotificationConfig(config)), config);
  assert.deepEqual(plain(await client.listTaskPushNotificationConfig({ id: asked.id })), [config]);
  await client.deleteTaskPushNotificationConfig({ id: asked.id, pushNotificationConfigId: 'one' });
  assert.deepEqual(await client.listTaskPushNotificationConfig({ id: asked.id }), []);
});

test('gRPC says the same', limit, async () => {
  const server = await Server.start('--default-agent', 'script', '--grpc-listen', '127.0.0.1:0');
  try {
    const [client, other] = await Promise.all(
      [{ transports: [new GrpcTransportFactory()] }, {}].map(
        (o) => new ClientFactory({ transports: [new JsonRpcTransportFactory()], ...o }).createFromUrl(server.url)
      ),
    );
    const plain = (v) => JSON.parse(JSON.stringify(v, (k, x) => (Array.isArray(x) && !x.length ? undefined : x)));
    const asked = await client.sendMessage(play(chunks('a', 3), { op: 'input', text: 'more?' }));
    assert.equal(asked.status.state, 'input-required');
    assert.deepEqual(plain(asked), await other.getTask({ id: asked.id }));
    const done = fold(await collect(client.sendMessageStream(say(
      '', { ...play(chunks('a', 1), { op: 'complete' }).message, taskId: asked.id }
    ))));
    assert.deepEqual(plain(done), await other.getTask({ id: asked.id }));
    assert.deepEqual(
      (await collect(client.resubscribeTask({ id: asked.id }))).map((e) => e.kind), ['task', 'status-update']
    );
    await assert.rejects(client.getTask({ id: randomUUID() }), TaskNotFoundError);
    await assert.rejects(client.cancelTask({ id: asked.id }), TaskNotCancelableError);
  } finally {
    await server.stop();
  }
});
