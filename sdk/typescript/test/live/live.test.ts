// Workers and a real server: killed, stopped, canceled, and slow.
import assert from "node:assert/strict";
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";

import { freePort, lastText, project, TestServer, TestWorker, textOf, until } from "./server.js";

const server = new TestServer(["trip", "reviewer", "words", "letters", "many", "typed", "counts", "wrong", "spends"]);
const workers: TestWorker[] = [];

before(async () => {
  await server.start();
});

afterEach(async () => {
  await Promise.all(workers.map((w) => w.kill())); // of a test that has failed
});

after(async () => {
  await server.stop();
});

/** Starts a worker, which is killed at the end. */
function start(directory: string, program: string): TestWorker {
  const worker = new TestWorker(server, directory, program);
  workers.push(worker);
  return worker;
}

// The example of the README, with fakes that note in a file what they do.
const fakes = `
import { appendFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";

const did = (what) => appendFileSync("effects", what + "\\n");
const makePlan = (text) => {
  did("plan " + text);
  return "the train to " + text;
};
async function* writeUp(plan) {
  for (const word of \`We take \${plan}.\`.split(" ")) {
    await pause(10);
    yield word + " ";
  }
}
const pay = (plan) => {
  did("pay " + plan);
  return "r-17";
};
`;

/** Returns the first block of the README as it stands, but for a day that takes a second. */
function readmeExample(): string {
  const readme = readFileSync(new URL("../../../README.md", import.meta.url), "utf8");
  const example = /```ts\n(.*?)```/s.exec(readme)?.[1] ?? "";
  assert.match(example, /await task\.sleep\("24h"\);/);
  assert.match(example, /await worker\.run\(\);/);
  return example.replace('"24h"', '"1s"');
}

const trip = fakes + readmeExample();

const reviewer = `
import { Worker } from "@a2ad/worker";

await new Worker().agent("reviewer", (task, message) => \`\${message.text}: fine\`).run();
`;

void test("trips survive kills of worker and server", async () => {
  const directory = project(server, "trip");
  const effects = join(directory, "effects");
  appendFileSync(effects, "");
  const done = () => readFileSync(effects, "utf8").split("\n").length - 1;
  const places = Array.from({ length: 12 }, (_, i) => `city ${i}`);
  const tasks = await Promise.all(places.map((p) => server.send("trip", p)));
  const open = new Set(tasks);
  const answer = async () => {
    for (const id of open) {
      if ((await server.get("trip", id)).status.state === "TASK_STATE_INPUT_REQUIRED") {
        await server.send("trip", "yes", id);
        open.delete(id);
      }
    }
  };
  start(project(server, "reviewer"), reviewer);
  let worker = start(directory, trip);
  for (let kill = 0; kill < 6; kill++) {
    const seen = done();
    await until("work", async () => {
      await answer();
      return done() > seen || done() >= 2 * tasks.length;
    });
    if (kill % 3 === 2) {
      await server.kill();
      await server.start();
    }
    await worker.kill();
    worker = start(directory, trip);
  }
  await until("questions", async () => {
    await answer();
    return open.size === 0;
  });
  for (const [i, id] of tasks.entries()) {
    const ended = await server.reached("trip", id, "COMPLETED");
    assert.equal(lastText(ended), "Check r-17: fine");
    assert.equal(textOf(ended), `We take the train to city ${i}. `);
  }
  // A step that was recorded did not run again: at most one repetition for each kill of eight runs.
  const did = readFileSync(effects, "utf8").trim().split("\n");
  assert.equal(new Set(did).size, 24);
  assert.ok(did.length <= 24 + 6 * 8, `${did.length} effects`);
  assert.equal(await worker.stop(), 0);
});

// It writes a letter at a time, and after the tenth it waits until the test has killed it.
const letters = `
import { existsSync, appendFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { Worker } from "@a2ad/worker";

const worker = new Worker();
const write = async (to) => {
  for (const [i, letter] of [..."abcdefghijklmnopqrstuvwxyz"].entries()) {
    while (i === 10 && !existsSync("killed")) {
      await pause(10);
    }
    await to.write(letter);
    await pause(1);
  }
};
worker.agent("letters", async (task, message) => {
  await task.step("first", () => appendFileSync("first", "."));
  if (message.text === "step") {
    await task.step("model", () => write(task.artifact("text")));
  } else {
    await write(task.artifact("text"));
  }
  return "done";
});
await worker.run();
`;

for (const where of ["stream", "step"]) {
  void test(`a worker killed in the middle of a ${where} leaves no half text`, async () => {
    const directory = project(server, where);
    const killed = start(directory, letters);
    const id = await server.send("letters", where);
    await until("half a text", async () => textOf(await server.get("letters", id), "text") === "abcdefghij");
    await killed.kill();
    appendFileSync(join(directory, "killed"), "");
    const worker = start(directory, letters);
    assert.equal(textOf(await server.reached("letters", id, "COMPLETED"), "text"), "abcdefghijklmnopqrstuvwxyz");
    assert.equal(readFileSync(join(directory, "first"), "utf8"), "."); // it was recorded
    await worker.stop();
  });
}

const words = (grace: number) => `
import { appendFileSync } from "node:fs";
import { Worker } from "@a2ad/worker";

const worker = new Worker({ grace: ${grace}, health: process.env.HEALTH });
worker.agent("words", async (task, message) => {
  task.abortSignal.addEventListener("abort", () => {
    appendFileSync("left", task.abortSignal.reason.why + (task.cancelled ? " cancelled" : ""));
  });
  await task.write("begun");
  await new Promise((done) => setTimeout(done, Number(message.text) * 1000));
  await task.write(" ended");
  return "done";
});
await worker.run();
`;

const begun = async (id: string) => {
  await until("a beginning", async () => textOf(await server.get("words", id)) === "begun");
};

void test("long work keeps its lease", async () => {
  const worker = start(project(server, "words"), words(20));
  const id = await server.send("words", "5"); // the lease is 2 s
  await server.reached("words", id, "COMPLETED");
  assert.equal(server.task("show", id).split(" attempt 1, ").length, 2, server.task("show", id));
  await worker.stop();
});

void test("a cancel stops the agent", async () => {
  const directory = project(server, "words");
  const worker = start(directory, words(20));
  const id = await server.send("words", "600");
  await begun(id);
  await server.call("words", "CancelTask", { id });
  const left = join(directory, "left");
  await until("the end", () => existsSync(left) && readFileSync(left, "utf8") === "canceled cancelled");
  assert.equal(await worker.stop(), 0); // although the function still waits
});

void test("a stopped worker releases what does not end in time", async () => {
  const worker = start(project(server, "words"), words(0.1));
  const id = await server.send("words", "600");
  await begun(id);
  assert.equal(await worker.stop(), 0);
  assert.match(server.task("show", id), /released/);
  await server.call("words", "CancelTask", { id });
});

void test("a stopped worker ends what it can", async () => {
  const worker = start(project(server, "words"), words(20));
  const id = await server.send("words", "1");
  await begun(id);
  assert.equal(await worker.stop(), 0);
  const task = await server.get("words", id);
  assert.deepEqual([task.status.state, textOf(task)], ["TASK_STATE_COMPLETED", "begun ended"]);
});

void test("a worker says whether it can work", async () => {
  const port = await freePort();
  const program = words(20).replace("process.env.HEALTH", `"127.0.0.1:${port}"`);
  const worker = start(project(server, "words"), program);
  const ready = async () => await fetch(`http://127.0.0.1:${port}/readyz`).then((a) => a.status, () => 0);
  await until("readiness", async () => (await ready()) === 200);
  await server.kill();
  await until("no readiness", async () => (await ready()) === 503);
  assert.equal((await fetch(`http://127.0.0.1:${port}/livez`)).status, 200);
  const { agents } = (await (await fetch(`http://127.0.0.1:${port}/status`)).json()) as { agents: unknown };
  assert.deepEqual(agents, { words: { running: 0, concurrency: 8 } });
  await server.start();
  await until("readiness again", async () => (await ready()) === 200);
  assert.equal(await worker.stop(), 0);
  assert.match(readFileSync(worker.log, "utf8"), / WARN claim failed agent=words err=.* again_in_seconds=/);
});

const wrong = (call: string) => `
import { Worker } from "@a2ad/worker";

const worker = new Worker();
worker.agent("wrong", async (task) => {
  await task.step("first", () => 1);
  return await ${call};
});
await worker.run();
`;

void test("a task waits for a corrected program", async () => {
  const directory = project(server, "wrong");
  const worker = start(directory, wrong('task.call("reviewr", "x")'));
  const id = await server.send("wrong", "x");
  await until("the mistake", () => server.task("show", id).includes("postponed"));
  assert.match(server.task("show", id, "-o", "json"), /reviewr.*\(at worker\.js:7:10\)/);
  assert.equal((await server.get("wrong", id)).status.state, "TASK_STATE_WORKING");
  await worker.stop();
  start(directory, wrong('"done"'));
  assert.equal(lastText(await server.reached("wrong", id, "COMPLETED")), "done");
});

const many = `
import { Worker } from "@a2ad/worker";

const worker = new Worker();
worker.agent("many", { concurrency: 150 }, async (task) => {
  let n = 0;
  for (let i = 0; i < 12; i++) {
    const ones = Array.from({ length: 100 }, () => task.step("one", () => 1));
    n += (await Promise.all(ones)).length;
  }
  await task.sleep("10ms");
  return String(n);
});
await worker.run();
`;

void test("more steps than a claim contains, and more slots than a claim may ask for", async () => {
  const worker = start(project(server, "many"), many);
  const id = await server.send("many", "x");
  assert.equal(lastText(await server.reached("many", id, "COMPLETED")), "1200");
  await worker.stop();
});

const typed = `
import { Worker } from "@a2ad/worker";
import { z } from "zod";

const Trip = z.object({ city: z.string(), days: z.number().default(1) });
const worker = new Worker();
worker.agent("typed", async (task) => {
  const trip = await task.ask("Where?", { returns: Trip });
  const [a, b] = await task.gather(
    () => task.step("a", () => trip.city.length),
    () => task.step("b", () => trip.days),
  );
  const go = await task.signal("go", { timeout: "1m" });
  return { a, b, go };
});
await worker.run();
`;

void test("the server checks answers against the schema of zod", async () => {
  const directory = project(server, "typed");
  const worker = start(directory, typed);
  const id = await server.send("typed", "x");
  await server.reached("typed", id, "INPUT_REQUIRED");
  await assert.rejects(server.send("typed", { data: { city: 7 } }, id), /city/);
  await server.send("typed", { data: { city: "Lyon" } }, id);
  server.task("signal", id, "go", '{"by": "Ann"}');
  const ended = await server.reached("typed", id, "COMPLETED");
  assert.deepEqual(ended.status.message?.parts[0]?.data, { a: 4, b: 1, go: { by: "Ann" } });
  await worker.stop();
});

const spends = `
import { Worker } from "@a2ad/worker";

const worker = new Worker();
worker.agent("spends", async (task) => {
  await task.usage({ inputTokens: 3 });
  await task.step("model", async () => {
    await task.usage({ model: "big", inputTokens: 12, outputTokens: 34, cachedInputTokens: 5, reasoningTokens: 2 });
    await task.usage({ model: "big", inputTokens: 8, requests: 1 });
  });
  await task.sleep("10ms"); // the function runs again
  return "done";
});
await worker.run();
`;

void test("the server adds up usage, and counts it once", async () => {
  const worker = start(project(server, "spends"), spends);
  const id = await server.send("spends", "x");
  await server.reached("spends", id, "COMPLETED");
  const { usage } = JSON.parse(server.task("show", id, "-o", "json")) as { usage: { inputTokens: number }[] };
  const numbers = { outputTokens: 0, cachedInputTokens: 0, reasoningTokens: 0, requests: 0 };
  assert.deepEqual(usage.sort((a, b) => a.inputTokens - b.inputTokens), [
    { ...numbers, inputTokens: 3 },
    { model: "big", inputTokens: 20, outputTokens: 34, cachedInputTokens: 5, reasoningTokens: 2, requests: 1 },
  ]);
  await worker.stop();
});

const counts = `
import { existsSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { Worker } from "@a2ad/worker";

const worker = new Worker();
worker.handler("counts", async (task) => {
  for (let n = task.saved ?? 0; n < 10; n++) {
    while (n === 5 && !existsSync("killed")) {
      await pause(10);
    }
    await task.write(n + " ");
    await task.checkpoint(n + 1);
  }
  return "done";
});
await worker.run();
`;

void test("a handler continues from its checkpoint after a kill", async () => {
  const directory = project(server, "counts");
  const killed = start(directory, counts);
  const id = await server.send("counts", "x");
  await until("half of it", async () => textOf(await server.get("counts", id)) === "0 1 2 3 4 ");
  await killed.kill();
  appendFileSync(join(directory, "killed"), "");
  const worker = start(directory, counts);
  assert.equal(textOf(await server.reached("counts", id, "COMPLETED")), "0 1 2 3 4 5 6 7 8 9 ");
  await worker.stop();
});
