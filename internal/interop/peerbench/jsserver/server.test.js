// The bench checks the same answers of all servers.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

test('the agent repeats, or writes tokens', async (t) => {
  const server = spawn(process.execPath, [new URL('server.js', import.meta.url).pathname], {
    stdio: ['ignore', 'pipe', 'inherit']
  });
  t.after(() => server.kill());
  const [address] = await once(createInterface({ input: server.stdout }), 'line');
  const ask = async (method, text) => {
    const response = await fetch(`http://${address}/`, {
      method: 'POST', headers: { 'Content-Type': 'application/json', 'A2A-Version': '1.0' },
      body: JSON.stringify({
        jsonrpc: '2.0', id: '1', method, params: { message: { messageId: text, role: 'ROLE_USER', parts: [{ text }] } }
      })
    });
    return response.text();
  };
  assert.match(await ask('SendMessage', 'hello there'), /TASK_STATE_COMPLETED.*hello there.*hello there/s);
  assert.match(await ask('SendStreamingMessage', 'tokens 2 1000'), new RegExp('^data: .*"task".*"artifactUpdate".*' +
    '"text":"\\d{16}:000".*"text":"\\d{16}:001".*"append":true.*TASK_STATE_COMPLETED', 's'));
});
