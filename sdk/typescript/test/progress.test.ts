// Calls that are still in progress when a function ends: no work is lost, and nothing is done twice.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

import { Fail, type Task } from "../src/index.js";
import { execute } from "../src/agent.js";
import { Session } from "../src/session.js";
import { run } from "../src/testing.js";
import { decodeRun } from "../src/wire.js";
import { attempt, Gate, lineOf, Log, never, said, type Attempted } from "./kit.js";

const keys = ({ events }: Attempted) => events.flatMap((e) => e.step?.key ?? []);

/** Does work that takes until the function has ended. */
const slow = async () => {
  for (let i = 0; i < 5; i++) {
    await turn();
  }
  return "r-17";
};

const thrown = (err: Error) => turn().then(() => Promise.reject(err));

void test("a function that returns before its call ends has made a mistake", async () => {
  const agents: ((task: Task) => unknown)[] = [
    (t) => Promise.race([t.step("pay", slow), turn()]),
    (t) => void t.step("pay", slow).catch(() => undefined),
    (t) => void t.gather(() => t.step("pay", slow)).catch(() => undefined),
  ];
  for (const agent of agents) {
    const ended = await attempt(agent);
    assert.equal(ended.ending.outcome, "postponed", agent.toString());
    assert.match(ended.ending.error?.message ?? "", /the function has ended, but this call is still in progress/);
    assert.deepEqual([ended.events[0]?.step?.result, keys(ended).at(-1)], ["r-17", "postponed"]);
  }
});

void test("a call in progress is named by its line", async () => {
  const { ending } = await attempt((t) => void t.step("mail", slow).catch(() => undefined));
  assert.equal(ending.error?.where, lineOf(import.meta.url, 't.step("mail", slow)'));
});

void test("a function that throws waits for the record of its step", async () => {
  let paid = 0;
  const pays = () => {
    paid++;
    return slow();
  };
  const agent = (task: Task) => Promise.race([task.step("pay", pays), thrown(new Error("too slow"))]);
  const first = await attempt(agent);
  assert.deepEqual([first.ending.outcome, first.ending.reason], ["retry", "Error: too slow"]);
  assert.deepEqual([keys(first), first.events[0]?.step?.result], [["pay#1"], "r-17"]);
  assert.match(first.log.problems[0] ?? "", /progress\.test\.js:\d+: the function has ended, but this call/);

  paid = 0;
  const r = await run(agent, "x", { maxAttempts: 3 });
  assert.deepEqual([r.state, r.text, paid], ["completed", "r-17", 1]);
});

void test("a task that fails keeps the record of its step", async () => {
  const ended = await attempt((t) => Promise.race([t.step("pay", slow), thrown(new Fail("too slow"))]));
  assert.deepEqual([ended.ending.outcome, keys(ended)], ["finished", ["pay#1"]]);
  assert.equal(ended.events.at(-1)?.statusUpdate?.status.state, "TASK_STATE_FAILED");
});

void test("branches that are left begin no other step", async () => {
  const agent = (task: Task) => {
    const branch = async () => {
      await task.step("pay", slow);
      await task.step("mail", () => assert.fail());
    };
    return Promise.race([task.gather(branch), thrown(new Error("too slow"))]);
  };
  const ended = await attempt(agent);
  assert.deepEqual([ended.ending.reason, keys(ended)], ["Error: too slow", ["gather#1.1/pay#1"]]);
});

void test("a path that differs waits for the record of a step", async () => {
  const steps = [{ key: "gather#1.2/a#1", kind: "call", name: "b" }];
  const agent = (task: Task) =>
    Promise.race([
      task.gather(
        () => task.step("pay", slow),
        () => task.step("a", slow),
      ),
      thrown(new Error("other")),
    ]);
  const ended = await attempt(agent, { steps });
  assert.match(ended.ending.reason ?? "", /nondeterminism/);
  assert.deepEqual(keys(ended), ["gather#1.1/pay#1"]);
});

void test("a run that ends does not wait for a step", async () => {
  const run = decodeRun({ taskId: "t", epoch: 1, messages: [said("m", "x")] }, 0);
  const session = new Session(run, { report: () => Promise.resolve(false) });
  const hangs = (task: Task) => {
    void slow().then(() => {
      session.cancel();
    });
    return Promise.race([task.step("hangs", never), thrown(new Error("too slow"))]);
  };
  const ending = await execute({ name: "a", run: hangs, concurrency: 1, replay: true, where: "" }, session);
  assert.equal(ending.outcome, "canceled");
});

void test("a branch that ends before its call has made a mistake", async () => {
  const branches: ((task: Task) => unknown)[] = [
    (t) => Promise.race([t.step("pay", slow), turn()]),
    (t) => Promise.race([t.gather(() => t.step("pay", slow)), turn()]),
  ];
  for (const branch of branches) {
    const agent = (task: Task) =>
      task.gather(
        () => branch(task),
        () => task.step("other", slow),
      );
    const ended = await attempt(agent);
    assert.equal(ended.ending.outcome, "postponed", branch.toString());
    assert.match(ended.ending.error?.message ?? "", /the branch has ended, but this call is still in progress/);
    assert.deepEqual(
      ended.events.flatMap((e) => e.step?.result ?? []),
      ["r-17", "r-17"],
    );
  }
});

void test("the error of a branch counts more than a call that it has left", async () => {
  const ended = await attempt((t) =>
    t.gather(() => Promise.race([t.step("pay", slow), thrown(new Fail("no money"))])),
  );
  assert.deepEqual([ended.ending.outcome, keys(ended)], ["finished", ["gather#1.1/pay#1"]]);
  assert.equal(ended.events.at(-1)?.statusUpdate?.status.message?.parts[0]?.text, "no money");
});

for (const backoff of [5, 60]) {
  void test(`a task that ends does not wait for another try after ${backoff} s`, async () => {
    let tries = 0;
    const pays = async (task: Task) => {
      const pay = async () => {
        tries++;
        await slow();
        throw new Error("reset");
      };
      await Promise.race([task.step("pay", pay, { retries: 3, backoff }), thrown(new Fail("no money"))]);
    };
    const r = await run(pays, "x");
    assert.deepEqual([r.state, r.text, r.attempts, tries], ["failed", "no money", 1, 1]);
  });
}

void test("a function that has ended begins no other work", async () => {
  let mailed = 0;
  const pays = async (task: Task) => {
    const paid = new Gate();
    const own = async () => {
      await task.step("pay", () => "r-17");
      paid.open();
      await turn(); // while the end is sent
      await task.status("paid");
      await task.step("mail", () => mailed++);
    };
    void own();
    await paid.opened;
    throw new Fail("no money");
  };
  const log = new Log();
  const reported: string[] = [];
  const report = async (_: unknown, events: readonly string[]) => {
    reported.push(...events);
    await slow();
    return false;
  };
  const session = new Session(decodeRun({ taskId: "t", epoch: 1, messages: [said("m", "x")] }, 0), { report }, { logger: log });
  const ending = await execute({ name: "a", run: pays, concurrency: 1, replay: true, where: "" }, session);
  assert.deepEqual([ending.outcome, mailed], ["finished", 0]);
  assert.match(reported.at(-1) ?? "", /TASK_STATE_FAILED/);
  assert.match(log.problems[0] ?? "", /progress\.test\.js:\d+ came after the function had ended/);
});

void test("a call after the function has ended is logged", async () => {
  const { ending, log } = await attempt((task) => {
    const helper = async () => {
      await slow();
      await task.status("late");
    };
    void helper();
  });
  assert.equal(ending.outcome, "finished");
  await slow();
  const line = lineOf(import.meta.url, 'task.status("late")');
  assert.deepEqual(log.problems, [`the call at ${line} came after the function had ended: await what it begins`]);
});

void test("a wait that is left in progress is the end of its run", async () => {
  let runs = 0;
  const sleeps = async (task: Task) => {
    runs++;
    await Promise.race([task.sleep("1h"), turn()]);
    return "done";
  };
  const r = await run(sleeps, "x");
  assert.deepEqual([r.text, runs, r.elapsed], ["done", 2, 3600]);
});
