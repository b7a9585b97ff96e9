// Pauses between two tries of a step: a long one holds no worker.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Retry, TimeoutError, type Task } from "../src/index.js";
import { realClock, type Clock } from "../src/clock.js";
import { crashEverywhere, run, type Result } from "../src/testing.js";
import { attempt, never, said } from "./kit.js";

/** Returns the function of a service that is busy at first. */
function service(busy: number): () => string {
  let asked = 0;
  return () => {
    if (++asked <= busy) {
      throw new Error("busy");
    }
    return `try ${asked}`;
  };
}

const waits = (r: Result) => Object.values(r.steps).flatMap((s) => (s.kind === "wait" ? [`${s.key} by ${s.by}`] : []));

void test("a long pause in gather is a wait", async () => {
  const x = service(2);
  const y = service(1);
  const agent = (task: Task) =>
    task.gather(
      () => task.step("x", x, { retries: 5, backoff: "15s" }),
      () => task.step("y", y, { retries: 5, backoff: "1h" }),
    );
  const r = await run(agent, "x", { maxAttempts: 1 });
  assert.deepEqual(r.data, ["try 3", "try 2"]);
  assert.deepEqual(waits(r), [
    ...["gather#1.1/x#1/pause#1 by time", "gather#1.1/x#1/pause#2 by time", "gather#1.2/y#1/pause#1 by time"],
  ]);
  assert.equal(r.elapsed, 3600);
});

void test("a pause continues after a call has ended", async () => {
  const x = service(1);
  const agent = async (task: Task) => {
    const paused = () => task.gather(() => task.step("x", x, { retries: 1, backoff: "1h" }));
    const [nested, called] = await task.gather(paused, () => task.call("other", "go"));
    return [...nested, called.text];
  };
  const r = await run(agent, "x", { calls: { other: "fine" }, maxAttempts: 1 });
  assert.deepEqual(r.data, ["try 2", "fine"]);
  assert.match(waits(r)[0] ?? "", /\/x#1\/pause#1 by tasks$/);
  assert.match(waits(r)[1] ?? "", /\/x#1\/pause#1\.2 by time$/);
});

void test("crashes around a pause", async () => {
  let tries = 0;
  const once = (task: Task) =>
    task.gather(() =>
      task.step(
        "x",
        () => {
          if (++tries % 2 === 1) {
            throw new Error("busy");
          }
        },
        { retries: 9, backoff: "1h" },
      ),
    );
  const r = await crashEverywhere(once, "x", {
    compare: (got) => [got.state, Object.keys(got.steps).includes("gather#1.1/x#1")],
  });
  assert.equal(r.state, "completed");
});

/** A clock that notes how long it was waited. */
class NotedClock implements Clock {
  readonly sleeps: number[] = [];
  readonly now = () => Date.UTC(2026, 0, 1);
  readonly sendLater = (seconds: number, send: () => void) => realClock.sendLater(seconds, send);
  readonly monotonic = () => realClock.monotonic();

  sleep(seconds: number): Promise<void> {
    this.sleeps.push(seconds);
    return Promise.resolve();
  }
}

const failure = (after: number) => ({
  ...{ key: "get#1", kind: "step", name: "get", attempts: 1, error: { type: "Error", message: "reset" } },
  nextAt: new Date(Date.UTC(2026, 0, 1) + after * 1000).toISOString(),
});

void test("a short pause continues after a crash", async () => {
  const clock = new NotedClock();
  const agent = (task: Task) => task.step("get", () => 1, { retries: 2, backoff: "8s" });
  const { ending, events } = await attempt(agent, { steps: [failure(3)] }, { clock });
  assert.deepEqual([ending.outcome, clock.sleeps, events[0]?.step?.attempts], ["finished", [3], 2]);
});

void test("a pause takes at most an hour, also if the clock was set back", async () => {
  const clock = new NotedClock();
  const agent = (task: Task) => task.step("get", () => 1, { retries: 2 });
  const { events } = await attempt(agent, { steps: [failure(90_000)] }, { clock });
  assert.deepEqual(events[0]?.wait, { key: "get#1/pause#1", for: "3600.000s", input: {} });
});

void test("a pause that is over is not waited for again", async () => {
  const steps = [failure(3600), { key: "get#1/pause#1", kind: "wait", endedAt: "x", result: { by: "time" } }];
  const clock = new NotedClock();
  const run = { steps, messages: [said("m", "x")] };
  const { ending } = await attempt((t) => t.step("get", () => 1, { retries: 2 }), run, { clock });
  assert.deepEqual([ending.outcome, clock.sleeps], ["finished", []]);
});

void test("a time that is over when the function runs again", async () => {
  let runs = 0;
  const left = () => (2 - ++runs) * 7200 - 1; // such as the time until a moment that a step has recorded
  const sleeps = async (task: Task) => {
    await task.sleep(left());
    return "awake";
  };
  const r = await run(sleeps, "x");
  assert.deepEqual([r.text, runs], ["awake", 2]);
});

void test("negative durations count as now", async () => {
  const over = async (task: Task) => {
    await task.sleep(-1);
    await assert.rejects(task.signal("go", { timeout: -1 }), TimeoutError);
    await assert.rejects(task.ask("?", { timeout: -1 }), TimeoutError);
    await assert.rejects(task.authRequired("?", { timeout: -1 }), TimeoutError);
    await assert.rejects(task.step("a", never, { timeout: -1 }), { type: "TimeoutError" });
    return "done";
  };
  assert.equal((await run(over, "x")).text, "done");
  assert.equal(new Retry("busy", { after: -1 }).after, 0);
  assert.equal(new Retry("busy", { after: Number.NaN }).after, undefined);
});
