// Calls at once: refused, unless they are the branches of a gather.
import assert from "node:assert/strict";
import { AsyncResource } from "node:async_hooks";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

import { StepError, UsageError, type Task } from "../src/index.js";
import { crashEverywhere, run } from "../src/testing.js";
import { attempt, Gate, lineOf, never } from "./kit.js";

/** Returns the mistake for which an agent is postponed. */
async function refused(agent: (task: Task) => unknown, text = "use task.gather"): Promise<UsageError> {
  const err: unknown = await run(agent, "x").catch((e: unknown) => e);
  assert.ok(err instanceof UsageError, String(err));
  assert.ok(err.message.includes(text), err.message);
  return err;
}

void test("a failure that is handled is recorded before what branches do", async () => {
  const agent = async (task: Task) => {
    const fails = async () => {
      await task.write("<!");
      throw new Error("x");
    };
    await assert.rejects(async () => await task.step("s", fails));
    await task.gather(() => task.step("g", () => task.write("[g]")));
    await task.step("t", () => 1);
  };
  for (const handler of [false, true]) {
    assert.equal((await crashEverywhere(agent, "x", { handler })).artifacts.answer?.text, "<![g]");
  }
});

void test("calls at once are refused", async () => {
  const err = await refused(async (task) => {
    const tool = () => task.step("fetch", turn); // one line
    await Promise.all([tool(), tool()]);
  });
  const line = lineOf(import.meta.url, 'task.step("fetch", turn)');
  assert.equal(err.where, line);
  assert.ok(err.message.includes(`the call at ${line} is still in progress`));
});

void test("calls at once in a branch are refused", async () => {
  await refused((task) =>
    task.gather(async () => {
      await Promise.all([task.step("a", turn), task.step("b", turn)]);
    }),
  );
});

void test("a call while gather is in progress is refused", async () => {
  const err = await refused(async (task) => {
    const work = task.gather(() => task.step("a", () => turn())).then();
    await Promise.resolve();
    await task.status("meanwhile");
    await work;
  });
  assert.equal(err.where, lineOf(import.meta.url, 'task.status("meanwhile")'));
});

void test("a call that an async function makes that is not awaited is refused", async () => {
  await refused(async (task) => {
    const gate = new Gate();
    const forgotten = async () => {
      await task.step("slow", () => gate.opened);
    };
    void forgotten();
    await turn();
    try {
      await task.step("b", () => 1);
    } finally {
      gate.open();
    }
  });
});

void test("what a refused call is at once with is recorded", async () => {
  const done: string[] = [];
  const pay = (what: string) => async () => {
    await turn();
    done.push(what);
  };
  const both = async (task: Task) => {
    await Promise.all([task.step("pay", pay("a")), task.step("mail", pay("b"))]);
  };
  await refused(both);
  assert.deepEqual(done, ["a"]);
  const { events } = await attempt(both);
  assert.deepEqual(
    events.map((e) => e.step?.key),
    ["pay#1", "postponed", undefined],
  );
});

void test("one call after another, in other promises", async () => {
  const oneByOne = async (task: Task) => {
    const first = await Promise.race([task.step("a", () => "a"), never()]);
    const [second] = await Promise.all([task.step("b", () => "b")]);
    const third = await (async () => await task.step("c", () => "c"))();
    return first + second + third + (await task.step("d", () => "d").then((d) => `${d}!`));
  };
  assert.equal((await crashEverywhere(oneByOne, "x")).text, "abcd!");
});

const outputs: [output: (task: Task) => Promise<unknown>, what: string][] = [
  [(t) => t.write("a"), "write"],
  [(t) => t.artifact("a").write("a"), "write"],
  [(t) => t.artifact("a").data(1, { append: true }), "an artifact"],
  [(t) => t.checkpoint(1), "checkpoint"],
];

void test("output that depends on the order of branches is refused", async () => {
  for (const [output, what] of outputs) {
    const tells = (task: Task) => task.gather(() => output(task));
    await refused(tells, `${what} inside gather: it can contain steps, calls, statuses and usage`);
  }
});

void test("other output of branches", async () => {
  const tells = async (task: Task) => {
    const branch = (n: number) => async () => {
      await task.status("looking");
      await task.usage({ model: "m", requests: 1 });
      await task.step("write", () => task.artifact(`part ${n}`).write(`text ${n}`));
    };
    await task.write("before ");
    await task.gather(branch(1), branch(2));
    await task.write("after");
  };
  const r = await crashEverywhere(tells, "x");
  assert.equal(r.artifacts.answer?.text, "before after");
  assert.deepEqual([r.artifacts["part 1"]?.text, r.artifacts["part 2"]?.text], ["text 1", "text 2"]);
});

void test("branches may not write the same artifact", async () => {
  const both = async (task: Task) => {
    try {
      const write = (name: string) => () => task.step(name, () => task.write(name));
      await task.gather(write("a"), write("b"));
      return "none";
    } catch (err) {
      assert.ok(err instanceof StepError);
      await task.sleep("1h");
      return `${err.step}: ${err.text}`;
    }
  };
  const r = await run(both, "x");
  assert.ok(r.text.startsWith("b: another branch of gather writes the artifact 'answer'"), r.text);
  assert.equal(r.artifacts.answer?.text, "a");
  await crashEverywhere(both, "x");
});

void test("one branch after another may write the same artifact", async () => {
  const all = async (task: Task) => {
    const write = (text: string) => task.step(text, () => task.write(text));
    await task.gather(async () => {
      await task.gather(() => write("a"));
      await write("b");
    });
    await task.gather(() => write("c"));
    await write("d");
    await task.write("e");
  };
  assert.equal((await crashEverywhere(all, "x")).artifacts.answer?.text, "abcde");
});

void test("a try that timed out may not write", async () => {
  const late: string[] = [];
  const r = await run(async (task) => {
    let tries = 0;
    const second = new Gate();
    const wrote = new Gate();
    const model = async () => {
      if (++tries === 1) {
        await task.write("early");
        await second.opened;
        for (const call of [() => task.write("too late"), () => task.usage({ requests: 1 })]) {
          void Promise.resolve(call()).then(
            () => late.push("returned"),
            () => late.push("failed"),
          );
        }
        await turn();
        wrote.open();
        return;
      }
      await task.write("in ");
      second.open();
      await wrote.opened;
      await task.write("time");
    };
    await task.step("model", model, { retries: 1, backoff: 0, timeout: 0.05 });
  }, "x");
  assert.deepEqual([r.state, r.artifacts.answer?.text, r.usage, late], ["completed", "in time", {}, []]);
});

void test("what a step left running may not write", async () => {
  const err = await refused(async (task) => {
    const returned = new Gate();
    let background: Promise<unknown> = never();
    await task.step("model", () => {
      const writes = async () => {
        await returned.opened;
        await task.write("late");
      };
      background = writes().catch(() => undefined);
    });
    returned.open();
    await background;
    await task.status("next");
  }, "the step 'model' has ended: await what it starts before it returns");
  assert.equal(err.where, lineOf(import.meta.url, 'task.write("late");'));
});

void test("a callback that has lost the context of its step is refused", async () => {
  await refused(async (task) => {
    const outside = AsyncResource.bind((work: () => unknown) => work());
    await task.step("model", async () => {
      await outside(() => task.write("lost"));
    });
  }, "A callback of a step that has lost its context needs AsyncResource.bind");
});

void test("a step may do several things at once", async () => {
  const writes = async (task: Task) => {
    await task.step("model", () => Promise.all([task.write("a"), task.write("b"), turn()]));
  };
  assert.equal((await crashEverywhere(writes, "x")).artifacts.answer?.text, "ab");
});

void test("text of a step that a callback without context could not write fails the step", async () => {
  const streams = async (task: Task) => {
    const outside = AsyncResource.bind((write: () => unknown) => write());
    await task.step("s", async () => {
      await outside(() => task.write("x").catch(() => undefined));
    });
  };
  const { ending, events } = await attempt(streams);
  assert.equal(ending.outcome, "postponed");
  const error = JSON.stringify(events[0]?.step?.error);
  assert.match(error, /"UsageError".*still in progress.*AsyncResource\.bind/);
});

void test("a step is not to blame for a call beside it", async () => {
  for (const beside of [(task: Task) => task.write("x"), (task: Task) => task.step("b", () => 1)]) {
    const { ending, events } = await attempt((task) => Promise.all([task.step("a", () => turn()), beside(task)]));
    assert.equal(ending.outcome, "postponed");
    assert.deepEqual([events[0]?.step?.key, events[0]?.step?.error], ["a#1", undefined]);
  }
});
