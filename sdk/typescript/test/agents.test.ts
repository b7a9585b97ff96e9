// Agents in memory: what is recorded is not done again, whatever happens.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

import { Fail, Message, Reject, Retry, StepError, TimeoutError, type Task } from "../src/index.js";
import { crashEverywhere, Difference, run, Stuck } from "../src/testing.js";

/** Counts what agents do to the world. */
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
    await turn();
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
  assert.deepEqual(
    Object.keys(r.steps),
    ["plan#1", "write:answer#1", "ask#1", "pay#1", "sleep#1", "call:reviewer#1", "call:reviewer#1/wait"],
  );
});

void test("crashes change nothing", async () => {
  const effects = new Effects();
  let tasks = 0;
  const calls = { reviewer: () => `fine ${typeof ++tasks}` };
  const r = await crashEverywhere(trip(effects), "train", { answers: ["yes"], calls });
  assert.equal(r.state, "completed");
  assert.ok(tasks > 10);
  // Of all crashes, one before the plan is recorded repeats it, and one before the payment is recorded repeats that.
  assert.deepEqual([effects.count("train"), effects.count("pay")], [tasks + 1, tasks + 1]);
});

void test("crashEverywhere finds what is not recorded", async () => {
  let runs = 0;
  const counts = async (task: Task) => {
    runs++;
    await task.step("a", () => 1);
    return `run ${runs}`;
  };
  await assert.rejects(crashEverywhere(counts, "x"), (err) => {
    return err instanceof Difference && err.message.startsWith("a crash before request 1 of 2 was stored changed");
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
  assert.equal(r.artifacts.answer?.text, "whole sentence.");
  assert.deepEqual(
    Object.keys(r.steps),
    ["model#1", "sleep#1"],
  );
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
  await crashEverywhere(orders, "x");
});

void test("a failure that is not handled is tried again", async () => {
  let tries = 0;
  const r = await run(
    (task) =>
      task.step("get", () => {
        if (++tries < 3) {
          throw new Error("reset");
        }
        return "ok";
      }),
    "x",
  );
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
    const prices = await task.gather(
      () => shop("a"),
      () => shop("b"),
      () => task.step("own", () => "c"),
    );
    return prices.join(", ");
  };
  const calls = { prices: (text: string) => `<${text}>` };
  const r = await run(compares, "x", { calls });
  assert.equal(r.text, "<a <a>>!, <b <b>>!, c");
  assert.deepEqual(effects.done, ["<a <a>>", "<b <b>>"]);
  // Each branch has its own keys: in another attempt, the branches may overtake each other.
  const notes = Object.keys(r.steps).filter((key) => key.includes("note"));
  assert.deepEqual(notes.sort(), ["gather#1.1/note#1", "gather#1.2/note#1"]);
  await crashEverywhere(compares, "x", { calls, compare: (got) => [got.text, Object.keys(got.steps).sort()] });
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

const programs: [string, (task: Task) => unknown, (task: Task) => unknown, string][] = [
  ["input", (t) => t.step("a", () => 1, { input: 1 }), (t) => t.step("a", () => 1, { input: 2 }), "a step with the input 6b86"],
  ["kind", (t) => t.step("sleep", () => 1), (t) => t.sleep(1), "a step, but the code now does a wait"],
  ["name", (t) => t.step("write:answer", () => 1), (t) => t.write("x"), 'a step named "write:answer"'],
];

for (const [what, before, after, recorded] of programs) {
  void test(`a program whose step has another ${what} is named`, async () => {
    let runs = 0;
    const changed = async (task: Task) => {
      await (runs++ === 0 ? before : after)(task);
      await task.sleep("1h");
    };
    const r = await run(changed, "x", { maxAttempts: 2 });
    assert.equal(r.state, "failed");
    assert.ok(r.text.includes(`is recorded as ${recorded}`), r.text);
  });
}

void test("Reject, Fail and Retry", async () => {
  const ends = (task: Task, message: Message) => {
    if (message.text === "retry" && task.attempt > 1) {
      return "done";
    }
    throw message.text === "retry"
      ? new Retry("busy", { after: 60 })
      : message.text === "fail"
        ? new Fail("broken")
        : new Reject("not mine");
  };
  let r = await run(ends, "fail");
  assert.deepEqual([r.state, r.text], ["failed", "broken"]);
  r = await run(ends, "reject");
  assert.deepEqual([r.state, r.text], ["rejected", "not mine"]);
  r = await run(ends, "retry");
  assert.deepEqual([r.state, r.attempts, r.elapsed], ["completed", 2, 60]);
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
  assert.equal(r.events.length, 6);
});

void test("handlers continue from a checkpoint", async () => {
  const r = await run(
    async (task) => {
      for (let n = Number(task.saved ?? 0); n < 5; n++) {
        await task.write(`${n} `);
        await task.checkpoint(n + 1);
        if (n === 2 && task.attempt === 1) {
          throw new Error("crash");
        }
      }
      return "done";
    },
    "x",
    { handler: true },
  );
  assert.deepEqual([r.text, r.artifacts.answer?.text], ["done", "0 1 2 3 4 "]);
});

void test("a handler gets the newest message", async () => {
  const echo = async (task: Task, message: Message) => {
    if (task.messages.length === 1) {
      await task.ask("And?");
    }
    return message.text;
  };
  assert.equal((await run(echo, "one", { answers: ["two"], handler: true })).text, "two");
  assert.equal((await run(echo, "one", { answers: ["two"] })).text, "one");
});

void test("the last message", async () => {
  const last = async (value: unknown) => (await run(() => value, "x")).events.at(-1)?.statusUpdate?.status.message?.parts;
  assert.deepEqual(await last("text"), [{ text: "text" }]);
  assert.deepEqual(await last({ n: 1 }), [{ data: { n: 1 } }]);
  assert.deepEqual(await last(Buffer.from("png")), [{ raw: "cG5n" }]);
  const link = { url: "https://example.com/a.png", mediaType: "image/png" };
  assert.deepEqual(await last(Message.of({ text: "see" }, link)), [{ text: "see" }, link]);
  assert.equal(await last(""), undefined);
  assert.equal(await last(undefined), undefined);
});

void test("what a task knows", async () => {
  const r = await run(async (task, message) => {
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
    assert.equal(task.deadline, undefined);
    return task.messages.map((m) => m.text).join(" ");
  }, "hello", { answers: ["Ann"] });
  assert.equal(r.text, "hello Ann");
});

void test("usage is recorded once, with its step", async () => {
  const works = async (task: Task) => {
    await task.usage({ model: "small", inputTokens: 1 });
    await task.step("model", async () => {
      await task.usage({ model: "big", inputTokens: 10, outputTokens: 5, requests: 1 });
      await task.usage({ model: "big", inputTokens: 20 });
    });
    await task.step("other", () => task.usage({ requests: 1 }));
    await task.sleep(1);
  };
  const r = await crashEverywhere(works, "x", { compare: (got) => [got.state, got.usage, Object.keys(got.steps)] });
  assert.deepEqual(r.usage, {
    small: { inputTokens: 1 },
    big: { inputTokens: 30, outputTokens: 5, requests: 1 },
    "": { requests: 1 },
  });
  assert.deepEqual(Object.keys(r.steps), ["usage#1", "model#1", "other#1", "sleep#1"]);
});

void test("usage of a try that failed counts", async () => {
  let tries = 0;
  const r = await run(
    (task) =>
      task.step(
        "model",
        async () => {
          await task.usage({ requests: 1 });
          if (++tries < 3) {
            throw new Error("overloaded");
          }
        },
        { retries: 2 },
      ),
    "x",
  );
  assert.deepEqual([r.state, r.usage], ["completed", { "": { requests: 3 } }]);
});

void test("a step that takes too long fails, and its function is told", async () => {
  let told: unknown;
  const r = await run(
    (task) =>
      task.step(
        "slow",
        (abort) =>
          new Promise((_, reject) => {
            abort.addEventListener("abort", () => {
              told = abort.reason;
              reject(new Error("aborted"));
            });
          }),
        { timeout: 0.01, retries: 1, backoff: 0 },
      ),
    "x",
  );
  assert.deepEqual([r.state, r.text], ["failed", "slow: TimeoutError: it took longer than 0.01 s"]);
  assert.ok(told instanceof TimeoutError);
});

void test("long retries inside gather pause in the process", async () => {
  let tries = 0;
  const flaky = () => {
    if (++tries < 3) {
      throw new Error("reset");
    }
    return "ok";
  };
  const r = await run(async (task) => {
    return (await task.gather(() => task.step("get", flaky, { retries: 3, backoff: "20s" }), () => task.call("b", "?"))).length;
  }, "x", { calls: { b: "!" } });
  assert.deepEqual([r.state, r.data, tries], ["completed", 2, 3]);
});
