// a2ad as a2a-ai-provider sees it, a model of the AI SDK that is an A2A agent. It speaks JSON-RPC 0.3, sends and
// streams, and starts a new task with every message.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { a2a } from 'a2a-ai-provider';
import { generateText, streamText } from 'ai';
import { Server } from '../../js/server.js';

const limit = { timeout: 90_000 };
console.log = () => {}; // the provider prints what it sends and gets

let server, model;
before(async () => {
  server = await Server.start();
  model = a2a(new URL('/.well-known/agent-card.json', server.url).href);
}, limit);
after(() => server?.stop(), limit);

test('a text is generated', limit, async () => {
  const { text, finishReason } = await generateText({ model, prompt: 'hello, wörld' });
  assert.deepEqual([text, finishReason], ['hello, wörld', 'stop']);
});

test('a text is streamed', limit, async () => {
  const result = streamText({ model, prompt: 'one two three' });
  const pieces = [];
  for await (const piece of result.textStream) pieces.push(piece);
  assert.equal(pieces.join(''), 'one two three');
  assert.equal(await result.finishReason, 'stop');
});

test('a context is named', limit, async () => {
  const { response } = await generateText({ model, prompt: 'hello', providerOptions: { a2a: { contextId: 'one' } } });
  assert.equal(response.body.contextId, 'one');
});
