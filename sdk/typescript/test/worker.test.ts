// A worker and a fake server: streams, retries, claims, health, and how runs end early.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test, type TestContext } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

import { Worker, type AgentFunction, type Task, type WorkerOptions } from "../src/index.js";
import { nextTick } from "../src/clock.js";
import { claimed, FakeServer, lost, ok, type Answer, type Batch } from "./fake.js";
import { Gate, lineOf, Log, never } from "./kit.js";

interface Serving {
  readonly worker: Worker;
  readonly log: Log;
  /** Stops the worker, and waits for its end. */
  readonly stop: () => Promise<void>;
}

/** Starts a worker for a fake server. Both end with the test. */
async function serving(
  t: TestContext,
  server: FakeServer,
  agent: AgentFunction,
  { concurrency = 8, ...options }: WorkerOptions & { concurrency?: number } = {},
): Promise<Serving> {
  const log = new Log();
  const worker = new Worker({ url: await server.start(), logger: log, ...options }).agent("a", { concurrency }, agent);
  const served = worker.serve();
  const stop = async () => {
    worker.stop();
    await served;
  };
  t.after(async () => {
    await stop();
    server.close();
  });
  return { worker, log, stop };
}

const works = (task: Task) => task.step("one", () => 1);
const batches = (server: FakeServer) => server.of<Batch>("/events");
const ended = (log: Log) => log.lines.flatMap((l) => (l.msg.startsWith("run ended") ? [l.outcome] : []));

void test("requests name the library and the version of its package", async (t) => {
  const server = new FakeServer(claimed());
  await serving(t, server, works);
  await server.seen(server.completed);
  const { version } = JSON.parse(readFileSync("package.json", "utf8")) as { version: string };
  assert.deepEqual([...new Set(server.requests.map((r) => r.userAgent))], [`a2ad-typescript/${version}`]);
});

void test("the first token is sent at once, and others together", async (t) => {
  const server = new FakeServer(claimed());
  const gate = new Gate();
  server.delay = (path) => (path.endsWith("/events") ? gate.opened : undefined);
  await serving(t, server, async (task) => {
    await task.write("first ");
    await server.seen(() => server.texts().length > 0);
    for (let n = 0; n < 10; n++) {
      await task.write("more ");
    }
    assert.deepEqual(server.texts(), ["first "]); // the server has not answered yet
    gate.open();
  });
  await server.seen(server.completed);
  assert.deepEqual(server.texts(), ["first ", "more ".repeat(10)]);
});

void test("all runs send at the same ticks", () => {
  for (let ms = 0; ms < 1000; ms++) {
    const sentAt = ms / 1000;
    const tick = nextTick(sentAt);
    assert.ok(tick - sentAt > 0.0249 && tick - sentAt < 0.0751);
    assert.ok(Math.abs(tick - Math.round(tick / 0.05) * 0.05) < 1e-9);
  }
  assert.ok(Math.abs(nextTick(0.05) - 0.1) < 1e-9); // sent at a tick
});

void test("writing waits while the server is slower", async (t) => {
  const server = new FakeServer(claimed());
  const gate = new Gate();
  let written = 0;
  server.delay = (path) => (path.endsWith("/events") ? gate.opened : undefined);
  await serving(t, server, async (task) => {
    for (; written < 100; written++) {
      await task.write("x".repeat(10_000));
    }
  });
  await server.seen(() => server.texts().length > 0);
  for (let n = 0; n < 100; n++) {
    await turn();
  }
  assert.ok(written >= 26 && written <= 28, String(written)); // 256 KiB wait to be sent
  gate.open();
  await server.seen(server.completed);
  assert.equal(server.texts().join("").length, 1_000_000);
});

void test("requests are repeated, with the same batch id, until they are answered", async (t) => {
  const server = new FakeServer(claimed());
  const busy: Answer = [429, {}, { "Retry-After": "0" }];
  const answers: Answer[] = [undefined, [503, {}], [404, "<html>"], busy];
  server.answer = (path) => (path.endsWith("/events") && answers.length > 0 ? answers.shift() : ok);
  await serving(t, server, works);
  await server.seen(server.completed);
  assert.deepEqual(
    batches(server).map((b) => b.batchId),
    ["1", "1", "1", "1", "1", "2"],
  );
});

void test("what the server refuses lets the task wait", async (t) => {
  const server = new FakeServer(claimed());
  const refusal: Answer = [400, { error: { reason: "INVALID_AGENT_RESPONSE", message: "events[0]: no agent b" } }];
  server.answer = (path, body) =>
    path.endsWith("/events") && (body as Batch).events[0]?.call !== undefined ? refusal : ok;
  const { log, stop } = await serving(t, server, (task) => task.call("b", "x"));
  await server.seen(() => batches(server).length === 2);
  const [step, wait] = batches(server)[1]?.events ?? [];
  const message = `${lineOf(import.meta.url, 'task.call("b", "x")')}: no agent b`;
  assert.deepEqual(step?.step?.error, { type: "UsageError", message });
  assert.equal(wait?.wait?.key, "postponed/pause#1");
  await stop();
  assert.deepEqual(server.of("/finish"), []);
  assert.deepEqual([log.problems, ended(log)], [[`mistake in the program: ${message}`], ["postponed"]]);
});

void test("claims are for free slots, and at most 100", async (t) => {
  const server = new FakeServer(...Array.from({ length: 120 }, (_, i) => claimed(`t${i}`)));
  const gate = new Gate();
  const { worker } = await serving(t, server, () => gate.opened, { concurrency: 150, name: "w" });
  await server.seen(() => server.of("/claim").length === 3);
  const claims = server.of<{ max: number; worker: string }>("/claim");
  assert.deepEqual(
    claims.map((c) => c.max),
    [100, 50, 30],
  );
  assert.equal(claims[0]?.worker, "w");
  assert.equal(worker.status().agents.a?.running, 120);
  gate.open();
});

void test("health", async (t) => {
  const server = new FakeServer(claimed());
  const gate = new Gate();
  let down = true;
  server.answer = () => (down ? [503, { error: { reason: "UNAVAILABLE", message: "no" } }] : ok);
  const { worker, log, stop } = await serving(t, server, () => gate.opened, { concurrency: 2, health: "127.0.0.1:0" });
  await server.seen(() => server.of("/claim").length === 2);
  const address =
    log.lines
      .find((l) => l.msg.startsWith("health endpoint on "))
      ?.msg.split(" ")
      .at(-1) ?? "";
  const get = async (path: string): Promise<[number, string]> => {
    const answer = await fetch(`http://${address}${path}`);
    return [answer.status, await answer.text()];
  };
  assert.deepEqual(await get("/livez"), [200, "ok\n"]);
  assert.deepEqual(await get("/readyz"), [503, "not ready\na: 503 UNAVAILABLE: no\n"]);
  down = false;
  await server.seen(() => worker.status().runs === 1 || server.runs.length === 0);
  while (worker.status().runs === 0) {
    await turn();
  }
  assert.deepEqual(await get("/readyz"), [200, "ok\n"]);
  assert.equal((await get("/nothing"))[0], 404);
  const status = JSON.parse((await get("/status"))[1]) as ReturnType<Worker["status"]>;
  assert.deepEqual([status.ready, status.runs], [true, 1]);
  assert.deepEqual([status.agents.a?.running, status.agents.a?.concurrency], [1, 2]);
  assert.ok(Date.parse(status.lastClaim ?? "") > 0);
  gate.open();
  await stop();
  assert.equal(worker.status().ready, false);
});

const advices: [answer: Answer, advice: string][] = [
  [[401, { error: { reason: "UNAUTHENTICATED", message: "no" } }], "check A2AD_API_KEY"],
  [[403, { error: { reason: "FORBIDDEN", message: "no" } }], "has the scope worker"],
  [
    [404, { error: { reason: "NOT_FOUND", message: "no" } }],
    'add an agent file to the server: "name: a", "executor: {pull: {}}"',
  ],
  [[404, "<html>"], "check that A2AD_URL"],
  [[200, "<html>"], "the response is not that of an a2ad server"],
  [[200, { status: "maintenance" }], "the response is not that of an a2ad server"],
];

for (const [answer, advice] of advices) {
  void test(`a refused claim says what to check: ${advice}`, async (t) => {
    const server = new FakeServer();
    server.answer = () => (server.of("/claim").length === 1 ? answer : ok);
    const { log } = await serving(t, server, works);
    await server.seen(() => server.of("/claim").length === 2);
    assert.ok(
      log.problems.some((msg) => msg.startsWith("claim failed: ") && msg.includes(advice)),
      log.problems.join(),
    );
  });
}

for (const [outcome, answer] of [
  ["lost", lost],
  ["canceled", [200, { cancelRequested: true }]],
] as const) {
  void test(`a heartbeat ends a run that is ${outcome}`, async (t) => {
    const server = new FakeServer(claimed("t", { leaseSeconds: 3 }));
    server.answer = (path) => (path.endsWith("/heartbeat") ? answer : ok);
    const left = new Gate();
    const { log, stop } = await serving(t, server, (task) => {
      task.abortSignal.addEventListener("abort", () => {
        assert.equal(task.cancelled, outcome === "canceled");
        left.open();
      });
      return never();
    });
    await left.opened;
    await stop();
    assert.deepEqual(ended(log), [outcome]);
    assert.deepEqual([batches(server), server.of("/finish")], [[], []]);
  });
}

void test("a run ends with its lease", async (t) => {
  const server = new FakeServer(claimed("t", { leaseSeconds: 0.06 }));
  server.answer = (path) => (path.endsWith("/heartbeat") ? "hang" : ok);
  const left = new Gate();
  const { log, stop } = await serving(t, server, (task) => {
    task.abortSignal.addEventListener("abort", () => {
      left.open();
    });
    return never();
  });
  await left.opened;
  await stop();
  assert.ok(server.of("/heartbeat").length > 0);
  assert.deepEqual([ended(log), server.of("/finish")], [["lost"], []]);
});

void test("a stopped worker releases runs, whatever their functions do", async (t) => {
  const server = new FakeServer(claimed("t1"), claimed("t2"));
  const begun = [new Gate(), new Gate()];
  const { log, stop } = await serving(
    t,
    server,
    async (task) => {
      if (task.id === "t1") {
        await task.status("begun");
      }
      begun[task.id === "t1" ? 0 : 1]?.open();
      await never();
    },
    { grace: 0 },
  );
  await Promise.all(begun.map((g) => g.opened));
  await stop();
  assert.deepEqual(server.of("/finish"), [{ outcome: "release" }, { outcome: "release" }]);
  assert.deepEqual(ended(log), ["released", "released"]);
});

void test("a function does nothing after its release", async (t) => {
  const server = new FakeServer(claimed());
  const begun = new Gate();
  const go = new Gate();
  const did: string[] = [];
  const { stop } = await serving(
    t,
    server,
    async (task) => {
      const left = task.step("wait", async () => {
        begun.open();
        await go.opened;
      });
      await left.then(
        () => did.push("went on"),
        () => did.push("failed"),
      );
    },
    { grace: 0 },
  );
  await begun.opened;
  await stop();
  go.open();
  await turn();
  assert.deepEqual([did, server.of("/finish"), batches(server)], [[], [{ outcome: "release" }], []]);
});

void test("a run is released if the request for a retry is not answered", async (t) => {
  const server = new FakeServer(claimed());
  const retry = { outcome: "retry", error: "Error: broken" };
  server.answer = (path, body) =>
    path.endsWith("/finish") && (body as typeof retry).outcome === "retry" ? "hang" : ok;
  const { stop } = await serving(t, server, () => Promise.reject(new Error("broken")), { grace: 0 });
  await server.seen(() => server.of("/finish").length > 0);
  await stop();
  assert.deepEqual(server.of("/finish"), [retry, { outcome: "release" }]);
});

void test("the lease is renewed until the run is released", async (t) => {
  const server = new FakeServer(claimed("t", { leaseSeconds: 3 }));
  const renewedSince = () => {
    const paths = server.requests.map((r) => r.path.split("/").at(-1));
    return paths.includes("finish") && paths.slice(paths.indexOf("finish")).includes("heartbeat");
  };
  server.answer = (path) => (path.endsWith("/finish") && !renewedSince() ? undefined : ok);
  const begun = new Gate();
  const { stop } = await serving(
    t,
    server,
    () => {
      begun.open();
      return never();
    },
    { grace: 0 },
  );
  await begun.opened;
  await stop();
  assert.ok(renewedSince());
});

void test("the lease is renewed while a step works after a refusal", async (t) => {
  const server = new FakeServer(claimed("t", { leaseSeconds: 3 }));
  const isText = (body: unknown) => (body as Batch).events.some((e) => e.artifactUpdate !== undefined);
  const refusal: Answer = [413, { error: { reason: "TASK_TOO_LARGE", message: "too large" } }];
  server.answer = (path, body) => (path.endsWith("/events") && isText(body) ? refusal : ok);
  const { log, stop } = await serving(t, server, async (task) => {
    await task.write("x");
    await task.step("pay", async () => {
      await server.seen(() => batches(server).length > 0);
      const { length } = server.of("/heartbeat");
      await server.seen(() => server.of("/heartbeat").length > length + 1);
    });
  });
  await server.seen(() => batches(server).some((b) => b.events.some((e) => e.step?.key === "postponed")));
  await stop();
  assert.deepEqual(ended(log), ["postponed"]);
});

void test("a task that is canceled after a refusal is left", async (t) => {
  const server = new FakeServer(claimed("t", { leaseSeconds: 3 }));
  const refusal: Answer = [413, { error: { reason: "TASK_TOO_LARGE", message: "too large" } }];
  const canceled = () => batches(server).length > 0;
  server.answer = (path) =>
    path.endsWith("/events") ? refusal : path.endsWith("/heartbeat") ? [200, { cancelRequested: canceled() }] : ok;
  const { log, stop } = await serving(t, server, async (task) => {
    await task.write("x");
    await never();
  });
  await server.seen(() => canceled() && server.of("/heartbeat").length > 0);
  await stop();
  assert.deepEqual(ended(log), ["canceled"]);
});

void test("wrong use of a worker that has started", async (t) => {
  const server = new FakeServer();
  const { worker } = await serving(t, server, works);
  await assert.rejects(worker.serve(), /the worker has started already/);
  assert.throws(() => worker.agent("b", works), /register the agent 'b' before the worker starts/);
});

void test("a worker that is stopped before it serves does nothing", async (t) => {
  const server = new FakeServer(claimed());
  t.after(() => {
    server.close();
  });
  const worker = new Worker({ url: await server.start(), logger: new Log() }).agent("a", works);
  worker.stop();
  await worker.serve();
  assert.deepEqual(server.requests, []);
});

void test("a worker may serve again", async (t) => {
  const server = new FakeServer(claimed("t1"));
  const did: string[] = [];
  const { worker, stop } = await serving(t, server, (task) => {
    did.push(task.id);
  });
  await server.seen(server.completed);
  await stop();
  server.runs = [claimed("t2")];
  server.requests.length = 0;
  const served = worker.serve();
  await server.seen(server.completed);
  worker.stop();
  await served;
  assert.deepEqual(did, ["t1", "t2"]);
});
