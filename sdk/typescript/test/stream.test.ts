// Streamed text: its ticks, its pieces, and what becomes of it when the attempt fails.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

import type { Task } from "../src/index.js";
import type { Clock } from "../src/clock.js";
import { Outbox } from "../src/outbox.js";
import { crashEverywhere } from "../src/testing.js";
import { attempt } from "./kit.js";

/** A clock whose pauses end when the test says. */
class StillClock implements Clock {
  readonly now = () => 0;
  readonly monotonic = () => 0;
  readonly sleep = () => Promise.resolve();
  #send: (() => void) | undefined;
  pauses = 0;

  sendLater(_: number, send: () => void): () => void {
    this.pauses++;
    this.#send = send;
    return () => {
      this.#send = undefined;
    };
  }

  async pass(): Promise<void> {
    this.#send?.();
    await turn();
  }
}

function outbox() {
  const clock = new StillClock();
  const sent: string[] = [];
  const send = (events: readonly string[]) => {
    sent.push(
      ...events.map(
        (e) =>
          (JSON.parse(e) as { artifactUpdate: { artifact: { parts: { text: string }[] } } }).artifactUpdate.artifact
            .parts[0]?.text ?? "",
      ),
    );
    return Promise.resolve();
  };
  return {
    clock,
    sent,
    box: new Outbox(
      send,
      () => undefined,
      () => false,
      clock,
    ),
  };
}

void test("text is sent at once, and then at ticks or when it is enough", async () => {
  const { clock, sent, box } = outbox();
  await box.write("a", "", "first ");
  await turn();
  await box.write("a", "", "second ");
  await turn();
  assert.deepEqual([sent, clock.pauses], [["first "], 1]);
  await clock.pass();
  assert.deepEqual(sent, ["first ", "second "]);
  await box.write("a", "", "third ");
  await box.write("a", "", "x".repeat(32 << 10)); // that is enough for a request
  await turn();
  assert.deepEqual(
    sent.map((s) => s.length),
    [6, 7, 6 + (32 << 10)],
  );
});

void test("long text is sent in pieces that cut no character in half", async () => {
  const { sent, box } = outbox();
  const text = `a${"🚆".repeat(200_000)}`;
  await box.write("a", "", text);
  await box.flush();
  assert.equal(sent.join(""), text);
  assert.ok(sent.length >= 4 && sent.every((s) => s.isWellFormed() && s.length <= 128 << 10));
});

void test("what waits to be sent is not sent after the attempt has failed", async () => {
  const clock = new StillClock();
  const writes = async (task: Task) => {
    await task.write("one ");
    await turn();
    await task.write("two ");
    await turn();
    throw new Error("reset");
  };
  const { ending, raw } = await attempt(writes, {}, { clock });
  await clock.pass();
  assert.equal(ending.outcome, "retry");
  assert.deepEqual([raw.join().includes("one "), raw.join().includes("two ")], [true, false]);
});

const train = "a🚆b";

void test("a character may be cut between two requests", async () => {
  const clock = new StillClock();
  const writes = async (task: Task) => {
    await task.write(train.slice(0, 2));
    await clock.pass(); // it is sent
    await task.write(train.slice(2));
    await task.step("a", async () => {
      await task.write(train.slice(0, 2));
      await clock.pass();
      await task.write(train.slice(2));
    });
  };
  const { events } = await attempt(writes, {}, { clock });
  const texts = events.flatMap((e) => e.artifactUpdate?.artifact.parts[0]?.text ?? []);
  assert.deepEqual(texts, ["a", "🚆b", "a", "🚆b"]);
});

void test("what is left of a cut character is replaced", async () => {
  const writes = async (task: Task) => {
    for (const half of train.split("")) {
      await task.write(half);
    }
    await task.step("a", async () => {
      for (const half of train.split("")) {
        await task.write(half);
      }
    });
    await task.gather(
      () => task.step("b", () => task.artifact("b").write(train.slice(0, 2))),
      () => task.step("c", () => task.artifact("c").write(train.slice(2))),
    );
    await task.write(train.slice(0, 2));
    await task.status(train.slice(0, 2));
    return await task.step("d", () => ({ [train.slice(0, 2)]: train.slice(2) }));
  };
  const { artifacts, data } = await crashEverywhere(writes, "x");
  const texts = Object.values(artifacts).map(({ id, text }) => [id, text]);
  const [start, end] = ["a\ufffd", "\ufffdb"];
  assert.deepEqual(Object.fromEntries(texts), { answer: train + train + start, b: start, c: end });
  assert.deepEqual(data, { [start]: end });
});
