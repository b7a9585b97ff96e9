// Agents in memory: recorded work is not done again.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

import { CallError, Message, StepError, TimeoutError, type AgentFunction, type Task } from "../src/index.js";
import { crashEverywhere, Difference, run, Stuck } from "../src/testing.js";
import { attempt } from "./kit.js";

/** Counts the effects of agents. */
class Effects {
  done: string[] = [];

  do(what: string): string {
    this.done.push(what);
    return `${what}!`;
  }

  count(what: string): number {
    return this.done.filter((d) => d === what).length;
  }
}

async function* writeUp(plan: string): AsyncGenerator<string> {
  for (const word of ["We ", "go ", "by ", plan, "."]) {
    await Promise.resolve();
    yield word;
  }
}

const trip = (effects: Effects) => async (task: Task, message: Message) => {
  const plan = await task.step("plan", () => effects.do(message.text), { input: message.text });
  for await (const token of writeUp(plan)) {
    await task.write(token);
  }
  if ((await task.ask("Book it?", { choices: ["yes", "no"] })) === "yes") {
    const ref = await task.step("pay", () => effects.do("pay"), { retries: 5 });
    await task.sleep("24h");
    const review = await task.call("reviewer", `Check ${ref}`);
    return review.text;
  }
  return undefined;
};

void test("an agent from beginning to end", async () => {
  const effects = new Effects();
  const calls = { reviewer: (text: string) => `${text}: fine` };
  const r = await run(trip(effects), "train", { answers: ["yes"], calls });
  assert.deepEqual([r.state, r.text], ["completed", "Check pay!: fine"]);
  assert.equal(r.artifacts.answer?.text, "We go by train!.");
  assert.deepEqual(effects.done, ["train", "pay"]);
  assert.equal(r.elapsed, 24 * 3600);
  assert.deepEqual(r.questions, ["Book it?"]);
  const keys = ["plan#1", "write:answer#1", "ask#1", "pay#1", "sleep#1", "call:reviewer#1", "call:reviewer#1/wait"];
  assert.deepEqual(Object.keys(r.steps), keys);
});

void test("crashes change nothing", async () => {
  const effects = new Effects();
  const r = await crashEverywhere(trip(effects), "train", { answers: ["yes"], calls: { reviewer: "fine" } });
  assert.equal(r.state, "completed");
  // Seven requests. A crash before the first repeats the plan, one before the fifth the payment.
  assert.deepEqual([effects.count("train"), effects.count("pay")], [1 + 2 * 7 + 1, 1 + 2 * 7 + 1]);
});

void test("the example of the README survives crashes", async () => {
  const example = readFileSync("README.md", "utf8").split("```ts\n", 2)[1]?.split("```", 1)[0] ?? "";
  const body = example
    .replace(/^import .*$/m, "")
    .replace(/^const worker = .*$/m, "")
    .replace("await worker.run();", "");
  let agent: AgentFunction | undefined;
  const effects = new Effects();
  const worker = { agent: (_: string, __: object, f: typeof agent) => (agent = f) };
  const effect = (text: string) => effects.do(text);
  // eslint-disable-next-line @typescript-eslint/no-implied-eval -- the README must show what works
  const register = new Function("worker", "makePlan", "writeUp", "pay", body) as (...names: unknown[]) => void;
  register(worker, effect, writeUp, effect);
  const calls = { reviewer: (text: string) => `${text}: fine` };
  const r = await crashEverywhere(agent ?? assert.fail(), "train", { answers: ["yes"], calls });
  assert.deepEqual([r.state, r.text], ["completed", "Check train!!: fine"]);
  assert.equal(r.artifacts.answer?.text, "We go by train!.");
});

void test("crashEverywhere finds what is not recorded", async () => {
  let runs = 0;
  const counts = async (task: Task) => {
    runs++;
    await task.step("a", () => 1);
    return `run ${runs}`;
  };
  await assert.rejects(crashEverywhere(counts, "x"), (err) => {
    return err instanceof Difference && err.message.startsWith("a crash before the server stored request 1 changed");
  });
});

void test("crashes in the middle of a stream", async () => {
  const r = await crashEverywhere(async (task) => {
    const log = task.artifact("log");
    for (const word of ["one ", "two ", "three "]) {
      await log.write(word);
      await turn();
    }
    await task.step("between", () => undefined);
    for (const word of ["four ", "five"]) {
      await task.write(word);
      await log.write(word);
      await turn();
    }
  }, "x");
  assert.equal(r.artifacts.log?.text, "one two three four five");
  assert.equal(r.artifacts.answer?.text, "four five");
});

void test("a step that streams", async () => {
  let models = 0;
  const answer = async (task: Task) => {
    const text = await task.step("model", async () => {
      models++;
      for (const word of ["whole ", "sentence."]) {
        await task.write(word);
        await turn();
      }
      return "whole sentence.";
    });
    await task.sleep(1);
    return text;
  };
  const r = await crashEverywhere(answer, "x");
  assert.deepEqual([r.artifacts.answer?.text, r.text], ["whole sentence.", "whole sentence."]);
  assert.deepEqual(Object.keys(r.steps), ["model#1", "sleep#1"]);
  models = 0;
  await run(answer, "x");
  assert.equal(models, 1);
});

void test("two questions have two answers", async () => {
  const asks = async (task: Task, message: Message) => {
    const first = await task.ask("First?");
    const second = await task.ask<{ n: number }>("Second?", { schema: { type: "object" } });
    return `${message.text} ${first} ${second.n}`;
  };
  assert.equal((await crashEverywhere(asks, "a", { answers: ["b", { n: 3 }] })).text, "a b 3");
});

void test("a question may time out", async () => {
  const r = await run(async (task) => {
    try {
      return await task.ask("Now?", { timeout: "2h" });
    } catch (err) {
      assert.ok(err instanceof TimeoutError);
      return "too late";
    }
  }, "x");
  assert.deepEqual([r.text, r.elapsed], ["too late", 7200]);
});

void test("signals", async () => {
  const waits = (task: Task) => task.signal("approved", { timeout: "1h" });
  assert.deepEqual((await run(waits, "x", { signals: { approved: { by: "Ann" } } })).data, { by: "Ann" });
  await assert.rejects(
    run((task) => task.signal("go"), "x"),
    Stuck,
  );
});

void test("a failure that is handled is recorded", async () => {
  let tries = 0;
  const orders = async (task: Task) => {
    try {
      await task.step("reserve", () => {
        tries++;
        throw new RangeError("no stock");
      });
      return "reserved";
    } catch (err) {
      if (!(err instanceof StepError)) {
        throw err;
      }
      const other = await task.step("other", () => "another shop");
      await task.sleep("1h");
      return `${err.type} (${err.text}), so ${other}`;
    }
  };
  const r = await run(orders, "x");
  assert.equal(r.text, "RangeError (no stock), so another shop");
  assert.equal(tries, 1);
  assert.deepEqual(Object.keys(r.steps), ["reserve#1", "other#1", "sleep#1"]);
  await crashEverywhere(orders, "x");
});

void test("a failure that is not handled is tried again", async () => {
  let tries = 0;
  const flaky = () => {
    if (++tries < 3) {
      throw new Error("reset");
    }
    return "ok";
  };
  const r = await run((task) => task.step("get", flaky), "x");
  assert.deepEqual([r.text, r.attempts, tries], ["ok", 3, 3]);
});

void test("retries of a step", async () => {
  let tries = 0;
  const flaky = () => {
    if (++tries <= 4) {
      throw new Error("reset");
    }
    return "ok";
  };
  // 4 s and 8 s in the process, 16 s and 32 s as waits
  let r = await run((task) => task.step("get", flaky, { retries: 4, backoff: "4s" }), "x");
  assert.deepEqual([r.text, tries, r.attempts, r.elapsed], ["ok", 5, 3, 60]);
  assert.equal(r.steps["get#1"]?.attempts, 5);
  tries = 0;
  r = await run((task) => task.step("get", flaky, { retries: 2, backoff: 0.1 }), "x");
  assert.deepEqual([r.state, r.text, tries, r.attempts], ["failed", "get: Error: reset", 3, 1]);
});

void test("gather waits for all calls", async () => {
  const effects = new Effects();
  const compares = async (task: Task) => {
    const shop = async (name: string) => {
      const price = await task.call("prices", name);
      const again = await task.call("prices", `${name} ${price.text}`);
      return await task.step("note", () => effects.do(again.text));
    };
    const own = () => task.step("own", () => "c");
    return (
      await task.gather(
        () => shop("a"),
        () => shop("b"),
        own,
      )
    ).join(", ");
  };
  const calls = { prices: (text: string) => `<${text}>` };
  const r = await run(compares, "x", { calls });
  assert.equal(r.text, "<a <a>>!, <b <b>>!, c");
  assert.deepEqual(effects.done, ["<a <a>>", "<b <b>>"]);
  await crashEverywhere(compares, "x", { calls });
});

void test("gather throws the first failure", async () => {
  const r = await run(async (task) => {
    const fails = (what: string) => () =>
      task.step(what, () => {
        throw new Error(what);
      });
    try {
      await task.gather(() => task.step("ok", () => 1), fails("x"), fails("y"));
      return "none";
    } catch (err) {
      return err instanceof StepError ? err.text : String(err);
    }
  }, "x");
  assert.equal(r.text, "x");
});

void test("nested gather", async () => {
  const r = await run(
    (task) =>
      task.gather(
        () =>
          task.gather(
            async () => (await task.call("a", "1")).text,
            () => task.step("s", () => 2),
          ),
        async () => (await task.call("a", "3")).text,
      ),
    "x",
    { calls: { a: (text) => `${text}!` } },
  );
  assert.deepEqual(r.data, [["1!", 2], "3!"]);
});

void test("a call that fails", async () => {
  const steps = ["failed", "input_required"].map((state) => ({
    key: "call:b#1",
    kind: "call",
    agent: "b",
    endedAt: "x",
    result: {
      taskId: "1",
      state: `TASK_STATE_${state.toUpperCase()}`,
      artifacts: [{ artifactId: "a", parts: [{ text: "why" }] }],
    },
  }));
  for (const [i, state] of ["failed", "input-required"].entries()) {
    const calls = async (task: Task) => {
      const err: unknown = await task.call("b", "x").catch((e: unknown) => e);
      assert.ok(err instanceof CallError);
      return `${err.agent} ${err.state}: ${err.text}`;
    };
    const { events } = await attempt(calls, { steps: [steps[i]] });
    assert.deepEqual(events.at(-1)?.statusUpdate?.status.message?.parts, [{ text: `b ${state}: why` }]);
  }
});

void test("output is sent once", async () => {
  const r = await crashEverywhere(async (task) => {
    await task.status("working on it");
    await task.artifact("table").data([1, 2]);
    await task.artifact("picture").file(Buffer.from("png"), { filename: "p.png", mediaType: "image/png" });
    await task.artifact("table").data([3]);
    await task.sleep(1);
    await task.status("nearly done");
  }, "x");
  assert.deepEqual(r.artifacts.table?.parts, [{ data: [3] }]);
  assert.equal(Buffer.from(r.artifacts.picture?.parts[0]?.raw ?? []).toString(), "png");
  const kinds = r.events.map((e) => Object.keys(e).join());
  const artifact = "artifactUpdate";
  assert.deepEqual(kinds, ["statusUpdate", artifact, artifact, artifact, "statusUpdate", "statusUpdate"]);
});

void test("usage is summed by model and counted once", async () => {
  const uses = async (task: Task) => {
    const said = await task.step("model", async () => {
      await task.usage({ model: "m", inputTokens: 10, outputTokens: 2, requests: 1 });
      await task.usage({ model: "m", inputTokens: 5, cachedInputTokens: 4, reasoningTokens: 1 });
      return "said";
    });
    await task.usage({ model: "other", requests: 1 });
    await task.usage({ inputTokens: 7 });
    await task.sleep(1);
    return said;
  };
  const r = await crashEverywhere(uses, "x");
  assert.deepEqual(r.usage, {
    m: { inputTokens: 15, outputTokens: 2, cachedInputTokens: 4, reasoningTokens: 1, requests: 1 },
    other: { requests: 1 },
    "": { inputTokens: 7 },
  });
});

void test("handlers continue from a checkpoint", async () => {
  const counts = async (task: Task) => {
    for (let n = Number(task.saved ?? 0); n < 5; n++) {
      await task.write(`${n} `);
      await task.checkpoint(n + 1);
      if (n === 2 && task.attempt === 1) {
        throw new Error("crash");
      }
    }
    return `counted to ${JSON.stringify(task.saved)}`;
  };
  const r = await run(counts, "x", { handler: true });
  assert.deepEqual([r.text, r.artifacts.answer?.text], ["counted to 5", "0 1 2 3 4 "]);
  await crashEverywhere(counts, "x", { handler: true });
});

void test("what a task knows", async () => {
  const knows = async (task: Task, message: Message) => {
    await task.artifact("notes").replace("a note");
    await task.ask("Who?");
    assert.equal(task.message, message);
    assert.deepEqual([task.id, task.agent, task.contextKey, task.owner], ["task-1", "test", "key-1", "test"]);
    assert.deepEqual(
      task.history.map((m) => m.text),
      ["hello", "Ann"],
    );
    assert.equal(task.artifacts[0]?.text, "a note");
    assert.equal(task.idempotencyKey("pay"), "task-1:pay");
    assert.deepEqual([task.deadline, task.messageNumber, task.cancelled], [undefined, 1, false]);
    return task.messages.map((m) => m.text).join(" ");
  };
  assert.equal((await run(knows, "hello", { answers: ["Ann"] })).text, "hello Ann");
});

/* eslint-disable @typescript-eslint/unbound-method -- they are bound */
void test("methods can be used without their object", async () => {
  const uses = async (task: Task) => {
    const { step, ask, artifact } = task;
    const { write } = artifact("notes");
    await write("one");
    return (await step("a", () => "two")) + (await ask("?"));
  };
  const r = await run(uses, "x", { answers: ["three"] });
  assert.deepEqual([r.text, r.artifacts.notes?.text], ["twothree", "one"]);
});
