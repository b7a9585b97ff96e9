// A program that differs from the record: nothing recorded is returned for something else.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Refused, type Task } from "../src/index.js";
import { StoredTask, type Reported } from "../src/memory.js";
import { run } from "../src/testing.js";
import { attempt, lineOf, Log, said } from "./kit.js";

type Program = (task: Task) => unknown;

/** Runs a task whose program is changed while it sleeps. Returns its last text. */
async function changed(first: Program, then: Program): Promise<string> {
  let slept = false;
  const agent = async (task: Task) => {
    const result = await (slept ? then : first)(task);
    slept = true;
    await task.sleep(1);
    return String(result);
  };
  const answers = (question: string) => (question === "Book the trip?" ? "yes" : undefined);
  return (await run(agent, "x", { answers, calls: { b: (text) => text }, maxAttempts: 1 })).text;
}

const callThen = (question: string) => async (task: Task) => (await task.call("b", question)).text;

const waits: [first: Program, then: Program, key: string][] = [
  [(t) => t.ask("Book the trip?"), (t) => t.ask("Delete all data?"), "ask#1"],
  [(t) => t.ask("Book the trip?"), (t) => t.ask("Book the trip?", { choices: ["yes", "no"] }), "ask#1"],
  [(t) => t.ask("Book the trip?"), (t) => t.authRequired("Book the trip?"), "ask#1"],
  [callThen("check B"), callThen("check A"), "call:b#1"],
];

void test("an answer is not returned for another question", async () => {
  for (const [first, then, key] of waits) {
    const kind = key.startsWith("call") ? "call" : "wait";
    const got = await changed(first, then);
    assert.match(got, new RegExp(`step '${key}' is recorded as a ${kind} with the input hash [0-9a-f]{12}, but`));
    assert.match(got, new RegExp(`but the code now does a ${kind} with the input hash `));
    assert.match(await changed(first, first), /^(yes|check B)$/);
  }
});

class Client {
  constructor(readonly of: () => string) {}
}

const step =
  (input: unknown): Program =>
  (t) =>
    t.step("s", () => 1, { input });
const outputs: [first: Program, then: Program][] = [
  [(t) => t.status("one"), (t) => t.status("two")],
  [(t) => t.artifact("a").data([1]), (t) => t.artifact("a").data([2])],
  [(t) => t.artifact("a").data([1]), (t) => t.artifact("a").data([1], { append: true })],
  [(t) => t.artifact("a").replace("x".repeat(99_999)), (t) => t.artifact("a").replace("y")],
  [step(new Client(() => "A")), step(Client)],
  [step([new Client(() => "A"), 1]), step([new Client(() => "A"), 2])],
  [step(Buffer.from("one")), step(Buffer.from("two"))],
  [step("x".repeat(2_000_000)), step("y".repeat(2_000_000))],
  [step("\ud800"), step("x")],
  [step(new Map([[1, 3]])), step([3])],
  [(t) => t.step("s", () => 1, { args: [1, 2] }), step([1, 2])],
  [(t) => t.step("s", () => 1, { args: [1] }), (t) => t.step("s", () => 1)],
];

void test("what is recorded is not taken for something else", async () => {
  for (const [first, then] of outputs) {
    assert.match(await changed(first, then), /a step with the input hash/, first.toString());
    assert.doesNotMatch(await changed(first, first), /input hash/, first.toString());
  }
});

void test("a time that is computed anew is no change", async () => {
  let runs = 0;
  const agent = async (task: Task) => {
    runs++;
    await task.sleep(runs);
    await task.signal("paid", { timeout: runs });
    return await task.ask("Book the trip?", { timeout: runs });
  };
  assert.equal((await run(agent, "x", { answers: ["yes"], signals: { paid: 1 } })).text, "yes");
});

const answered = (key: string, messageId: string) => ({
  ...{ key, kind: "wait", endedAt: "x", result: { by: "message", messageId } },
});
const twoQuestions = async (task: Task) => [await task.ask("First?"), await task.ask("Second?")];

void test("messages with one id answer one question each", async () => {
  const messages = [said("m", "start"), said("m", "one"), said("m", "two")];
  const { events } = await attempt(twoQuestions, { messages, steps: [answered("ask#1", "m"), answered("ask#2", "m")] });
  assert.deepEqual(events.at(-1)?.statusUpdate?.status.message?.parts, [{ data: ["one", "two"] }]);
});

void test("another message is not taken for the answer", async () => {
  const messages = [said("1", "start"), said("2", "one"), said("3", "unrelated")];
  const steps = [answered("ask#1", "2"), answered("ask#2", "lost")];
  const { ending, events } = await attempt(twoQuestions, { messages, steps });
  assert.deepEqual([ending.outcome, events], ["retry", []]);
  assert.match(ending.reason ?? "", /no message 'lost'/);
});

void test("a changed program is named, with its line", async () => {
  // The start of the SHA-256 of {"args":["x"]}
  const recorded = "step 'a#1' is recorded as a step with the input hash c33c00ab0dc4";
  const changes: [then: Program, got: string][] = [
    [(t) => t.step("a", () => 1, { input: "xy" }), "but the code now does a step with the input hash 57119b8aa6b4"],
    [(t) => t.step("a", () => 1), "but the code now does a step with the input hash none"],
  ];
  for (const [then, got] of changes) {
    let runs = 0;
    const logger = new Log();
    const agent = async (task: Task) => {
      await (runs++ === 0 ? task.step("a", () => 1, { input: "x" }) : then(task));
      await task.sleep(1);
    };
    const r = await run(agent, "x", { maxAttempts: 2, logger });
    assert.equal(r.state, "failed");
    assert.match(r.text, /^nondeterminism: the arguments of step 'a#1' differ from the recorded ones; read changing/);
    assert.ok(r.text.includes(recorded) && r.text.includes(got), r.text);
    const line = lineOf(import.meta.url, then.toString().slice("(t) => ".length));
    assert.ok(logger.problems[0]?.startsWith(`nondeterminism: ${line}: `), logger.problems[0]);
  }
});

void test("another path is named", async () => {
  const path = "the code takes another path than the recorded one; take the same path each time";
  const kinds = await changed(
    (t) => t.step("sleep", () => 1),
    (t) => t.sleep(1),
  );
  assert.equal(kinds, `nondeterminism: ${path} (step 'sleep#1' is recorded as a step, but the code now does a wait)`);
  const names = await changed(
    (t) => t.step("write:answer", () => 1),
    (t) => t.write("x"),
  );
  assert.match(names, /is recorded as a step named 'write:answer', but the code now does a step named 'write'/);
});

void test("a program that differs goes no further, also if it catches the error", async () => {
  const steps = [{ key: "a#1", kind: "step", name: "a", inputSha: "other", endedAt: "x" }];
  const catches = async (task: Task) => {
    await task.step("a", () => 1).catch(() => undefined);
    await task.step("b", () => 1).catch(() => undefined);
  };
  const { ending, events } = await attempt(catches, { steps });
  assert.deepEqual([ending.outcome, events], ["retry", []]);
});

void test("the server in memory refuses another input", () => {
  const pairs: [first: Reported, then: Reported][] = [
    [
      { wait: { key: "k", input: { signal: "a" }, signal: "a" } },
      { wait: { key: "k", input: { signal: "b" }, signal: "b" } },
    ],
    [
      { call: { key: "k", agent: "b", message: { parts: [{ text: "one" }] } } },
      { call: { key: "k", agent: "b", message: { parts: [{ text: "two" }] } } },
    ],
  ];
  for (const [first, then] of pairs) {
    const task = new StoredTask();
    for (const event of [first, first]) {
      task.apply(event);
      task.wait = undefined;
    }
    assert.throws(() => {
      task.apply(then);
    }, Refused);
  }
});
