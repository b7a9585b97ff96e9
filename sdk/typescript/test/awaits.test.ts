// Calls without await: found wherever the agent uses them.
import assert from "node:assert/strict";
import { test } from "node:test";

import { UsageError, type Task } from "../src/index.js";
import { run } from "../src/testing.js";
import { any, lineOf } from "./kit.js";

async function mistake(agent: (task: Task) => unknown): Promise<UsageError> {
  const err: unknown = await run(agent, "x").catch((e: unknown) => e);
  assert.ok(err instanceof UsageError, String(err));
  return err;
}

void test("a forgotten await is found", async () => {
  const err = await mistake(async (task) => {
    await task.write("one ");
    void task.write("two ");
    await task.write("three");
    return "done";
  });
  assert.match(err.message, /write await before task\.write\(…\), which has done nothing yet/);
  assert.equal(err.where, lineOf(import.meta.url, 'task.write("two ")'));
});

// Each is what an agent does with the result of a step or question that it did not await.
const uses: ((result: unknown) => unknown)[] = [
  (r) => `result ${String(r)}`,
  (r) => (r ? "a" : "b"),
  (r) => (r === "yes" ? "a" : "b"),
  (r) => (r as { text: { length: number } }).text.length,
  (r) => [...(r as number[])],
  (r) => Number(r) + 1,
  (r) => JSON.stringify(r),
  (r) => ({ result: r }),
  () => {
    throw new RangeError("other");
  },
  () => undefined,
];

void test("a call without await is not a value", async () => {
  for (const use of uses) {
    const err = await mistake((task) => use(task.step("a", () => 1)));
    assert.match(err.message, /write await before task\.step\(…\)/, use.toString());
    assert.equal(err.where, lineOf(import.meta.url, 'use(task.step("a"'));
  }
});

const passed: [agent: (task: Task) => unknown, text: string][] = [
  [(t) => t.write(any(t.step("a", () => 1))), "before task.step(…)"],
  [(t) => t.step("b", () => 1, { input: t.step("a", () => 1) }), "before task.step(…)"],
  [(t) => t.step("b", () => 1, { args: [t.step("a", () => 1)] }), "before task.step(…)"],
  [(t) => t.step("b", any(t.call("a", "x"))), "before task.call(…)"],
  [(t) => t.gather(any([t.step("a", () => 1)])), "not Array (argument 1); write gather(...functions)"],
  [
    (t) => t.gather(any(t.step("a", () => 1))),
    "gather takes functions such as () => task.step(…), not a call (argument 1)",
  ],
  [(t) => void t.artifact("a").data(1), "before task.artifact(…).data(…)"],
  [(t) => void t.gather(() => t.step("a", () => 1)), "before task.gather(…)"],
];

void test("a call without await is not an argument", async () => {
  for (const [agent, text] of passed) {
    const err = await mistake(async (task) => {
      await agent(task);
    });
    assert.ok(err.message.includes(text), err.message);
  }
});

void test("a call without await in a step fails the step", async () => {
  for (const use of uses) {
    const r = await run(async (task) => {
      await task.step("a", () => any(use(task.write("lost"))));
    }, "x");
    assert.deepEqual([r.state, r.attempts], ["failed", 1]);
    assert.ok(r.text.includes("write await before task.write(…)"), r.text);
  }
});

void test("a call that is not awaited before its agent waits does nothing", async () => {
  const forgets = async (task: Task) => {
    void task.step("pay", () => assert.fail());
    await task.sleep("1h");
  };
  assert.match((await mistake(forgets)).message, /write await before task\.step\(…\)/);
});

void test("a call may be awaited twice, and later", async () => {
  const r = await run(async (task) => {
    const step = task.step("a", () => 1);
    await task.status("first");
    assert.equal(await step.finally(() => undefined), 1);
    return (await step) + (await Promise.all([step, step])).length;
  }, "x");
  assert.deepEqual([r.data, Object.keys(r.steps)], [3, ["status#1", "a#1"]]);
});
