// Wrong arguments: refused before anything is sent, with the line of the agent's code.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Fail, Message, Reject, Retry, UsageError, Worker, type Task } from "../src/index.js";
import { stderrLogger } from "../src/log.js";
import { run } from "../src/testing.js";
import { any, attempt, lineOf, Log } from "./kit.js";

const half = "\ud83d";
const big = "x".repeat((1 << 20) + 1);
const deep = (levels: number): unknown => (levels === 0 ? 1 : [deep(levels - 1)]);
const circular: unknown[] = [];
circular.push(circular);
const one = () => 1;
async function* tokens() {
  yield await Promise.resolve(1);
}

type Body = (task: Task) => unknown;

const mistakes: [body: Body, text: string][] = [
  [(t) => t.step("", one), "the name of a step must have 1 to 200 bytes"],
  [(t) => t.step("x".repeat(201), one), "the name of a step has 201 bytes; at most 200"],
  [(t) => t.step("ü".repeat(101), one), "the name of a step has 202 bytes; at most 200"],
  [(t) => t.step("a\0b", one), "the name of a step must have 1 to 200 bytes and no NUL"],
  [(t) => t.step(half, one), "the name of a step is not valid Unicode"],
  [(t) => t.step(any(7), one), "the name of a step must be a string, not number"],
  [(t) => t.step(any(one), any("a")), 'the name of a step comes first: step("work", work, …)'],
  [(t) => t.step("a", any("makePlan")), "the function of a step must be a function, not string"],
  [(t) => t.step("a", any(Promise.resolve())), "the function of a step must be a function, not Promise"],
  [(t) => t.step("a", any(tokens)), "the function of a step must be a function, not a generator function"],
  [(t) => t.gather(any(tokens)), "gather takes functions such as () => task.step(…), not a generator function"],
  [(t) => t.step("a", one, { retries: -1 }), "retries must be between 0 and 1000, not -1"],
  [(t) => t.step("a", one, { retries: 2.5 }), "retries must be a whole number, not 2.5"],
  [(t) => t.step("a", one, { retries: any(true) }), "retries must be a whole number, not true"],
  [(t) => t.step("a", one, { backoff: -1 }), "backoff must be between 0 and ten years, not -1"],
  [(t) => t.step("a", one, { backoff: "soon" }), "backoff must be a duration such as"],
  [(t) => t.step("a", one, { timeout: Number.NaN }), "timeout must be between 0 and ten years"],
  [(t) => t.step("a", one, any({ retry: 3 })), "step takes no 'retry'; did you mean retries?"],
  [(t) => t.step("a", one, any({ time_out: 3 })), "step takes no 'time_out'; did you mean timeout?"],
  [(t) => t.step("a", one, any(null)), "the options of step must be an object, not null"],
  [(t) => t.step("a", one, any(3)), "the options of step must be an object, not 3"],
  [(t) => t.step("a", one, { input: 1, args: [1] }), "step takes either input, which is one value, or args"],
  [(t) => t.step("a", one, { returns: any({ type: "object" }) }), "returns must be a schema of zod"],
  [(t) => t.sleep("tomorrow"), "duration must be a duration such as"],
  [(t) => t.sleep(""), "duration must be a duration such as"],
  [(t) => t.sleep(4e8), "duration must be between 0 and ten years, not 400000000"],
  [(t) => t.sleep(Number.NaN), "duration must be between 0 and ten years, not NaN"],
  [(t) => t.sleep(Infinity), "duration must be between 0 and ten years, not Infinity"],
  [(t) => t.sleep("99999d"), "duration must be between 0 and ten years"],
  [(t) => t.sleep(any(undefined)), "duration must be seconds or a string, not undefined"],
  [(t) => t.sleepUntil(any("2030-01-01")), "the time must be a Date, not string"],
  [(t) => t.sleepUntil(new Date("nonsense")), "the time must be between the years 1970 and 9998"],
  [(t) => t.sleepUntil(new Date(-1)), "the time must be between the years 1970 and 9998"],
  [(t) => t.signal(""), "the name of a signal must have 1 to 200 bytes"],
  [(t) => t.signal("go", { timeout: "1 hour" }), "timeout must be a duration such as"],
  [(t) => t.signal("go", any({ for: 1 })), "signal takes no 'for'"],
  [(t) => t.write(any(1)), "the text must be a string, not number"],
  [(t) => t.write(any(undefined)), "the text must be a string, not undefined"],
  [(t) => t.artifact("a").link(half), "part 1: the url is not valid Unicode"],
  [(t) => t.artifact("a").write(any(Buffer.from("b"))), "the text must be a string, not Buffer"],
  [(t) => t.artifact("a").data(new Map()), "part 1 cannot be recorded as JSON"],
  [(t) => t.artifact("a").data([Number.NaN]), "part 1 cannot be recorded as JSON"],
  [(t) => t.artifact("a").data(1, { append: any("yes") }), "append must be true or false, not 'yes'"],
  [(t) => t.artifact("a").file(any("text")), "part 1: a file must be a Uint8Array, not string"],
  [(t) => t.artifact("a").file(any(undefined)), "the content of an artifact must not be undefined or null"],
  [(t) => t.artifact("a").file(new Uint8Array((768 << 10) + 1)), "the file has 786433 bytes"],
  [(t) => t.artifact("a").data(big), "part 1 has 1048579 bytes; at most 1048576"],
  [
    (t) => t.call("a", [{ raw: new Uint8Array(768 << 10), metadata: { a: 1 } }]),
    "part 1 has 1048583 bytes; at most 1048576",
  ],
  [(t) => t.artifact("a").replace("\0".repeat(1 << 20)), "part 1 is 6291467 bytes of JSON"],
  [(t) => t.artifact("a").file(new Uint8Array(), { filename: any(1) }), "the filename must be a string, not number"],
  [(t) => t.artifact("a").file(new Uint8Array(), { mediaType: half }), "media type is not valid Unicode"],
  [(t) => t.artifact("a").file(new Uint8Array(), any({ mediatype: "" })), "'mediatype'; did you mean mediaType?"],
  [(t) => t.artifact("a").link(any(7)), "the url must be a string, not number"],
  [(t) => t.artifact("a").replace(any(7)), "the text must be a string, not number"],
  [(t) => t.artifact("a").replace(big), "the text has 1048577 bytes; at most 1048576"],
  [(t) => t.artifact(""), "the name of an artifact must have 1 to 200 bytes"],
  [(t) => t.artifact("a", { id: "a\0b" }), "the id of an artifact must have 1 to 200 bytes and no NUL"],
  [(t) => t.artifact("a", { id: any(null) }), "the id of an artifact must be a string, not null"],
  [(t) => t.status(big), "the status has 1048577 bytes"],
  [(t) => t.status(any({ a: 1 })), "the status must be a string, not Object"],
  [(t) => t.checkpoint(new Set()), "the checkpoint cannot be recorded as JSON"],
  [(t) => t.checkpoint(big), "the checkpoint is 1048579 bytes of JSON"],
  [(t) => t.ask(any(7)), "the question must be a string, not number"],
  [(t) => t.ask("?", { choices: [] }), "choices must have 1 to 100 items, not 0"],
  [(t) => t.ask("?", { choices: Array.from({ length: 101 }, String) }), "choices must have 1 to 100 items, not 101"],
  [(t) => t.ask("?", { choices: any("yes") }), "choices must be an array of strings, not 'yes'"],
  [(t) => t.ask("?", { choices: any([true, false]) }), "choices[0] must be a string, not boolean"],
  [(t) => t.ask("?", { choices: ["yes", " no"] }), "choices[1] must not be empty or have spaces"],
  [(t) => t.ask("?", { choices: ["yes", ""] }), "choices[1] must not be empty or have spaces"],
  [(t) => t.ask("?", any({ choices: ["a"], schema: {} })), "ask takes one of choices, schema and returns"],
  [(t) => t.ask("?", any({ choise: ["a"] })), "ask takes no 'choise'; did you mean choices?"],
  [(t) => t.ask("?", any(["a"])), "the options of ask must be an object, not Array"],
  [(t) => t.ask("?", { returns: any(7) }), "returns must be a schema of zod"],
  [(t) => t.ask("?", { timeout: 4e8 }), "timeout must be between 0 and ten years"],
  [(t) => t.ask("?", { schema: any("string") }), "schema must be a JSON Schema in an object, not 'string'"],
  [(t) => t.ask("?", { schema: { type: "text" } }), "schema.type must be one of array, boolean"],
  [(t) => t.ask("?", { schema: { type: "object", required: "a" } }), "must be a list of names"],
  [(t) => t.ask("?", { schema: { properties: { a: "string" } } }), "schema.properties.a must be a"],
  [(t) => t.ask("?", { schema: { properties: ["a"] } }), "schema.properties must be an object"],
  [(t) => t.ask("?", { schema: { anyOf: [] } }), "schema.anyOf must be a list of schemas"],
  [(t) => t.ask("?", { schema: { items: [{ a: 1 }] } }), "schema.items must be a schema"],
  [(t) => t.ask("?", { schema: { enum: "ab" } }), "schema.enum must be a list"],
  [(t) => t.ask("?", { schema: { minLength: -1 } }), "schema.minLength must be a whole number"],
  [(t) => t.ask("?", { schema: { maximum: "9" } }), "schema.maximum must be a number"],
  [(t) => t.ask("?", { schema: { uniqueItems: 1 } }), "schema.uniqueItems must be true or false"],
  [(t) => t.ask("?", { schema: { pattern: "(" } }), "schema.pattern is not a regular expression"],
  [(t) => t.ask("?", { schema: { pattern: "(?!a)" } }), "schema.pattern has \\Z, a look-around or"],
  [(t) => t.ask("?", { schema: { pattern: "a\\Z" } }), "schema.pattern has \\Z, a look-around or"],
  [(t) => t.ask("?", { schema: { required: ["a", "a"] } }), "schema.required must be a list of"],
  [(t) => t.ask("?", { schema: { type: ["null", "null"] } }), "schema.type must be one of array"],
  [(t) => t.ask("?", { schema: { $schema: "http://x" } }), "schema.$schema must be a version of"],
  [(t) => t.ask("?", { schema: { $ref: "https://example.com/a" } }), "refers to another document"],
  [(t) => t.ask("?", { schema: { $ref: "#/$defs/A" } }), "which is not in the schema"],
  [(t) => t.ask("?", { schema: { const: Number.NaN } }), "the question cannot be recorded as JSON"],
  [(t) => t.authRequired(any(undefined)), "the question must be a string, not undefined"],
  [(t) => t.call("", "x"), "the name of an agent must have 1 to 64 letters"],
  [(t) => t.call("re viewer", "x"), "the name of an agent must have 1 to 64 letters"],
  [(t) => t.call("a", any(null)), "the message must be a string, a Message or an array of parts"],
  [(t) => t.call("a", any({ text: "x" })), "the message must be a string, a Message or an array of parts"],
  [(t) => t.call("a", []), "a message must have 1 to 100 parts, not 0"],
  [
    (t) =>
      t.call(
        "a",
        Array.from({ length: 101 }, () => ({ text: "x" })),
      ),
    "1 to 100 parts, not 101",
  ],
  [(t) => t.call("a", any(["x"])), 'part 1 must be a part such as { text: "…" }, not string'],
  [(t) => t.call("a", [{ text: "x", url: "y" }]), "exactly one of text, data, raw and url"],
  [(t) => t.call("a", any([{ txt: "x" }])), "part 1 takes no 'txt'; did you mean text?"],
  [(t) => t.call("a", [{ text: "x", metadata: any([]) }]), "metadata must be an object, not Array"],
  [
    (t) =>
      t.call(
        "a",
        Array.from({ length: 7 }, () => ({ text: "x".repeat(1 << 19) })),
      ),
    "at most 3145728 can be sent",
  ],
  [(t) => t.call("a", "x", { abandon: any("no") }), "abandon must be true or false, not 'no'"],
  [(t) => t.gather(() => t.sleep(1)), "gather can contain steps and calls, but no other waits"],
  [(t) => t.gather(() => t.ask("?")), "gather can contain steps and calls, but no other waits"],
  [(t) => t.gather(any(7)), "gather takes functions such as () => task.step(…), not number (argument 1)"],
  [(t) => t.gather(any(Promise.resolve())), "gather takes functions such as () => task.step(…), not Promise"],
  [(t) => t.usage({}), "usage needs a model or a number"],
  [(t) => t.usage({ inputTokens: -1 }), "inputTokens must be between 0 and"],
  [(t) => t.usage({ outputTokens: 1.5 }), "outputTokens must be a whole number, not 1.5"],
  [(t) => t.usage({ model: "x".repeat(201) }), "model has 201 bytes; at most 200"],
  [(t) => t.usage({ model: any(null) }), "model must be a string, not null"],
  [(t) => t.usage(any({ tokens: 1 })), "usage takes no 'tokens'"],
  [(t) => t.usage({ requests: 1_000_000_001 }), "requests must be between 0 and 1000000000"],
  [(t) => t.idempotencyKey(""), "the name must have 1 to 200 bytes"],
  [
    (t) => any<Record<"chekpoint", (n: number) => unknown>>(t).chekpoint(1),
    "Task has no 'chekpoint'; did you mean checkpoint?",
  ],
  [(t) => any<Record<"auth_required", (n: string) => unknown>>(t).auth_required("x"), "did you mean authRequired?"],
  [
    (t) => any<Record<"dta", (n: number) => unknown>>(t.artifact("a")).dta(1),
    "ArtifactWriter has no 'dta'; did you mean data?",
  ],
];

/** Returns the code of a function as it is in the compiled file. */
const codeOf = (body: Body) =>
  body
    .toString()
    .replace(/^\(t\) => /, "")
    .split("\n", 1)
    .join();

void test("a mistake names its line, and nothing of it is sent", async () => {
  for (const [body, text] of mistakes) {
    const { ending, events } = await attempt(async (task) => await body(task));
    assert.equal(ending.outcome, "postponed", `${body.toString()}: ${ending.reason ?? ""}`);
    const { message = "", where = "" } = ending.error ?? {};
    assert.ok(message.includes(text), `${text}: ${message}`);
    assert.equal(where, lineOf(import.meta.url, codeOf(body)), body.toString());
    assert.deepEqual(
      events.map((e) => e.step?.key ?? e.wait?.key),
      ["postponed", "postponed/pause#1"],
      text,
    );
  }
});

// These are found after the function of the step was called.
const lateMistakes: [body: Body, text: string][] = [
  [(t) => t.step("a", () => new Map()), "the result of step 'a' cannot be recorded as JSON: Map has no JSON form"],
  [(t) => t.step("a", () => Number.NaN), "cannot be recorded as JSON: NaN is not a JSON number; use null, for example"],
  [(t) => t.step("a", () => [{ b: Infinity }]), 'at [0]["b"], Infinity is not a JSON number'],
  [(t) => t.step("a", () => big), "the result of step 'a' is 1048579 bytes of JSON"],
  [(t) => t.step("a", () => "ü".repeat(1 << 19)), "is 1048578 bytes of JSON; at most 1048576"],
  [(t) => t.step("a", () => deep(57)), "is nested deeper than 56 levels, or contains itself"],
  [(t) => t.step("a", () => circular), "is nested deeper than 56 levels, or contains itself"],
  [(t) => t.step("a", () => new Response("x")), "Response has no JSON form"],
  [(t) => t.step("a", () => ({ b: new URLSearchParams("c=1") })), 'at ["b"], URLSearchParams has no JSON form'],
  [(t) => t.step("a", () => [1].values()), "has no JSON form"],
  [(t) => t.step("a", () => [() => 1]), "at [0], the function here has no JSON form"],
  [(t) => t.step("a", () => ({ b: Promise.resolve(1) })), 'at ["b"], Promise has no JSON form'],
  [(t) => t.step("a", () => 1n), "bigint has no JSON form"],
  [(t) => t.step("a", () => Buffer.from("x")), "Buffer has no JSON form"],
  [
    (t) => t.step("a", () => ({ toJSON: () => assert.fail("in the value") })),
    "cannot be recorded as JSON: in the value",
  ],
  [(t) => t.step("a", () => t.step("b", one)), "step inside the step 'a'"],
  [(t) => t.step("a", () => t.sleep(1)), "a wait inside the step 'a'"],
  [(t) => t.step("a", () => t.call("b", "x")), "a call inside the step 'a'"],
  [(t) => t.step("a", () => t.gather()), "gather inside the step 'a'"],
  [(t) => t.step("a", () => t.checkpoint(1)), "checkpoint inside the step 'a'"],
  [(t) => t.step("a", () => t.status("b")), "status inside the step 'a'"],
  [(t) => t.gather(() => t.step("a", () => Number.NaN)), "the result of step 'a' cannot be recorded"],
  [(t) => t.step("a", () => t.usage({ inputTokens: -1 })), "inputTokens must be between 0 and"],
];

void test("a mistake after the work fails the step, and is not repeated", async () => {
  for (const [body, text] of lateMistakes) {
    const logger = new Log();
    const r = await run(async (task) => await body(task), "x", { logger });
    assert.deepEqual([r.state, r.attempts], ["failed", 1], text);
    assert.ok(r.text.includes(text), `${text}: ${r.text}`);
    assert.ok(r.text.includes("is not done again, because its function was called"), r.text);
    assert.ok(!r.text.includes(".js"), r.text);
    const line = lineOf(import.meta.url, codeOf(body));
    assert.ok(logger.problems[0]?.startsWith(`mistake in the program: ${line}: `), logger.problems[0]);
  }
});

void test("a wrong result names where the agent was registered", async () => {
  for (const value of [new Map(), Number.NaN, big, Message.of(), Message.of({ text: any(1) })]) {
    const err: unknown = await run(() => value, "x").catch((e: unknown) => e);
    assert.ok(err instanceof UsageError);
    assert.equal(err.where, lineOf(import.meta.url, "run(() => value"));
  }
});

const others: [make: () => unknown, text: string][] = [
  [() => new Retry("", { after: 8 * 86_400 }), "after must be between 0 and 7 days"],
  [() => new Retry("", { after: Infinity }), "after must be between 0 and 7 days"],
  [() => new Retry("", { after: any("1m") }), "after must be a number of seconds"],
  [() => new Retry("", any(null)), "the options of Retry must be an object such as { after: 60 }, not null"],
  [() => new Retry("", any(60)), "the options of Retry must be an object such as { after: 60 }, not number"],
  [() => new Fail(any(7)), "the reason must be a string, not number"],
  [() => new Reject(any(null)), "the reason must be a string, not null"],
  [() => new Worker(any({ uri: "x" })), "Worker takes no 'uri'; did you mean url?"],
  [() => new Worker({ url: "127.0.0.1:8080" }), "url must be a URL such as http://127.0.0.1:8080"],
  [() => new Worker({ url: "http://:x" }), "url must be a URL such as http://127.0.0.1:8080"],
  [() => new Worker({ url: "http://me:s3cret@a2ad" }), "url must not contain a user name or password"],
  [() => new Worker({ url: "ftp://me:s3cret@a2ad:x" }), "url must not contain a user name or password"],
  [() => new Worker({ apiKey: "a b" }), "apiKey must be printable ASCII"],
  [() => new Worker({ name: "my worker" }), "name must be 1 to 128 printable ASCII"],
  [() => new Worker({ grace: -1 }), "grace must be between 0 and ten years"],
  [() => new Worker({ health: "8081" }), "health must be an address such as"],
  [() => new Worker({ health: ":http" }), "health must be an address such as"],
  [() => new Worker().agent("a b", one), "the name of an agent must have 1 to 64 letters"],
  [() => new Worker().agent("a", { concurrency: 0 }, one), "concurrency must be between 1 and 10000"],
  [() => new Worker().agent("a", any(7)), "the options of the agent 'a' must be an object, not 7"],
  [() => new Worker().agent("a", any({})), "the agent 'a' must be a function, not undefined"],
  [() => new Worker().agent("a", any(tokens)), "the agent 'a' must be a function, not a generator function"],
  [() => new Worker().agent("a", one).agent("a", one), "the agent 'a' is already registered"],
  [() => new Worker().agent("a", any({ parallel: 1 }), one), "the agent 'a' takes no 'parallel'"],
];

void test("other mistakes name their line", () => {
  for (const [make, text] of others) {
    assert.throws(make, (err) => {
      assert.ok(err instanceof UsageError && err.message.includes(text), `${text}: ${String(err)}`);
      const code = make.toString().replace(/^\(\) => /, "");
      assert.equal(err.where, lineOf(import.meta.url, code));
      return true;
    });
  }
});

void test("wrong settings are quoted", async () => {
  assert.throws(() => stderrLogger("xml"), /A2AD_LOG_FORMAT must be text or json, not 'xml'/);
  assert.throws(() => stderrLogger("json", "loud"), /A2AD_LOG_LEVEL must be debug, info, warn or error, not 'loud'/);
  await assert.rejects(new Worker().serve(), /the worker has no agent/);
});

void test("contents of exactly the largest size", async () => {
  const mib = 1 << 20;
  const sends = async (task: Task) => {
    const a = task.artifact("a");
    await a.file(new Uint8Array(768 << 10));
    await a.data("x".repeat(mib - 2));
    await a.replace('"'.repeat(mib));
    await task.status("ü".repeat(mib / 2));
    await task.call("b", [{ text: "x".repeat(mib) }, { text: "\n".repeat(1000) }]);
    await task.ask("x".repeat(mib), { choices: ["yes"] });
    return Message.of({ raw: new Uint8Array(768 << 10) });
  };
  assert.equal((await run(sends, "x", { answers: ["yes"], calls: { b: "fine" } })).state, "completed");
});

void test("what looks wrong and is not", async () => {
  const fine = async (task: Task) => {
    await task.write("x".repeat(3_000_000)); // more than an event may have
    await task.write("🚆".repeat(200_000)); // not cut in half
    await task.write("");
    await task.step("deep", () => deep(56));
    await task.step("texts", () => ["[".repeat(100), '"\\{'.repeat(100), "\0"]);
    await task.sleep(0);
    await task.sleepUntil(new Date("1990-01-01"));
    await task.artifact("a").data(null);
    await task.artifact("a").file(new Uint8Array(), { append: true });
    assert.deepEqual([any<Record<string, unknown>>(task).nodeType, "then" in task], [undefined, false]);
    assert.equal(await Promise.resolve(task), task);
    const schema = {
      $schema: "http://json-schema.org/draft-07/schema#",
      $defs: { "A/b": { type: "integer", pattern: "\\p{L}|\\z|\\\\Z|\\\\1" } },
      items: { $ref: "#/$defs/A~1b" },
    };
    return JSON.stringify(await task.ask("?", { schema }));
  };
  const r = await run(fine, "x", { answers: [[1, 2]] });
  assert.equal(r.text, "[1,2]");
  assert.equal(r.artifacts.answer?.text, "x".repeat(3_000_000) + "🚆".repeat(200_000));
});
