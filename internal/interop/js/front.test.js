// a2ad in front of examples/front-js, an agent of the official JavaScript SDK that forgets.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { ClientFactory } from '@a2a-js/sdk/client';
import { Server } from './server.js';

const limit = { timeout: 90_000 };
const example = new URL('../../../examples/front-js/', import.meta.url).pathname;
const quick = [
  '--lease-ttl', '1s', '--rescue-interval', '50ms', '--poll-interval', '50ms', '--retry-backoff-base', '10ms'
];

// Counter is the agent as a process. After a restart it has the same address, and has forgotten its tasks.
class Counter {
  log = '';
  port = '0';
  #process;

  async start() {
    this.#process = spawn(
      process.execPath, ['counter.js', '--port', this.port, '--pause', '100'],
      { cwd: example, stdio: ['ignore', 'ignore', 'pipe'] }
    );
    process.once('exit', this.#end);
    await new Promise((resolve, reject) => {
      createInterface({ input: this.#process.stderr }).on('line', (line) => {
        this.log += line + '\n';
        if (line.startsWith('ready url=')) resolve((this.port = new URL(line.slice('ready url='.length)).port));
      });
      this.#process.once('exit', () => reject(new Error(`the agent has ended:\n${this.log}`)));
    });
    return this;
  }

  #end = () => this.#process.kill('SIGKILL');

  async kill() {
    process.off('exit', this.#end);
    const gone = once(this.#process, 'exit');
    this.#process.kill('SIGKILL');
    await gone;
  }

  count(what) {
    return this.log.split(`${what} task=`).length - 1;
  }
}

let dir, counter, front, client;
before(async () => {
  dir = await mkdtemp(path.join(tmpdir(), 'a2ad-front-'));
  counter = await new Counter().start();
  const card = `http://127.0.0.1:${counter.port}/.well-known/agent-card.json`;
  await writeFile(
    path.join(dir, 'front.yaml'),
    `name: front\ndescription: In front of another.\nexecutor:\n  a2a: {card: "${card}", poll_interval: 100ms}\n`
  );
  front = await Server.start('--agents', dir, ...quick);
  client = await new ClientFactory().createFromUrl(new URL('/agents/front/', front.url).href);
}, limit);
after(async () => {
  await front?.stop();
  await counter?.kill();
  await rm(dir, { recursive: true, force: true });
}, limit);

const say = (text, of = {}) => ({
  message: { kind: 'message', messageId: crypto.randomUUID(), role: 'user', parts: [{ kind: 'text', text }], ...of },
});
const upTo = (n) => Array.from({ length: n }, (_, i) => String(i + 1));
const numbers = (task) => task.artifacts?.[0].parts.map((p) => p.text);

// counting starts a task and returns its id once the third number is there.
async function counting(n) {
  let id, seen = 0;
  for await (const event of client.sendMessageStream(say(String(n)))) {
    id ??= event.id;
    if (event.kind === 'artifact-update' && ++seen === 3) return id;
  }
  assert.fail('the stream ended early');
}

// ended polls for the end of a task, because the stream that would announce it has ended.
async function ended(id) {
  for (;;) {
    const task = await client.getTask({ id });
    if (['completed', 'failed', 'canceled'].includes(task.status.state)) return task;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

test('it asks and counts', limit, async () => {
  const asked = await client.sendMessage(say('count'));
  assert.equal(asked.status.state, 'input-required');
  assert.equal(asked.status.message.parts[0].text, 'How far shall I count?');
  const done = await client.sendMessage(say('3', { taskId: asked.id, contextId: asked.contextId }));
  assert.equal(done.status.state, 'completed');
  assert.deepEqual(numbers(done), upTo(3));
});

test('a killed a2ad goes on with the task that the agent has', limit, async () => {
  const runs = counter.count('run');
  const id = await counting(30);
  await front.kill();
  await front.restart();
  const task = await ended(id);
  assert.equal(task.status.state, 'completed');
  assert.deepEqual(numbers(task), upTo(30));
  assert.equal(counter.count('run'), runs + 1);
});

test('a killed agent is given the task again', limit, async () => {
  const runs = counter.count('run');
  const id = await counting(12);
  await counter.kill();
  await counter.start();
  const task = await ended(id);
  assert.equal(task.status.state, 'completed');
  assert.deepEqual(numbers(task), upTo(12));
  assert.equal(counter.count('run'), runs + 2);
});

test('a cancel is passed on', limit, async () => {
  const id = await counting(1000);
  assert.equal((await client.cancelTask({ id })).status.state, 'canceled');
  while (counter.count('cancel') === 0) await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(counter.count('cancel'), 1);
});
