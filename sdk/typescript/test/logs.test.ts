// What the log says about errors of an agent.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Retry, StepError, type Task } from "../src/index.js";
import { lineLogger } from "../src/log.js";
import { run } from "../src/testing.js";
import { attempt, lineOf, Log } from "./kit.js";

const parse = (text: string): unknown => JSON.parse(text); // throws here

void test("an error is logged with its place", async () => {
  const failed = "failed: SyntaxError: ";
  const handled = async (task: Task) => {
    await task
      .step("parse", () => parse("{"), { retries: 1, backoff: 0 })
      .catch((err: unknown) => {
        assert.ok(err instanceof StepError);
      });
  };
  const agents: [agent: (task: Task) => unknown, starts: string[]][] = [
    [(task) => task.step("parse", () => parse("{")), [`step parse ${failed}`]],
    [handled, [`step parse failed (try 1 of 2): SyntaxError: `, `step parse failed (try 2 of 2): SyntaxError: `]],
    [() => parse("{"), [`attempt ${failed}`]],
  ];
  for (const [agent, starts] of agents) {
    const { log } = await attempt(agent);
    assert.equal(log.problems.length, starts.length, log.problems.join("\n"));
    for (const [i, { msg, err }] of log.lines.filter((l) => l.level !== "info").entries()) {
      assert.ok(msg.startsWith(starts[i] ?? "?"), msg);
      assert.ok(msg.endsWith(` (${lineOf(import.meta.url, "JSON.parse(text)")})`), msg);
      assert.doesNotMatch(String(err), /build\/src/); // not one of the library's frames
    }
  }
});

void test("a timeout has no place", async () => {
  const { log } = await attempt((t) => t.step("wait", () => new Promise(() => undefined), { timeout: 0.001 }));
  assert.deepEqual(log.problems, ["step wait failed: it took longer than 0.001 s"]);
});

void test("a mistake is one line, and its stack is for debugging", async () => {
  const { log } = await attempt((t) => t.sleep("tomorrow"));
  assert.equal(log.problems.length, 1);
  assert.match(log.problems[0] ?? "", /^mistake in the program: .*\.js:\d+: duration must be/);
  const [debug] = log.lines.filter((l) => l.level === "debug");
  assert.match(String(debug?.err), /^UsageError: /);
  assert.deepEqual([debug?.task_id, debug?.agent, debug?.attempt], ["t", "", 1]);
});

void test("recorded steps that are not used are logged", async () => {
  let tries = 0;
  const fails = () => {
    if (++tries === 1) {
      throw new Error("the first time");
    }
  };
  const leavesOut = async (task: Task) => {
    if (task.attempt === 1) {
      await task.step("left out", () => 1);
      await task.gather(() => task.call("other", "x"));
      await task.step("retried", fails, { retries: 1, backoff: 60 });
      throw new Retry("again");
    }
    await task.step("added", () => 1);
    return "done";
  };
  const logger = new Log();
  assert.equal((await run(leavesOut, "x", { calls: { other: "y" }, logger })).text, "done");
  assert.deepEqual(
    logger.problems.filter((msg) => msg.includes("without")),
    [
      "the function ended without these recorded steps: left out#1, gather#1.1/call:other#1, retried#1; " +
        "take the same path each time",
    ],
  );
  const ended = { endedAt: "x" };
  const steps = [
    { key: "m1/of another message#1", kind: "step", name: "of another message", ...ended },
    { key: "a#1", kind: "step", name: "a", ...ended },
    { key: "a#1/pause#1", kind: "wait", ...ended },
    { key: "postponed", kind: "step", name: "postponed", attempts: 1 },
  ];
  const same = await attempt((task) => task.step("a", () => 1), { steps });
  assert.deepEqual(same.log.problems, []);
});

void test("log lines as text and JSON", () => {
  const lines: string[] = [];
  const write = (line: string) => lines.push(line);
  lineLogger(write).info("run ended: lost", { task_id: "t", epoch: 3, reason: undefined });
  assert.match(lines.join(""), /^\d{4}-.*Z INFO run ended: lost task_id=t epoch=3\n$/);
  lines.length = 0;
  lineLogger(write).error("attempt failed", { task_id: "t", err: "Error: no\n    at x" });
  assert.match(lines.join(""), /Z ERROR attempt failed task_id=t\nError: no\n {4}at x\n$/);
  lines.length = 0;
  const json = lineLogger(write, true, 2);
  json.info("run ended", { task_id: "t" }); // below the least level
  json.error("attempt failed", { task_id: "t", err: "Error: no" });
  const { time, ...rest } = JSON.parse(lines.join("")) as Record<string, string>;
  assert.deepEqual(rest, { level: "ERROR", msg: "attempt failed", task_id: "t", err: "Error: no" });
  assert.ok(Date.parse(time ?? "") > 0);
});
