// What a mistake in the program does to its task: it waits, and no work is lost.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

import { StepError, UsageError, type Task } from "../src/index.js";
import { attempt, Gate, lineOf } from "./kit.js";

/** Catches everything, as an agent must not. */
const suppressed = (call: Promise<unknown>) => call.catch(() => undefined);

void test("a mistake lets the task wait, and sends nothing of the call", async () => {
  const wrong = (task: Task) => task.sleep("tomorrow");
  const { ending, events } = await attempt(wrong);
  assert.equal(ending.outcome, "postponed");
  const [step, wait] = events;
  const line = lineOf(import.meta.url, 'task.sleep("tomorrow")');
  const message = `${line}: duration must be a duration such as "90s", "24h" or "7d", not 'tomorrow'`;
  assert.deepEqual(step?.step?.error, { type: "UsageError", message });
  assert.deepEqual([step.step.key, step.step.name, step.step.attempts], ["postponed", "postponed", 1]);
  assert.match(step.step.nextAt ?? "", /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
  assert.deepEqual(wait, { wait: { key: "postponed/pause#1", for: "5.000s" } });
});

void test("each wait is twice as long, up to five minutes", async () => {
  for (const [before, pause] of [
    [1, "10.000s"],
    [5, "160.000s"],
    [6, "300.000s"],
    [2000, "300.000s"],
  ] as const) {
    const steps = [{ key: "postponed", kind: "step", name: "postponed", attempts: before }];
    const { events } = await attempt((t) => t.sleep("tomorrow"), { steps });
    assert.deepEqual(events.at(-1)?.wait, { key: `postponed/pause#${before + 1}`, for: pause });
  }
});

void test("a mistake that is caught is not forgotten", async () => {
  const catches = async (task: Task) => {
    await suppressed(task.sleep("tomorrow"));
    await suppressed(task.step("pay", () => assert.fail()));
    return "done";
  };
  const { ending, events } = await attempt(catches);
  assert.equal(ending.outcome, "postponed");
  assert.match(ending.error?.message ?? "", /duration must be/);
  assert.deepEqual(
    events.map((e) => e.step?.key),
    ["postponed", undefined],
  );
});

void test("a mistake that is wrapped in another error is not forgotten", async () => {
  const wraps = async (task: Task) => {
    try {
      await Promise.any([task.sleep("tomorrow")]);
    } catch (err) {
      assert.ok(err instanceof AggregateError);
      throw new RangeError("a tool failed", { cause: err });
    }
  };
  assert.equal((await attempt(wraps)).ending.outcome, "postponed");
});

void test("what was done before a mistake is recorded", async () => {
  const works = async (task: Task) => {
    await task.write("text");
    await task.step("pay", () => 1);
    await task.write("more");
    await task.sleep("tomorrow");
  };
  const { events } = await attempt(works);
  const keys = events.flatMap((e) => e.step?.key ?? e.wait?.key ?? []);
  assert.deepEqual(keys, [
    ...["write:answer#1", "write:answer#1", "pay#1", "write:answer#2", "postponed", "postponed/pause#1"],
  ]);
});

void test("work in other branches is recorded first", async () => {
  const pays = async (task: Task) => {
    const gate = new Gate();
    const pay = async () => {
      await gate.opened;
      await turn();
      return "r-17";
    };
    const wrong = async () => {
      await suppressed(task.sleep("1h"));
      gate.open();
    };
    await task.gather(() => task.step("pay", pay), wrong);
  };
  const { ending, events } = await attempt(pays);
  assert.equal(ending.outcome, "postponed");
  assert.deepEqual([events[0]?.step?.key, events[0]?.step?.result], ["gather#1.1/pay#1", "r-17"]);
});

void test("a step that the agent does not await any more is recorded first", async () => {
  const gate = new Gate();
  const races = async (task: Task) => {
    const pay = task.step("pay", async () => {
      await gate.opened;
      return "r-17";
    });
    setImmediate(() => {
      gate.open();
    });
    await Promise.race([pay, task.sleep("1h")]);
  };
  const { ending, events } = await attempt(races);
  assert.equal(ending.outcome, "postponed");
  assert.deepEqual([events[0]?.step?.key, events[0]?.step?.result], ["pay#1", "r-17"]);
});

void test("a failure that a wrong call handles is recorded", async () => {
  const handles = async (task: Task) => {
    try {
      await task.step("pay", () => Number.parseInt(String(assert.fail("x"))));
    } catch (err) {
      assert.ok(err instanceof StepError);
      await task.sleep("tomorrow");
    }
  };
  const { ending, events } = await attempt(handles);
  assert.equal(ending.outcome, "postponed");
  assert.deepEqual(
    events.flatMap((e) => e.step?.key ?? []),
    ["pay#1", "postponed"],
  );
});

void test("usage counts if a mistake follows", async () => {
  const uses = async (task: Task) => {
    const model = async () => {
      await task.usage({ model: "m", requests: 1 });
      throw new Error("reset");
    };
    await task.gather(
      () => task.step("model", model),
      () => task.sleep("tomorrow"),
    );
  };
  const { ending, events } = await attempt(uses);
  assert.equal(ending.outcome, "postponed");
  assert.deepEqual(
    events.filter((e) => e.usage !== undefined),
    [{ usage: { requests: 1, model: "m" } }],
  );
});

void test("an error of the agent that is a UsageError is a mistake with its place", async () => {
  const check = () => {
    throw new UsageError("not x");
  };
  const { ending, log } = await attempt(check);
  assert.equal(ending.outcome, "postponed");
  const line = lineOf(import.meta.url, 'throw new UsageError("not x")');
  assert.deepEqual(log.problems, [`mistake in the program: ${line}: not x`]);
});
