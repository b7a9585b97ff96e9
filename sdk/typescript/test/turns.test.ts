// What is recorded for one message is not returned for the next one.
import assert from "node:assert/strict";
import { test } from "node:test";

import { TimeoutError, type Message, type Task } from "../src/index.js";
import { crashEverywhere, run, type Result } from "../src/testing.js";
import { attempt, said } from "./kit.js";

void test("a handler asks again", async () => {
  const asks = async (task: Task, message: Message) => {
    if (task.saved === undefined) {
      await task.checkpoint({ asked: 1 });
      await task.ask("Your name?");
    }
    if ((task.saved as { asked: number }).asked === 1) {
      await task.checkpoint({ asked: 2, name: message.text });
      await task.ask("Delete everything?");
    }
    return `${(task.saved as { name: string }).name} said ${message.text}`;
  };
  const r = await run(asks, "x", { answers: ["Ann", "no"], handler: true });
  assert.deepEqual([r.text, r.questions], ["Ann said no", ["Your name?", "Delete everything?"]]);
});

interface Talk {
  read: number;
  said: string[];
}

void test("a conversation", async () => {
  const chat = async (task: Task, message: Message) => {
    const talk = (task.saved ?? { read: 0, said: [] }) as unknown as Talk;
    if (talk.read < task.messageNumber) {
      const reply = await task.step("model", () => `re: ${message.text}. `);
      await task.write(reply);
      if (message.text === "bye") {
        return;
      }
      await task.checkpoint({ read: task.messageNumber, said: [...talk.said, message.text, reply] });
    }
    await task.ask("Anything else?");
  };
  const r = await crashEverywhere(chat, "one", { answers: ["two", "two", "bye"], handler: true });
  assert.equal(r.artifacts.answer?.text, "re: one. re: two. re: two. re: bye. ");
});

for (const compares of [true, false]) {
  void test(`a handler does its steps for each message, ${compares ? "with" : "without"} an input`, async () => {
    const replies = async (task: Task, message: Message) => {
      const reply = await task.step("model", () => `re: ${message.text}`, compares ? { input: message.text } : {});
      const all = [...((task.saved ?? []) as string[]), reply];
      await task.checkpoint(all);
      if (all.length < 3) {
        await task.ask("And then?");
      }
      return all.join("; ");
    };
    const r = await run(replies, "one", { answers: ["two", "three"], handler: true });
    assert.equal(r.text, "re: one; re: two; re: three");
  });
}

void test("a handler does other steps after a checkpoint", async () => {
  const twoSteps = async (task: Task) => {
    if (task.saved === undefined) {
      await task.checkpoint([await task.step("model", () => "first")]);
    }
    const second = await task.step("model", () => "second");
    if (task.attempt === 1) {
      throw new Error("crash");
    }
    return [...(task.saved as unknown as string[]), second];
  };
  const r = await run(twoSteps, "x", { handler: true });
  assert.deepEqual(r.data, ["first", "second"]);
  assert.equal(Object.keys(r.steps).length, 2);
});

void test("keys of a handler do not depend on the order of members", async () => {
  const plans = async (task: Task) => {
    await task.checkpoint({ n: 1, "10": { b: 1, a: 2 } });
    await task.step("plan", () => 1);
  };
  for (const checkpoint of [undefined, { "10": { a: 2, b: 1 }, n: 1 }]) {
    const { events } = await attempt(plans, { checkpoint }, { replay: false });
    assert.equal(events[1]?.step?.key, "5c91750f/plan#1");
  }
});

void test("text of a handler is not shown twice", async () => {
  const writes = async (task: Task) => {
    if (task.saved === undefined) {
      await task.write("Hello");
      await task.checkpoint(1);
    }
    await task.write(", wor");
    await task.status("Thinking");
    await task.artifact("table").data([1], { append: true });
    if (task.attempt === 1) {
      throw new Error("crash");
    }
    await task.write("ld.");
  };
  const r = await run(writes, "x", { handler: true });
  assert.equal(r.artifacts.answer?.text, "Hello, world.");
  // An artifact that did not exist becomes an empty text.
  assert.deepEqual(r.artifacts.table?.parts, [{ text: "" }, { data: [1] }]);
  await crashEverywhere(writes, "x", { handler: true, compare: (got) => got.artifacts.answer?.text });
});

void test("text of a handler remains when the client answers", async () => {
  const asks = async (task: Task, message: Message) => {
    if (message.text === "x") {
      await task.write("Hello. ");
      await task.ask("Your name?");
    }
    await task.write(`Bye, ${message.text}.`);
  };
  const r = await crashEverywhere(asks, "x", { answers: ["Ann"], handler: true });
  assert.equal(r.artifacts.answer?.text, "Hello. Bye, Ann.");
});

void test("text of a handler is written again when nobody answers", async () => {
  const asks = async (task: Task) => {
    await task.write("Hello. ");
    try {
      await task.ask("Your name?", { timeout: "1h" });
    } catch (err) {
      assert.ok(err instanceof TimeoutError);
      await task.write("Bye.");
    }
  };
  const r = await crashEverywhere(asks, "x", { handler: true });
  assert.deepEqual([r.artifacts.answer?.text, r.questions], ["Hello. Bye.", ["Your name?"]]);
});

void test("a step of a handler keeps its text", async () => {
  const streams = async (task: Task) => {
    await task.write("Well: ");
    await task.step("model", () => task.write("text. "));
    await task.checkpoint(1);
    await task.write("End.");
  };
  assert.equal((await run(streams, "x", { handler: true })).artifacts.answer?.text, "Well: text. End.");
});

void test("text of a handler before a step is sent once", async () => {
  const streams = async (task: Task) => {
    await task.write("Well");
    await task.artifact("answer").data([1], { append: true });
    await task.step("model", () => task.write(": text. "));
    await task.write("Then: ");
    await task.step("model", () => task.write("more. "));
    await task.write("End.");
  };
  const shown = (r: Result) => r.artifacts.answer?.parts.map((p) => p.text ?? JSON.stringify(p.data)).join("");
  const r = await crashEverywhere(streams, "x", { handler: true, compare: shown });
  assert.equal(shown(r), "Well[1]: text. Then: more. End.");
});

for (const [said, sent] of [
  ["Intro 🚆. Sorry.", "Sorry."],
  ["Sorry.", "Sorry."],
  ["Intro", ""],
  ["Intro: I am sorry.", ": I am sorry."],
  ["Intro 🚂. Sorry.", "🚂. Sorry."],
  ["Intro 🚆. Intro. All is down.", "Intro. All is down."],
] as const) {
  void test(`text of a handler that takes another path is not lost: ${said}`, async () => {
    const writes = async (task: Task) => {
      if (task.attempt < 3) {
        await task.write("Intro 🚆. ");
        await task.artifact("table").data([1]);
        await task.artifact("table").data([2], { append: true });
        await task.step("model", () => task.write("half"));
        await task.step("table", () => task.artifact("table").write("half"));
        throw new Error("reset");
      }
      for (let i = 0; i < said.length; i++) {
        await task.write(said.charAt(i)); // also half a pair
      }
      await task.artifact("table").data([1]);
      await task.artifact("table").data([3], { append: true });
    };
    const r = await run(writes, "x", { handler: true });
    assert.equal(r.artifacts.answer?.text, `Intro 🚆. half${sent}`);
    const parts = r.artifacts.table?.parts.map((p) => p.text ?? p.data);
    assert.deepEqual(parts, [[1], [2], "half", [3]]);
  });
}

void test("text of a handler after a step does not repeat what was before", async () => {
  const laughs = async (task: Task) => {
    await task.write(task.attempt === 1 ? "Ha. Ha. " : "Ha. ");
    await task.step("model", () => task.write("Well. "));
    if (task.attempt === 1) {
      throw new Error("reset");
    }
    await task.write("Ha. ");
  };
  assert.equal((await run(laughs, "x", { handler: true })).artifacts.answer?.text, "Ha. Ha. Well. Ha. ");
});

for (const name of ["model", "other"]) {
  void test(`what a handler writes after a step is sent if it wrote nothing before: ${name}`, async () => {
    const writes = async (task: Task) => {
      if (task.attempt === 1) {
        await task.write("Sorry. ");
      }
      await task.step(task.attempt === 1 ? "model" : name, () => task.write("Well. "));
      if (task.attempt === 1) {
        throw new Error("reset");
      }
      await task.write("Sorry. ");
    };
    const { text } = (await run(writes, "x", { handler: true })).artifacts.answer ?? {};
    assert.equal(text, `Sorry. ${"Well. ".repeat(name === "model" ? 1 : 2)}Sorry. `);
  });
}

void test("what a handler writes after a step that begins again is sent", async () => {
  let runs = 0;
  const model = async (task: Task) => {
    await task.write("model ");
    if (runs < 3) {
      throw new Error("reset");
    }
  };
  const writes = async (task: Task) => {
    runs++;
    if (runs !== 2) {
      await task.step("model", () => model(task), { retries: 3, backoff: 60 });
    }
    await task.write("End. ");
    await task.step("other", () => task.write("other "));
    if (runs === 2) {
      throw new Error("reset");
    }
  };
  // When the step begins again, what came after it in the second run is removed.
  assert.equal((await run(writes, "x", { handler: true })).artifacts.answer?.text, "model End. ");
});

void test("half a character of a handler before a step is sent once", async () => {
  const streams = async (task: Task) => {
    await task.write("A\ud83dB\udc00C\ud83d");
    await task.step("model", () => task.write("<s>"));
    await task.write("\ude86E\ud83d");
    await task.artifact("answer").data([1], { append: true });
    await task.write("\ude86.");
    await task.step("model", () => task.write("<s>"));
  };
  const shown = (r: Result) => r.artifacts.answer?.parts.map((p) => p.text ?? JSON.stringify(p.data)).join("");
  const r = await crashEverywhere(streams, "x", { handler: true, compare: shown });
  assert.equal(shown(r), "A\ufffdB\ufffdC\ufffd<s>\ufffdE[1]🚆.<s>");
});

void test("a character that data cuts is whole if a handler takes another path", async () => {
  const writes = async (task: Task) => {
    if (task.attempt === 1) {
      await task.write("A");
      await task.step("model", () => task.write("<s>"));
      throw new Error("reset");
    }
    await task.write("\ud83d");
    await task.artifact("answer").data([1], { append: true });
    await task.write("\ude86.");
  };
  const { parts } = (await run(writes, "x", { handler: true })).artifacts.answer ?? {};
  assert.deepEqual(parts?.map((p) => p.text ?? p.data), ["A", "<s>", [1], "🚆."]);
});

void test("text of a handler before a step is sent again if it is long", async () => {
  const limit = "x".repeat(128 * 1024 - 3);
  const streams = async (task: Task) => {
    for (const text of [limit, "and more", "and"]) {
      await task.write(text);
    }
    await task.step("model", () => task.write("text"));
    if (task.attempt === 1) {
      throw new Error("reset");
    }
  };
  const text = (await run(streams, "x", { handler: true })).artifacts.answer?.text;
  assert.equal(text?.slice(limit.length), "and moreandtextand moreand");
  assert.ok(text.startsWith(limit));
});

void test("a message to a busy agent is a turn of its own", async () => {
  const plans = (task: Task, message: Message) => {
    assert.equal(task.idempotencyKey("pay"), "t:m3/pay");
    return task.step("plan", () => `plan for ${message.text}`);
  };
  const messages = [said("1", "Lyon"), said("2", "Monday"), said("1", "Paris")];
  const steps = [
    { key: "plan#1", kind: "step", name: "plan", endedAt: "x", result: "for Lyon" },
    { key: "ask#1", kind: "wait", endedAt: "x", result: { by: "message", messageId: "2" } },
  ];
  const { events } = await attempt(plans, { messages: messages.slice(2), task: { history: messages }, steps });
  assert.deepEqual([events[0]?.step?.key, events[0]?.step?.result], ["m3/plan#1", "plan for Paris"]);
});

void test("keys of a turn have one prefix", async () => {
  const gathers = async (task: Task) => {
    await task.write("Hello.");
    await task.status("Looking");
    await task.gather(() => task.step("look", () => 1));
    await task.sleep(1);
  };
  const messages = [said("1", "Lyon"), said("2", "Paris")];
  const { events } = await attempt(gathers, { messages: messages.slice(1), task: { history: messages } });
  assert.deepEqual(
    events.flatMap((e) => e.step?.key ?? e.wait?.key ?? []),
    ["m2/write:answer#1", "m2/write:answer#1", "m2/status#1", "m2/gather#1.1/look#1", "m2/sleep#1"],
  );
});

void test("a task has what the requests said", async () => {
  const seen: unknown[] = [];
  const looks = (task: Task) => {
    seen.push(task.requestMetadata, task.extensions);
  };
  const messages = [said("1", "Lyon"), said("2", "Monday")];
  await attempt(looks, { messages });
  const requestMetadata = [null, { tier: "gold" }];
  const extensions = ["https://example.com/trips"];
  await attempt(looks, { messages, requestMetadata, extensions });
  assert.deepEqual(seen, [[null, null], [], requestMetadata, extensions]);
});
