// A worker and a fake server: requests that fail, leases, claims, and the end.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test, type TestContext } from "node:test";

import { Retry, Worker, type AgentFunction, type Task, type WorkerOptions } from "../src/index.js";
import type { Logger } from "../src/log.js";
import type { Run } from "../src/wire.js";
import { claimed, FakeServer, lost, ok, type Answer, type Batch } from "./fake.js";
import { placeOf } from "./place.js";

const never = () => new Promise<never>(() => undefined);

interface Line extends Record<string, unknown> {
  msg: string;
}

/** Starts a worker for a fake server. Both end with the test. */
async function serving(
  t: TestContext,
  server: FakeServer,
  agent: AgentFunction,
  { concurrency = 8, ...options }: WorkerOptions & { concurrency?: number } = {},
) {
  const log: Line[] = [];
  const note = (msg: string, fields: Record<string, unknown>) => log.push({ msg, ...fields });
  const logger: Logger = { info: note, warn: note, error: note };
  const worker = new Worker({ url: await server.start(), logger, ...options }).agent("a", { concurrency }, agent);
  const served = worker.serve();
  t.after(async () => {
    worker.stop();
    await served;
    server.close();
  });
  const named = (msg: string) => log.filter((line) => line.msg === msg);
  return { worker, served, named };
}

const works = (task: Task) => task.step("one", () => 1);
const batches = (server: FakeServer) => server.of<Batch>("/events");
const ended = (server: FakeServer) => () => JSON.stringify(batches(server)).includes("TASK_STATE_COMPLETED");

void test("requests name the library and the version of its package", async (t) => {
  const server = new FakeServer(claimed());
  await serving(t, server, works);
  await server.seen(ended(server));
  const { version } = JSON.parse(readFileSync("package.json", "utf8")) as { version: string };
  assert.deepEqual([...new Set(server.requests.map((r) => r.userAgent))], [`a2ad-typescript/${version}`]);
});

void test("requests are sent again, with the same batch id, until they are answered", async (t) => {
  const server = new FakeServer(claimed());
  const busy: Answer = [429, {}, { "Retry-After": "0" }];
  const answers: Answer[] = [undefined, [503, {}], [500, {}], busy];
  server.answer = (path) => (path.endsWith("/events") && answers.length > 0 ? answers.shift() : ok);
  await serving(t, server, works);
  await server.seen(ended(server));
  const ids = batches(server).map((b) => b.batchId);
  assert.equal(ids.length, 6);
  assert.deepEqual([new Set(ids.slice(0, 5)).size, new Set(ids).size], [1, 2]);
});

for (const [outcome, answer] of [["lost", lost], ["canceled", [200, { cancelRequested: true }]]] as const) {
  void test(`a heartbeat ends a run that is ${outcome}`, async (t) => {
    const server = new FakeServer(claimed("t", { leaseSeconds: 0.03 }));
    server.answer = (path) => (path.endsWith("/heartbeat") ? answer : ok);
    let told: () => void;
    const left = new Promise<void>((done) => (told = done));
    const { worker, served, named } = await serving(t, server, async (task) => {
      task.abortSignal.addEventListener("abort", () => {
        assert.equal(task.cancelled, outcome === "canceled");
        told();
      });
      await never();
    });
    await left;
    worker.stop();
    await served;
    assert.deepEqual(named("attempt ended").map((line) => line.outcome), [outcome]);
    assert.deepEqual([batches(server), server.of("/finish")], [[], []]);
  });
}

void test("the lease is renewed until the run ends", async (t) => {
  const server = new FakeServer(claimed("t", { leaseSeconds: 0.03 }));
  let leave: () => void = () => undefined;
  const left = new Promise<void>((done) => (leave = done));
  await serving(t, server, async () => {
    await left;
  });
  await server.seen(() => server.of("/heartbeat").length === 4);
  leave();
  await server.seen(ended(server));
});

void test("a run ends with its lease if the server does not answer", async (t) => {
  const server = new FakeServer(claimed("t", { leaseSeconds: 0.03 }));
  server.answer = (path) => (path.includes("/runs/") ? undefined : ok);
  const { named, worker, served } = await serving(t, server, works);
  await server.seen(() => server.requests.length >= 3);
  worker.stop();
  await served;
  const [line] = named("attempt ended");
  assert.equal(line?.outcome, "lost");
  assert.match(String(line.reason), /^the server cannot be reached/);
});

void test("a server that is busy for longer than the lease is not asked again", async (t) => {
  const server = new FakeServer(claimed());
  const answers: Answer[] = [[429, {}, { "Retry-After": "60" }]];
  server.answer = (path) => (path.endsWith("/events") ? (answers.shift() ?? ok) : ok);
  const { named, worker, served } = await serving(t, server, works);
  await server.seen(() => batches(server).length > 0);
  worker.stop();
  await served;
  assert.deepEqual(named("attempt ended").map((line) => line.outcome), ["lost"]);
  assert.equal(batches(server).length, 1);
});

void test("what the server refuses lets the task wait", async (t) => {
  const server = new FakeServer(claimed());
  const refusal: Answer = [400, { error: { reason: "INVALID_AGENT_RESPONSE", message: "no agent b" } }];
  server.answer = (_, body) => (JSON.stringify(body ?? "").includes('"call":') ? refusal : ok);
  const { worker, served, named } = await serving(t, server, async (task) => {
    await task.call("b", "x");
  });
  await server.seen(() => batches(server).length === 2);
  worker.stop();
  await served;
  const [step, wait] = batches(server)[1]?.events ?? [];
  const error = { type: "UsageError", message: `400 INVALID_AGENT_RESPONSE: no agent b (at ${placeOf(import.meta.url, "await task.call(\"b\"")})` };
  const { nextAt, ...rest } = step?.step ?? {};
  assert.deepEqual(rest, { key: "postponed", name: "postponed", error, attempts: 1 });
  assert.ok(Date.parse(nextAt as string) > 0);
  assert.deepEqual(wait, { wait: { key: "postponed/pause#1", for: "5s" } });
  assert.deepEqual(named("attempt ended").map((line) => line.outcome), ["postponed"]);
  assert.equal(server.of("/finish").length, 0);
});

void test("an attempt that fails says why, and when to try again", async (t) => {
  const server = new FakeServer(claimed());
  await serving(t, server, () => {
    throw new Retry("busy", { after: 0.2 });
  });
  await server.seen(() => server.of("/finish").length === 1);
  assert.deepEqual(server.of("/finish"), [{ outcome: "retry", error: "busy", retryAfterSeconds: 1 }]);
});

void test("a stopped worker releases what does not end in time", async (t) => {
  const server = new FakeServer(claimed("t1"), claimed("t2"));
  let begun = 0;
  let start: () => void;
  const started = new Promise<void>((done) => (start = done));
  const { worker, served } = await serving(t, server, async () => {
    if (++begun === 2) {
      start();
    }
    await never();
  }, { grace: 0 });
  await started;
  worker.stop();
  await served;
  assert.deepEqual(server.of("/finish"), [{ outcome: "release" }, { outcome: "release" }]);
});

void test("claims are for free slots, and at most 100", async (t) => {
  const runs: Run[] = Array.from({ length: 120 }, (_, i) => claimed(`t${i}`));
  const server = new FakeServer(...runs);
  await serving(t, server, never, { concurrency: 150, grace: 0, name: "w" });
  const claims = () => server.of<{ worker: string; agents: string[]; max: number; waitSeconds: number }>("/claim");
  await server.seen(() => claims().length === 3);
  assert.deepEqual(claims().map((c) => c.max), [100, 50, 30]);
  assert.deepEqual(claims()[2], { worker: "w", agents: ["a"], max: 30, waitSeconds: 30 });
});

void test("the pauses between claims that fail grow", async (t) => {
  const server = new FakeServer(claimed());
  const answers: Answer[] = [[503, {}], undefined, [503, {}, { "Retry-After": "1" }]];
  server.answer = (path) => (path.endsWith("/claim") && answers.length > 0 ? answers.shift() : ok);
  const { named } = await serving(t, server, works);
  await server.seen(ended(server));
  const pauses = named("claim failed").map((line) => Number(line.again_in_seconds));
  const [first = 0, second = 0, third = 0] = pauses;
  assert.equal(pauses.length, 3);
  // Doubled each time, and between half of it and all of it.
  assert.ok(first >= 0.2 && first <= 0.4, `${first}`);
  assert.ok(second >= 0.4 && second <= 0.8, `${second}`);
  assert.ok(third >= 1 && third <= 1.6, `${third}`);
});
