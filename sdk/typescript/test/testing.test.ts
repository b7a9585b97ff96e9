// The test kit: what it compares, what it refuses, and what it says.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

import { z } from "zod";

import { Message, type AskOptions, type Json, type Schema, type Task } from "../src/index.js";
import { crashEverywhere, Difference, run, Stuck, WrongAnswer, type Said } from "../src/testing.js";
import { any, Gate, lineOf } from "./kit.js";

void test("the order between branches of gather does not matter", async () => {
  let runs = 0;
  const both = async (task: Task) => {
    const first = new Gate();
    const branch = (begins: boolean) => async () => {
      await task.step("a", async () => {
        if (!begins) {
          await first.opened;
          await turn();
        }
        first.open();
      });
      await task.step("b", () => 1);
    };
    const begins = runs++ % 2 === 0;
    await task.gather(branch(begins), branch(!begins));
  };
  assert.equal(Object.keys((await crashEverywhere(both, "x")).steps).length, 4);
});

/** Returns an agent that does something else each time. */
function counting() {
  let runs = 0;
  return async (task: Task) => {
    runs++;
    await task.step("a", () => 1);
    await task.write("some text");
    await task.step(`b${runs}`, () => 1);
    return `run ${runs}`;
  };
}

void test("a difference is shown with its request", async () => {
  const err: unknown = await crashEverywhere(counting(), "x").catch((e: unknown) => e);
  assert.ok(err instanceof Difference);
  assert.deepEqual(err.message.split("\n"), [
    "a crash before the server stored request 1 changed the outcome.",
    "The request: recording step 'a#1'",
    "  text",
    '    without the crash: "run 1"',
    '    with the crash:    "run 3"',
    "  steps",
    '    without the crash: ["b1#1"]',
    '    with the crash:    ["b3#1"]',
    "Likely cause: code outside steps ran again and did something else than before.",
    "Read the time, random numbers, files and other services inside a step.",
  ]);
});

void test("a difference of what the test compares", async () => {
  const compared = crashEverywhere(counting(), "x", { compare: (r) => Number(r.text.slice(4)) });
  await assert.rejects(compared, /without the crash: 1\n {2}with the crash: {4}3/);
});

const waits = async (task: Task) => {
  await task.ask("one?");
  await task.ask("two?");
  await task.signal("paid");
  await task.gather(() => task.call("reviewer", "x"));
};

const stuck: [options: object, code: string, text: string][] = [
  [{}, 'task.ask("one?")', "the agent asks 'one?' (question 1): pass its answer in answers: […]"],
  [{ answers: ["a"] }, 'task.ask("two?")', "the agent asks 'two?' (question 2): pass its answer in answers: […]"],
  [
    { answers: ["a", "b"] },
    'task.signal("paid")',
    "the agent waits for the signal 'paid': pass signals: { 'paid': … }",
  ],
  [
    { answers: ["a", "b"], signals: { paid: 1 } },
    "task.gather(() => task.call(",
    "the agent calls 'reviewer': pass calls: { 'reviewer': … } with its answer",
  ],
];

void test("a task that is stuck says what to add", async () => {
  for (const play of [run, crashEverywhere]) {
    for (const [options, code, text] of stuck) {
      const err: unknown = await play(waits, "x", options).catch((e: unknown) => e);
      assert.ok(err instanceof Stuck, String(err));
      assert.equal(err.message, `${lineOf(import.meta.url, code)}: ${text}`);
    }
  }
});

const Stop = z.strictObject({
  city: z.string(),
  nights: z.int().min(1),
  kind: z.enum(["train", "bus"]).default("train"),
});
const Trip = z.strictObject({ stops: z.array(Stop).min(1).max(2), note: z.string().nullish() });
const lyon = { city: "Lyon", nights: 2 };
const ref = { $defs: { "a/b": { const: 1 } }, items: { $ref: "#/$defs/a~1b" } };

type Expects = AskOptions & { schema?: object; returns?: Schema };

const refused: [expects: Expects, answer: Said, text: string][] = [
  [{ choices: ["yes", "no"] }, "maybe", "the question expects one of 'yes', 'no'"],
  [{ choices: ["yes", "no"] }, { a: 1 }, "the question expects one of 'yes', 'no'"],
  [{ schema: { type: "integer" } }, "7", "the question expects data, such as answers: [{…}]"],
  [{ schema: { type: "integer" } }, [7], "the answer must be of the type integer, not [7]"],
  [{ schema: ref }, [1, true], "the answer[1] must be 1, not true"],
  [{ schema: { patternProperties: { "^n": { type: "null" } } } }, { n1: 0 }, "the answer.n1 must"],
  [{ schema: { prefixItems: [{}, { pattern: "^a" }] } }, ["b", "b"], "the answer[1] does not fit"],
  [{ schema: { allOf: [{ type: "object" }, { maxProperties: 0 }] } }, { a: 1 }, "maxProperties 0"],
  [{ returns: Trip }, "Rome", "the question expects data"],
  [{ returns: Trip }, {}, "the answer needs 'stops'"],
  [{ returns: Trip }, { stops: [] }, "the answer.stops does not fit minItems 1: []"],
  [{ returns: Trip }, { stops: [lyon], day: 1 }, "the answer.day is not allowed"],
  [{ returns: Trip }, { stops: [{ city: 5, nights: 1 }] }, "the answer.stops[0].city must be of"],
  [{ returns: Trip }, { stops: [{ ...lyon, nights: 0 }] }, "nights does not fit minimum 1: 0"],
  [{ returns: Trip }, { stops: [{ ...lyon, kind: "car" }] }, "must be 'train' or 'bus', not 'car'"],
  [{ returns: Trip }, { stops: [lyon], note: 5 }, "must be of the type string"],
];

void test("an answer that the server refuses", async () => {
  for (const [expects, answer, text] of refused) {
    const asks = (task: Task) => task.ask("Where?", any(expects));
    const err: unknown = await run(asks, "x", { answers: [answer] }).catch((e: unknown) => e);
    assert.ok(err instanceof WrongAnswer, `${text}: ${String(err)}`);
    assert.ok(err.message.includes(text), err.message);
    const shown = typeof answer === "string" ? `'${answer}'` : JSON.stringify(answer);
    const line = lineOf(import.meta.url, 'task.ask("Where?"');
    assert.ok(err.message.startsWith(`${line}: the server refuses the answer ${shown} to 'Where?': `), err.message);
  }
});

const accepted: [expects: Expects, answer: Said][] = [
  [{}, "anything"],
  [{}, { a: 1 }],
  [{ choices: ["yes", "no"] }, " yes "],
  [{ schema: { type: ["integer", "null"] } }, Message.of({ data: 2 })],
  [{ schema: { oneOf: [{ format: "date" }, { format: "time" }], minimum: 7 } }, { a: 1 } satisfies Json],
  [{ schema: ref }, [1, 1]],
  [{ returns: Trip }, { stops: [lyon, lyon], note: null }],
];

void test("an answer that the server accepts", async () => {
  for (const [expects, answer] of accepted) {
    const r = await run((task) => task.ask("Where?", any(expects)), "x", { answers: [answer] });
    assert.equal(r.state, "completed");
  }
});

void test("a choice is the text that the server compares", async () => {
  const asks = (task: Task) => task.ask("Where?", { choices: ["New York", "New\nYork"] });
  for (const [texts, choice] of [
    [[" New", "York\n"], "New York"],
    [["New\nYork"], "New\nYork"],
  ] as const) {
    const answer = Message.of(...texts.map((text) => ({ text })));
    assert.equal((await run(asks, "x", { answers: [answer] })).text, choice);
  }
});

void test("the kit refuses what it cannot use", async () => {
  await assert.rejects(run(any(7), "x"), /testing\.test\.js:\d+: the agent must be a function, not number/);
  await assert.rejects(
    run(() => 1, "x", any({ answer: [] })),
    /run takes no 'answer'; did you mean answers\?/,
  );
  await assert.rejects(
    crashEverywhere((task) => task.sleep("tomorrow"), "x"),
    /testing\.test\.js:\d+: duration must/,
  );
});

void test("the input of a step may be larger than a number", async () => {
  const asks = async (task: Task) => {
    await task.step("a", () => 1, { input: [2n ** 64n, -(2n ** 53n) - 1n, 2 ** 60, "12345678901234567890"] });
    await task.sleep(1);
  };
  await crashEverywhere(asks, "x");
});
