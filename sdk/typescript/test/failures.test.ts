// Steps that fail, and what is recorded of them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { runInNewContext } from "node:vm";

import { z } from "zod";

import { Fail, Reject, Retry, StepError, UsageError, type Task } from "../src/index.js";
import { crashEverywhere, run } from "../src/testing.js";

const fails =
  (text = "no stock") =>
  () => {
    throw new RangeError(text);
  };

void test("a step that streams only in its second try", async () => {
  const answer = async (task: Task) => {
    let tries = 0;
    const model = async () => {
      if (++tries === 1) {
        throw new Error("reset");
      }
      await task.write("whole ");
      await turn();
      await task.write("sentence.");
    };
    await task.write("Well: ");
    await task.step("model", model, { retries: 9, backoff: 0 });
  };
  assert.equal((await crashEverywhere(answer, "x")).artifacts.answer?.text, "Well: whole sentence.");
});

void test("a result that its schema refuses is not computed again", async () => {
  let calls = 0;
  const make = () => ({ n: ++calls });
  const r = await run((task) => task.step("make", make, { returns: z.object({ n: z.string() }) }), "x");
  assert.deepEqual([r.state, calls, r.steps["make#1"]?.attempts], ["failed", 1, 1]);
  assert.match(r.text, /the result of step 'make' does not fit the schema in returns: n: /);
});

void test("work whose result cannot be recorded is not repeated", async () => {
  let paid = 0;
  const pays = async (task: Task) => {
    try {
      await task.step("pay", () => new Map([[++paid, 1]]), { retries: 3 });
      return "paid";
    } catch (err) {
      assert.ok(
        err instanceof StepError && err.cause instanceof UsageError === (paid === 1 && err.cause !== undefined),
      );
      await task.sleep("1h");
      return `${err.type}: ${err.text}`;
    }
  };
  const r = await run(pays, "x");
  assert.match(r.text, /^UsageError: the result of step 'pay' cannot be recorded as JSON/);
  assert.equal(paid, 1);
});

void test("a mistake in a step that its function catches fails the step", async () => {
  const pays = async (task: Task) => {
    const pay = async () => {
      await task.signal("paid").catch(() => undefined);
      return "paid";
    };
    await task.step("pay", pay).catch((err: unknown) => {
      assert.ok(err instanceof StepError);
    });
    await task.signal("paid");
    return "done";
  };
  const r = await run(pays, "x", { signals: { paid: 1 } });
  assert.deepEqual([r.text, Object.keys(r.steps)], ["done", ["pay#1", "signal:paid#1"]]);
  assert.equal((r.steps["pay#1"]?.error as { type: string }).type, "UsageError");
});

for (const Ending of [Fail, Reject, Retry]) {
  void test(`${Ending.name} in a step is recorded if it is caught`, async () => {
    let calls = 0;
    const no = () => {
      calls++;
      throw new Ending("no");
    };
    const catches = async (task: Task) => {
      try {
        await task.step("x", no, { retries: 3 });
        return "none";
      } catch (err) {
        assert.ok(err instanceof Ending);
        await task.sleep("1h");
        await task.sleep("1h");
        return err.message;
      }
    };
    const r = await run(catches, "x");
    assert.deepEqual([r.text, calls], ["no", 1]);
    assert.deepEqual(r.steps["x#1"]?.error, { type: `a2ad.${Ending.name}`, message: "no" });
  });

  void test(`${Ending.name} in a step ends the attempt`, async () => {
    let calls = 0;
    const no = () => {
      calls++;
      throw new Ending("no");
    };
    const r = await run((task) => task.step("x", no, { retries: 3 }), "x", { maxAttempts: 3 });
    assert.equal(r.state, Ending === Reject ? "rejected" : "failed");
    assert.deepEqual([r.text, calls], ["no", Ending === Retry ? 3 : 1]);
  });
}

void test("text after a failure that is handled is sent once", async () => {
  const orders = async (task: Task) => {
    await task.write("a");
    await task.step("reserve", fails()).catch(() => undefined);
    await task.write("b");
    await task.sleep("1h");
  };
  const r = await crashEverywhere(orders, "x");
  assert.equal(r.artifacts.answer?.text, "ab");
  assert.deepEqual(Object.keys(r.steps), ["write:answer#1", "reserve#1", "write:answer#2", "sleep#1"]);
});

void test("an event and its record are sent together", async () => {
  const uses = async (task: Task) => {
    const text = "x".repeat(600_000);
    const model = async () => {
      await task.usage({ model: "m", requests: 1 });
      return text;
    };
    await task.step("model", model, { input: text });
    await task.artifact("a").data("x".repeat((1 << 20) - 20), { append: true });
    await task.artifact("a").data("y", { append: true });
  };
  const r = await crashEverywhere(uses, "x");
  assert.deepEqual(r.usage, { m: { requests: 1 } });
  assert.equal(r.artifacts.a?.parts.length, 2);
});

void test("many reports of usage fit into one request", async () => {
  const uses = (task: Task) =>
    task.step("model", async () => {
      for (let n = 0; n < 2000; n++) {
        await task.usage({ model: `m${n % 2}`, requests: 1 });
      }
      await task.usage({ model: "big", requests: 1e9 });
      await task.usage({ model: "big", requests: 1e9 });
    });
  const r = await crashEverywhere(uses, "x");
  assert.deepEqual(r.usage, { m0: { requests: 1000 }, m1: { requests: 1000 }, big: { requests: 2e9 } });
});

void test("usage of each try counts", async () => {
  let tries = 0;
  const uses = async (task: Task) => {
    const model = async () => {
      await task.usage({ model: "m", requests: 1 });
      if (++tries < 3) {
        throw new Error("reset");
      }
    };
    await task.step("model", model, { retries: 2 });
  };
  assert.deepEqual((await run(uses, "x")).usage, { m: { requests: 3 } });
});

for (const error of [new Error("reset"), new Retry("busy")]) {
  void test(`usage of ${error.name} that is not handled counts once`, async () => {
    const uses = async (task: Task) => {
      const model = async () => {
        await task.usage({ model: "m", inputTokens: 100 });
        if (task.attempt < 3) {
          throw error;
        }
      };
      await task.step("model", model);
      await task.sleep(1);
    };
    const r = await run(uses, "x");
    assert.deepEqual([r.state, r.usage], ["completed", { m: { inputTokens: 300 } }]);
  });
}

void test("usage of a failure that is handled counts", async () => {
  const uses = async (task: Task) => {
    const model = async () => {
      await task.usage({ model: "m", requests: 1 });
      throw new Error("reset");
    };
    await task.step("model", model).catch(() => undefined);
    await task.status("the model is away");
  };
  assert.deepEqual((await run(uses, "x")).usage, { m: { requests: 1 } });
});

void test("the text of what is thrown is kept, if it is no Error of this realm", async () => {
  for (const [thrown, type, text] of [
    [{ code: 429, message: "too many requests" }, "Error", "too many requests"],
    [runInNewContext('new TypeError("from a sandbox")'), "TypeError", "from a sandbox"],
    ["a string", "Error", "a string"],
  ] as const) {
    const fails = async (task: Task) => {
      try {
        await task.step("a", () => {
          throw thrown;
        });
      } catch (err) {
        return err instanceof StepError ? [err.type, err.text] : [];
      }
    };
    assert.deepEqual((await run(fails, "x")).data, [type, text]);
  }
});
