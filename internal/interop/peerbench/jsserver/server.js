// An agent server of the official JavaScript SDK of A2A 1.0, with its tasks in memory. `go run ./internal/bench -run
// peers` measures it next to a2ad. It prints its address, and serves until it is killed.
import { setTimeout as pause } from 'node:timers/promises';
import express from 'express';
import { Role, TaskState } from '@a2a-js/sdk';
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from '@a2a-js/sdk/server';
import { jsonRpcHandler, UserBuilder } from '@a2a-js/sdk/server/express';

// The agent repeats a message. A message "tokens N R" asks for N tokens at R per second instead. ../goserver and
// internal/bench/tokenagent do the same.
class Agent {
  async execute(context, bus) {
    const { taskId, contextId, userMessage } = context;
    const status = (state) => ({ state, message: undefined, timestamp: new Date().toISOString() });
    const update = (state) => AgentEvent.statusUpdate({ taskId, contextId, status: status(state), metadata: undefined });
    bus.publish(AgentEvent.task({
      id: taskId, contextId, status: status(TaskState.TASK_STATE_SUBMITTED), artifacts: [], history: [userMessage],
      metadata: undefined
    }));
    bus.publish(update(TaskState.TASK_STATE_WORKING));
    const asked = /^tokens (\d+) (\d+)/.exec(userMessage.parts[0].content.value);
    if (asked) await this.tokens(context, bus, Number(asked[1]), Number(asked[2]));
    else bus.publish(this.artifact(context, userMessage.parts, false));
    bus.publish(update(TaskState.TASK_STATE_COMPLETED));
    bus.finished();
  }

  artifact({ taskId, contextId }, parts, append) {
    return AgentEvent.artifactUpdate({
      taskId, contextId, append, lastChunk: false, metadata: undefined,
      artifact: { artifactId: 'a', name: '', description: '', parts, metadata: undefined, extensions: [] }
    });
  }

  // tokens reports n tokens at the given rate per second. A token is the time of its report in microseconds, and its
  // number: 20 bytes.
  async tokens(context, bus, n, rate) {
    const start = performance.now();
    for (let i = 0; i < n; i++) {
      await pause(Math.max(0, start + (i + 1) * 1000 / rate - performance.now()));
      const now = Math.floor((performance.timeOrigin + performance.now()) * 1000);
      const value = `${String(now).padStart(16, '0')}:${String(i).padStart(3, '0')}`;
      const part = { content: { $case: 'text', value }, metadata: undefined, filename: '', mediaType: '' };
      bus.publish(this.artifact(context, [part], i > 0));
    }
  }

  async cancelTask() {}
}

const card = {
  name: 'bench', description: 'Repeats, or writes tokens.', version: '1', provider: undefined,
  capabilities: { streaming: true, pushNotifications: false, extensions: [] },
  supportedInterfaces: [{ url: 'http://localhost/', protocolBinding: 'JSONRPC', tenant: '', protocolVersion: '1.0' }],
  defaultInputModes: ['text/plain'], defaultOutputModes: ['text/plain'], skills: [], signatures: [],
  securitySchemes: {}, securityRequirements: []
};
const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Agent());
const app = express();
app.use('/', jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
const server = app.listen(0, '127.0.0.1', () => console.log(`127.0.0.1:${server.address().port}`));
