// How output is sent, and what happens to a function whose run has ended.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

import { execute } from "../src/agent.js";
import { Refused, Stopped } from "../src/errors.js";
import { lineLogger, type Logger } from "../src/log.js";
import { nextTick, Outbox, type Clock } from "../src/outbox.js";
import { Session } from "../src/session.js";
import { Task } from "../src/task.js";
import { noSpan } from "../src/tracing.js";
import type { Run } from "../src/wire.js";

const silent: Logger = lineLogger(() => undefined);

/** A promise that the test resolves. */
class Gate {
  open: () => void = () => undefined;
  readonly opened = new Promise<void>((done) => (this.open = done));
}

/** A clock that stands still until the test moves it. */
class StillClock implements Clock {
  time = 1000;
  gathers: { seconds: number; gate: Gate }[] = [];
  now = () => this.time * 1000;
  monotonic = () => this.time;
  sleeps: number[] = [];
  sleep = (seconds: number) => {
    this.sleeps.push(seconds);
    return Promise.resolve();
  };

  gatherText = async (seconds: number) => {
    const gate = new Gate();
    this.gathers.push({ seconds, gate });
    await gate.opened;
  };

  /** Lets the time pass that text is gathered for. */
  async pass(): Promise<void> {
    const { seconds, gate } = this.gathers.pop() ?? assert.fail("nothing is gathered");
    this.time += seconds;
    gate.open();
    await turn();
  }
}

const textIn = (event: string) =>
  (JSON.parse(event) as { artifactUpdate: { artifact: { parts: { text: string }[] } } }).artifactUpdate.artifact.parts[0]
    ?.text ?? "";

/** An outbox with a clock, and a server that answers at once unless there is a gate. */
function outbox() {
  const clock = new StillClock();
  const server = { requests: [] as string[][], gate: undefined as Gate | undefined };
  const box = new Outbox(async (events) => {
    server.requests.push(events.map(textIn));
    await server.gate?.opened;
  }, clock);
  return { clock, server, box };
}

void test("the first token is sent at once, the next ones every 50 ms", async () => {
  const { clock, server, box } = outbox();
  await box.write("a", "", "one ");
  assert.deepEqual(server.requests, [["one "]]);
  await turn();
  await box.write("a", "", "two ");
  await box.write("a", "", "three ");
  await turn();
  assert.equal(server.requests.length, 1);
  assert.deepEqual(clock.gathers.map((g) => g.seconds.toFixed(3)), ["0.050"]);
  await clock.pass();
  assert.deepEqual(server.requests.slice(1), [["two three "]]);
});

void test("all runs send at the same ticks", () => {
  for (let at = 0; at < 1; at += 0.001) {
    const tick = nextTick(at);
    assert.ok(tick - at > 0.0249 && tick - at < 0.0751, `${at}: ${tick}`);
    assert.ok(Math.abs(tick - Math.round(tick / 0.05) * 0.05) < 1e-9, `${at}: ${tick}`);
  }
  assert.equal(nextTick(0.0501).toFixed(3), "0.100", "who sends at a tick sends at the next one");
  assert.equal(nextTick(Number.NEGATIVE_INFINITY), Number.NEGATIVE_INFINITY, "the first text is sent at once");
});

void test("a slow answer does not make more requests", async () => {
  const { clock, server, box } = outbox();
  server.gate = new Gate();
  await box.write("a", "", "one ");
  await box.write("a", "", "two ");
  server.gate.open();
  await turn();
  assert.equal(server.requests.length, 1, "what came meanwhile waits for its 50 ms");
  await clock.pass();
  assert.deepEqual(server.requests, [["one "], ["two "]]);
});

void test("32 KiB are sent without waiting", async () => {
  const { server, box } = outbox();
  await box.write("a", "", "one ");
  await turn();
  await box.write("a", "", "x".repeat(20 << 10));
  await turn();
  assert.equal(server.requests.length, 1);
  await box.write("a", "", "y".repeat(12 << 10));
  await turn();
  assert.equal(server.requests.length, 2);
});

void test("writing waits if the server is slower than the agent", async () => {
  const { server, box } = outbox();
  server.gate = new Gate();
  await box.write("a", "", "one ");
  let written = 0;
  const writing = (async () => {
    for (; written < 100; written++) {
      await box.write("a", "", "x".repeat(16 << 10));
    }
  })();
  await turn();
  assert.equal(written, 15, "the sixteenth fills 256 KiB");
  server.gate.open();
  server.gate = undefined;
  await writing;
  await box.flush();
  assert.equal(server.requests.flat().join("").length, 4 + 100 * (16 << 10));
});

void test("a large text is cut between characters", async () => {
  const { server, box } = outbox();
  const text = `a${"😀".repeat(200_000)}`;
  await box.write("a", "", text);
  await box.flush();
  const chunks = server.requests.flat();
  assert.ok(chunks.length > 1);
  assert.ok(chunks.every((c) => c.isWellFormed()));
  assert.equal(chunks.join(""), text);
});

void test("a request has at most 1 MiB", async () => {
  const { server, box } = outbox();
  const text = "x".repeat(200 << 10);
  await Promise.all(Array.from({ length: 12 }, (_, i) => box.write(`a${i}`, "", text)));
  await box.flush();
  const sizes = server.requests.map((texts) => texts.join("").length);
  assert.equal(sizes.reduce((sum, size) => sum + size), 12 * text.length);
  assert.ok(sizes.every((size) => size <= 1 << 20), sizes.join());
});

const aRun: Run = {
  ...{ taskId: "t", contextId: "c", contextKey: "k", tenant: "", owner: "", agent: "a", epoch: 1, attempt: 1 },
  ...{ messages: [{ messageId: "m", parts: [{ text: "x" }] }], leaseSeconds: 30 },
};

/** A session whose requests get this answer. */
const sessionWith = (report: (events: readonly string[]) => Promise<boolean>) =>
  new Session(structuredClone(aRun), { report: async (_, events) => await report(events) }, true);

for (const how of ["canceled", "lost"] as const) {
  void test(`a call does not return when the task is ${how}`, async () => {
    const session = sessionWith(() => {
      return how === "canceled" ? Promise.resolve(true) : Promise.reject(new Stopped("lost", "the lease is lost"));
    });
    const went: string[] = [];
    const work = async (task: Task) => {
      try {
        await task.step("a", () => went.push("step"));
        went.push("after");
      } catch {
        went.push("catch");
      } finally {
        went.push("finally");
      }
    };
    const ending = await execute({ name: "a", run: work, concurrency: 1, replay: true }, session, silent, noSpan);
    await turn();
    assert.deepEqual([ending.outcome, ending.abandoned, went], [how, true, ["step"]]);
    assert.ok(session.abort.signal.reason instanceof Stopped);
    assert.equal(session.canceled, how === "canceled");
  });
}

void test("a task is tried again if the server refuses to postpone it", async () => {
  const session = sessionWith(() => Promise.reject(new Refused("400 INVALID_AGENT_RESPONSE: no")));
  const run = (task: Task) => task.sleep("tomorrow");
  const ending = await execute({ name: "a", run, concurrency: 1, replay: true }, session, silent, noSpan);
  assert.equal(ending.outcome, "retry");
  assert.match(ending.reason ?? "", /^the duration of sleep must be .* \(Refused: 400 INVALID_AGENT_RESPONSE: no\)$/);
});

void test("nothing follows the event that ends the run", async () => {
  const sent: string[] = [];
  const gate = new Gate();
  const session = sessionWith(async (events) => {
    sent.push(...events);
    await gate.opened;
    return false;
  });
  const run = async (task: Task) => {
    await Promise.all([task.write("x"), task.sleep("1h"), task.sleep("2h"), task.step("a", () => 1), task.write("y")]);
  };
  const executing = execute({ name: "a", run, concurrency: 1, replay: true }, session, silent, noSpan);
  await turn();
  gate.open();
  assert.equal((await executing).outcome, "waiting");
  assert.match(sent.at(-1) ?? "", /^\{"wait":\{"key":"sleep#1","for":"3600\.000s"\}\}$/);
  assert.equal(sent.filter((e) => e.startsWith('{"wait"')).length, 1);
});

void test("a wait of no time ends", async () => {
  const sent: string[] = [];
  const session = sessionWith((events) => {
    sent.push(...events);
    return Promise.resolve(false);
  });
  const run = async (task: Task) => {
    await task.sleep(0);
  };
  await execute({ name: "a", run, concurrency: 1, replay: true }, session, silent, noSpan);
  assert.match(sent.join(), /"for":"0\.001s"/); // to the server, zero is no end
});

void test("a log line has fields", () => {
  const lines: string[] = [];
  const write = (line: string) => lines.push(line);
  const fields = { agent: "a", err: "no route", reason: undefined };
  lineLogger(write).warn("claim failed", fields);
  assert.match(lines.join(""), /^\S+Z WARN claim failed agent=a err="no route"\n$/);
  lines.length = 0;
  const json = lineLogger(write, true, 2);
  json.info("attempt ended", fields); // below the least level
  json.error("attempt failed", { err: new RangeError("no") });
  const { time, err, ...rest } = JSON.parse(lines.join("")) as Record<string, string>;
  assert.deepEqual(rest, { level: "ERROR", msg: "attempt failed" });
  assert.ok(Date.parse(time ?? "") > 0);
  assert.match(err ?? "", /^RangeError: no\n +at /);
});

void test("what waits to be sent is not sent after the attempt has failed", async () => {
  const clock = new StillClock();
  const sent: string[] = [];
  const report = (_: Run, events: readonly string[]) => {
    sent.push(...events.filter((e) => e.startsWith('{"artifactUpdate"')).map(textIn));
    return Promise.resolve(false);
  };
  const session = new Session(structuredClone(aRun), { report }, true, clock);
  const run = async (task: Task) => {
    await task.write("one ");
    await turn();
    await task.write("two ");
    await turn();
    throw new Error("reset");
  };
  const ending = await execute({ name: "a", run, concurrency: 1, replay: true }, session, silent, noSpan);
  await clock.pass();
  assert.deepEqual([ending.outcome, sent], ["retry", ["one "]]);
});

void test("the pause before a retry continues after a crash", async () => {
  const clock = new StillClock();
  const nextAt = new Date(clock.now() + 3000).toISOString();
  const error = { type: "Error", message: "reset" };
  const failure = { seq: 1, key: "get#1", kind: "step" as const, name: "get", attempts: 1, error, nextAt };
  const session = new Session({ ...aRun, steps: [failure] }, { report: () => Promise.resolve(false) }, true, clock);
  const run = (task: Task) => task.step("get", () => 1, { retries: 2, backoff: "8s" });
  const ending = await execute({ name: "a", run, concurrency: 1, replay: true }, session, silent, noSpan);
  assert.deepEqual([ending.outcome, clock.sleeps], ["finished", [3]]);
});
