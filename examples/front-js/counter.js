// An ordinary agent, written with the official JavaScript SDK. It counts and streams, and keeps its tasks
// in the memory of this process.
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import express from 'express';
import { DefaultRequestHandler, InMemoryTaskStore } from '@a2a-js/sdk/server';
import { agentCardHandler, jsonRpcHandler, UserBuilder } from '@a2a-js/sdk/server/express';

const { values: args } = parseArgs({
  options: {
    port: { type: 'string', default: '9200' },
    url: { type: 'string' },
    pause: { type: 'string', default: '500' },
  },
});

class Counter {
  #canceled = new Set();

  // execute counts to the number in the message. If there is no number, it asks for one.
  async execute({ taskId, contextId, userMessage, task }, bus) {
    console.error(`run task=${taskId} message=${userMessage.messageId}`);
    if (!task) {
      bus.publish({ kind: 'task', id: taskId, contextId, status: { state: 'submitted' }, history: [userMessage] });
    }
    const status = (state, text) =>
      bus.publish({
        kind: 'status-update', taskId, contextId, final: true,
        status: {
          state, timestamp: new Date().toISOString(),
          message: text && {
            kind: 'message', role: 'agent', messageId: randomUUID(), taskId, contextId,
            parts: [{ kind: 'text', text }],
          },
        },
      });
    const n = Number(userMessage.parts.map((p) => p.text ?? '').join(' '));
    if (!(n >= 1 && n <= 1000)) {
      status('input-required', 'How far shall I count?');
      return bus.finished();
    }
    for (let i = 1; i <= n && !this.#canceled.has(taskId); i++) {
      await sleep(Number(args.pause));
      bus.publish({
        kind: 'artifact-update', taskId, contextId, append: i > 1, lastChunk: i === n,
        artifact: { artifactId: 'numbers', parts: [{ kind: 'text', text: String(i) }] },
      });
    }
    status(this.#canceled.delete(taskId) ? 'canceled' : 'completed');
    bus.finished();
  }

  async cancelTask(taskId) {
    console.error(`cancel task=${taskId}`);
    this.#canceled.add(taskId);
  }
}

const app = express();
const server = app.listen(Number(args.port), '127.0.0.1', () => {
  const base = `http://127.0.0.1:${server.address().port}`;
  const card = {
    name: 'counter', description: 'Counts to the number in the message.', version: '1.0.0', protocolVersion: '0.3.0',
    url: `${args.url ?? base}/rpc`, preferredTransport: 'JSONRPC', capabilities: { streaming: true },
    defaultInputModes: ['text/plain'], defaultOutputModes: ['text/plain'],
    skills: [{ id: 'count', name: 'Count', description: 'Counts.', tags: ['numbers'] }],
  };
  const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Counter());
  app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler }));
  app.use('/rpc', jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
  console.error(`ready url=${base}`);
});
