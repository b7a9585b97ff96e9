// How tasks, attempts and tries of steps end.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Fail, Message, Reject, Retry, TimeoutError, type Task } from "../src/index.js";
import { run } from "../src/testing.js";

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

void test("a subclass of Fail, Reject or Retry takes the same path in each attempt", async () => {
  class OutOfStock extends Fail {
    override name = "OutOfStock";
  }
  class Busy extends Retry {}
  class NotMine extends Reject {
    override name = "NotMine";
  }
  for (const [thrown, kind] of [
    [new OutOfStock("none left"), Fail],
    [new Busy("full"), Retry],
    [new NotMine("other"), Reject],
  ] as const) {
    const handles = async (task: Task) => {
      const caught: unknown = await task.step("take", () => Promise.reject(thrown)).catch((err: unknown) => err);
      assert.ok(caught instanceof kind, String(caught));
      await task.sleep("1h");
      return "handled";
    };
    const r = await run(handles, "x", { maxAttempts: 1 });
    assert.deepEqual([r.state, r.text], ["completed", "handled"]);
  }
});

void test("what is thrown that is no Error is an error of the attempt", async () => {
  for (const thrown of ["text", undefined, null, 7]) {
    const throws = () => {
      // eslint-disable-next-line @typescript-eslint/only-throw-error -- agents may
      throw thrown;
    };
    let r = await run(throws, "x", { maxAttempts: 2 });
    assert.deepEqual([r.state, r.attempts, r.text], ["failed", 2, `Error: ${String(thrown)}`]);
    r = await run((task) => task.step("a", throws), "x", { maxAttempts: 1 });
    assert.equal(r.text, `a: Error: ${String(thrown)}`);
  }
});

void test("the last message", async () => {
  const last = async (value: unknown) =>
    (await run(() => value, "x")).events.at(-1)?.statusUpdate?.status.message?.parts;
  assert.deepEqual(await last("text"), [{ text: "text" }]);
  assert.deepEqual(await last({ n: 1 }), [{ data: { n: 1 } }]);
  assert.deepEqual(await last(Buffer.from("png")), [{ raw: "cG5n" }]);
  const link = { url: "https://example.com/a.png", mediaType: "image/png" };
  assert.deepEqual(await last(Message.of({ text: "see" }, link)), [{ text: "see" }, link]);
  assert.equal(await last(""), undefined);
  assert.equal(await last(undefined), undefined);
});

void test("a step that takes too long fails, and its function is told", async () => {
  let told: unknown;
  const slow = (abort: AbortSignal) =>
    new Promise((_, reject) => {
      abort.addEventListener("abort", () => {
        told = abort.reason;
        reject(new Error("aborted"));
      });
    });
  const r = await run((task) => task.step("slow", slow, { timeout: 0.01, retries: 1, backoff: 0 }), "x");
  assert.deepEqual([r.state, r.text], ["failed", "slow: TimeoutError: it took longer than 0.01 s"]);
  assert.ok(told instanceof TimeoutError);
});
