// Claims that the server does not let wait, and those that do not reach it.
import assert from "node:assert/strict";
import { Agent } from "node:http";
import { Socket } from "node:net";
import { test, type TestContext } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

import { sleep } from "../src/clock.js";
import { Worker } from "../src/index.js";
import { silent } from "../src/log.js";
import { Slots } from "../src/slots.js";
import { FakeServer } from "./fake.js";
import { Gate, Log } from "./kit.js";

/** Starts a worker for a fake server. Both end with the test. */
async function serving(t: TestContext, server: FakeServer): Promise<Worker> {
  const worker = new Worker({ url: await server.start(), logger: silent }).agent("a", () => undefined);
  const served = worker.serve();
  t.after(async () => {
    worker.stop();
    await served;
    server.close();
  });
  return worker;
}

void test("claims that are not let wait pause", async (t) => {
  const pauses: number[] = [];
  t.mock.method(Slots.prototype, "pause", (failures: number) => {
    pauses.push(failures);
    return 0;
  });
  const server = new FakeServer();
  server.answer = () => [200, { runs: [] }];
  const worker = await serving(t, server);
  await server.seen(() => server.of("/claim").length > 3);
  assert.deepEqual(pauses.slice(0, 3), [1, 2, 3]);
  assert.ok(worker.status().ready);
});

/** Lets a claim wait as soon as it is written. */
function waitAtOnce(t: TestContext): void {
  const before = Slots.waitsAfter;
  Slots.waitsAfter = 0;
  t.after(() => (Slots.waitsAfter = before));
}

void test("a worker whose claim waits is ready", async (t) => {
  waitAtOnce(t);
  const worker = await serving(t, new FakeServer());
  while (!worker.status().ready) {
    await turn();
  }
});

void test("many agents are no leak", async (t) => {
  const warnings: Error[] = [];
  const warned = (warning: Error) => warnings.push(warning);
  process.on("warning", warned);
  t.after(() => process.off("warning", warned));
  const server = new FakeServer();
  const worker = new Worker({ url: await server.start(), logger: silent });
  for (let n = 0; n < 15; n++) {
    worker.agent(`a${n}`, () => undefined);
  }
  const served = worker.serve();
  await server.seen(() => server.of("/claim").length === 15);
  worker.stop();
  await served;
  server.close();
  await turn();
  assert.deepEqual(warnings, []);
});

void test("a worker does not begin with a proxy that cannot be used", async (t) => {
  const before = process.env.http_proxy;
  process.env.http_proxy = "proxy:notaport";
  t.after(() => {
    if (before === undefined) {
      delete process.env.http_proxy;
    } else {
      process.env.http_proxy = before;
    }
  });
  const log = new Log();
  const worker = new Worker({ url: "http://a2ad.example", health: "127.0.0.1:0", logger: log });
  await assert.rejects(worker.agent("a", () => undefined).serve(), /^UsageError: .*HTTP_PROXY must be an address/);
  assert.deepEqual(log.lines, []); // no health endpoint either
});

void test("a worker that cannot connect is not ready", async (t) => {
  waitAtOnce(t);
  const connecting = new Gate();
  t.mock.method(Agent.prototype as unknown as { createConnection: () => Socket }, "createConnection", () => {
    connecting.open();
    return Object.assign(new Socket(), { connecting: true });
  });
  const worker = await serving(t, new FakeServer());
  await connecting.opened;
  await new Promise((resolve) => setTimeout(resolve, 0)); // ends after a timer of zero seconds that began before
  assert.equal(worker.status().ready, false);
});

void test("no wait is too long for a timer", async (t) => {
  const stop = new AbortController();
  const set = t.mock.method(globalThis, "setTimeout");
  const slept = sleep(30 * 86_400, stop.signal);
  stop.abort();
  await slept;
  assert.equal(set.mock.calls[0]?.arguments[1], 2 ** 31 - 1);
});
