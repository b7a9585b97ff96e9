// What cannot work is refused in the process, with the line of the agent's code, before it reaches the server.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Message, Retry, UsageError, Worker, type Part, type Task } from "../src/index.js";
import { execute } from "../src/agent.js";
import { lineLogger, stderrLogger } from "../src/log.js";
import { Session } from "../src/session.js";
import { run } from "../src/testing.js";
import { noSpan } from "../src/tracing.js";
import type { Recorded, Run } from "../src/wire.js";
import { placeOf } from "./place.js";

/** Something that TypeScript would refuse too. JavaScript would not. */
const any = (value: unknown) => value as never;
const self: { self?: unknown } = {};
self.self = self;
const half = "\ud83d";

const mistakes: [(task: Task) => unknown, RegExp][] = [
  [(t) => t.step("a", () => Number.NaN), /the result of step "a" cannot be recorded as JSON: NaN/],
  [(t) => t.step("a", () => [() => 1]), /cannot be recorded as JSON: a function at \[0\]/],
  [(t) => t.step("a", () => ({ b: { c: new Map() } })), /cannot be recorded as JSON: a Map at b\.c/],
  [(t) => t.step("a", () => ({ b: Promise.resolve(1) })), /cannot be recorded as JSON: a Promise at b/],
  [(t) => t.step("a", () => 1n), /cannot be recorded as JSON: a bigint/],
  [(t) => t.step("a", () => self), /more than 56 levels, or an object that contains itself/],
  [(t) => t.step("a", () => half), /text with half a surrogate pair/],
  [(t) => t.step("a", () => "x".repeat(1 << 20)), /is 1048578 bytes of JSON; at most 1048576/],
  [(t) => t.step("", () => 1), /the name of a step must have 1 to 200 bytes/],
  [(t) => t.step("é".repeat(101), () => 1), /the name of a step must have 1 to 200 bytes, not 202/],
  [(t) => t.step("a\0", () => 1), /the name of a step must not contain a NUL/],
  [(t) => t.step("a", any(1)), /step takes a function, not number/],
  [(t) => t.step("a", () => 1, any({ retry: 1 })), /step has no option "retry"; it has input, retries/],
  [(t) => t.step("a", () => 1, { retries: 0.5 }), /retries must be a whole number from 0/],
  [(t) => t.step("a", () => 1, { returns: any({ type: "object" }) }), /returns takes a schema of zod/],
  [(t) => t.step("a", () => t.step("b", () => 1)), /step inside the step "a": a step can only write/],
  [(t) => t.step("a", () => t.sleep(1)), /sleep inside the step "a"/],
  [
    (t) =>
      t.step("a", async () => {
        await t.write("x");
        await t.artifact("b").write("y");
      }),
    /step "a" writes "answer" and "b"; a step writes one artifact/,
  ],
  [(t) => t.write(any(1)), /write takes a string, not number/],
  [(t) => t.write(half), /write has half a surrogate pair/],
  [(t) => t.status(""), /status must have 1 to/],
  [(t) => t.artifact(any(undefined)), /the name of an artifact takes a string, not undefined/],
  [(t) => t.artifact("a", { id: "" }), /the id of an artifact must have 1 to 200 bytes/],
  [(t) => t.artifact("a").data(undefined), /data takes a JSON value, not undefined/],
  [(t) => t.artifact("a").file(any("text")), /raw in artifact "a" must be a Uint8Array/],
  [(t) => t.artifact("a").file(new Uint8Array((768 << 10) + 1)), /a file of 786433 bytes; store it elsewhere/],
  [(t) => t.artifact("a").link(any(1)), /url in artifact "a" takes a string, not number/],
  [(t) => t.checkpoint(() => 1), /the checkpoint cannot be recorded as JSON/],
  [(t) => t.sleep("tomorrow"), /the duration of sleep must be seconds, or a text such as "90s", .* not "tomorrow"/],
  [(t) => t.sleep(-1), /the duration of sleep must be between 0 and ten years, not -1/],
  [(t) => t.sleep(any(undefined)), /the duration of sleep must be seconds/],
  [(t) => t.sleepUntil(new Date("nonsense")), /sleepUntil takes a Date between 1970 and 9999/],
  [(t) => t.sleepUntil(any("2026-12-24")), /sleepUntil takes a Date/],
  [(t) => t.signal("go", any({ for: 1 })), /signal has no option "for"/],
  [(t) => t.ask(""), /ask must have 1 to/],
  [(t) => t.ask("?", any({ choises: ["a"] })), /ask has no option "choises"; it has choices, schema/],
  [(t) => t.ask("?", { choices: [] }), /choices must be an array of 1 to 100 texts/],
  [(t) => t.ask("?", { choices: ["a "] }), /choices must not have spaces around them: "a "/],
  [(t) => t.ask("?", any({ choices: ["a"], schema: {} })), /ask takes one of choices, schema and returns/],
  [(t) => t.ask("?", { timeout: "soon" }), /timeout must be seconds/],
  [(t) => t.call("", "x"), /the name of an agent must have 1 to 200 bytes/],
  [(t) => t.call("b", any({ text: "x" })), /the message of call takes a text, a Message, or 1 to 100 parts/],
  [(t) => t.call("b", []), /the message of call takes a text, a Message, or 1 to 100 parts/],
  [(t) => t.call("b", [{ text: "x", data: 1 }]), /the message of call must have exactly one of text, data, raw and url/],
  [(t) => t.call("b", [{ text: "x" }, { txt: "y" } as Part]), /part 2 of the message of call has no option "txt"/],
  [(t) => t.gather(any(Promise.resolve())), /gather takes functions: .* argument 1 is none/],
  [(t) => t.gather(() => t.sleep(1)), /sleep inside gather: there can be steps and calls/],
  [(t) => t.usage({ inputTokens: 1.5 }), /inputTokens must be a whole number from 0, not 1\.5/],
  [(t) => t.usage(any({ tokens: 1 })), /usage has no option "tokens"/],
  [() => new Retry("busy", { after: -1 }), /after must be between 0 and 604800 seconds/],
  [() => Message.of({ text: any(1) }), /text in what the agent returned takes a string/],
  [() => new Map(), /what the agent returned cannot be recorded as JSON: a Map/],
];

/** Runs an agent once. Returns how the run ended, and the events that have reached the server. */
async function attempt(run: (task: Task) => unknown, steps: Recorded[] = []) {
  const sent: Record<string, unknown>[] = [];
  const report = (_: Run, events: readonly string[]) => {
    sent.push(...events.map((e) => JSON.parse(e) as Record<string, unknown>));
    return Promise.resolve(false);
  };
  const messages = [{ messageId: "m", parts: [{ text: "x" }] }];
  const names = { taskId: "t", contextId: "c", contextKey: "k", tenant: "", owner: "", agent: "a" };
  const session = new Session({ ...names, epoch: 1, attempt: 1, messages, steps, leaseSeconds: 30 }, { report }, true);
  const ending = await execute({ name: "a", run, concurrency: 1, replay: true }, session, lineLogger(() => 0), noSpan);
  return { ending, sent };
}

void test("mistakes are refused in the process, and the task waits for a corrected program", async () => {
  for (const [mistake, text] of mistakes) {
    const { ending, sent } = await attempt(async (task) => await mistake(task));
    assert.equal(ending.outcome, "postponed", text.source);
    assert.match(ending.reason ?? "", text);
    // Nothing of the mistake has reached the server. Before it, a step may have begun to write.
    const rest = sent.filter((e) => !JSON.stringify(e).includes('"answer"'));
    assert.deepEqual(rest.map((e) => Object.keys(e).join()), ["step", "wait"], text.source);
    assert.match(JSON.stringify(rest[0]), /"key":"postponed".*"error":\{"type":"UsageError"/);
    assert.deepEqual(rest[1], { wait: { key: "postponed/pause#1", for: "5s" } });
  }
});

void test("a task waits longer each time, and at most five minutes", async () => {
  const wrong = (task: Task) => task.sleep("tomorrow");
  const step = (attempts: number): Recorded => ({ seq: 1, kind: "step", key: "postponed", name: "postponed", attempts });
  const waits = async (n: number) => (await attempt(wrong, [step(n)])).sent.at(-1);
  assert.deepEqual(await waits(2), { wait: { key: "postponed/pause#3", for: "20s" } });
  assert.deepEqual(await waits(9), { wait: { key: "postponed/pause#10", for: "300s" } });
});

void test("an error names the line of the agent's code", async () => {
  const names = async (call: string, wrong: (task: Task) => unknown) => {
    const place = placeOf(import.meta.url, call);
    await assert.rejects(run(wrong, "x"), (err) => {
      assert.ok(err instanceof UsageError);
      assert.deepEqual([err.at, err.message.endsWith(` (at ${place})`)], [place, true], err.stack);
      return true;
    });
  };
  await names("sleep(\"now\")", (task) => task.sleep("now"));
  await names("await task.step(\"none\"", async (task) => {
    await task.step("none", () => Number.NaN); // is found after the function has returned
  });
});

void test("a step must be awaited", async () => {
  const slow = (task: Task) => task.step("slow", () => new Promise(() => undefined));
  const forgets = async (task: Task) => {
    void slow(task);
    await Promise.resolve();
    return "done";
  };
  await assert.rejects(run(forgets, "x"), /the agent's function returned while the step "slow" runs: await it/);
  const races = async (task: Task) => await Promise.race([slow(task), task.sleep("1h")]);
  await assert.rejects(run(races, "x"), /sleep while the step "slow" runs: await the step first, or use gather/);
});

void test("a step that is over writes no more", async () => {
  const late: unknown[] = [];
  const r = await run(async (task) => {
    let write: () => Promise<void> = () => Promise.resolve();
    await task.step("a", async () => {
      write = () => task.write("late");
      await task.write("in time");
      const { AsyncResource } = await import("node:async_hooks");
      write = AsyncResource.bind(write);
    });
    await write().catch((err: unknown) => late.push(String(err)));
  }, "x");
  assert.equal(r.artifacts.answer?.text, "in time");
  assert.match(String(late), /write after the end of the step "a"/);
});

void test("a worker refuses what it cannot use", () => {
  const refused = (make: () => unknown, text: RegExp) => {
    assert.throws(make, (err) => err instanceof UsageError && text.test(err.message));
  };
  refused(() => new Worker(any({ uri: "x" })), /Worker has no option "uri"; it has url, apiKey/);
  refused(() => new Worker({ url: "localhost" }), /the URL of the server is none: "localhost"/);
  refused(() => new Worker({ name: "a b" }), /the name of a worker has 1 to 128 ASCII characters/);
  refused(() => stderrLogger("yaml"), /A2AD_LOG_FORMAT must be text or json, not "yaml"/);
  refused(() => stderrLogger("json", "loud"), /A2AD_LOG_LEVEL must be debug, info, warn or error, not "loud"/);
  refused(() => new Worker({ grace: -1 }), /grace must be between 0 and 86400 seconds/);
  const worker = new Worker().agent("a", () => 1);
  refused(() => worker.agent("a", () => 1), /the agent "a" is registered twice/);
  refused(() => worker.agent("b", { concurrency: 0 }, () => 1), /concurrency must be a whole number from 1/);
  refused(() => worker.agent("b", any({})), /the agent "b" has no function/);
  refused(() => worker.agent("b", any({ parallel: 1 }), () => 1), /the agent "b" has no option "parallel"/);
});

void test("a worker without agents does not start", async () => {
  await assert.rejects(new Worker().serve(), /the worker has no agent/);
  const unhealthy = new Worker({ health: "8081" }).agent("a", () => 1);
  await assert.rejects(unhealthy.serve(), /health must be an address such as ":8081" or "127\.0\.0\.1:8081"/);
});
