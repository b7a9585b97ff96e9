// Workers and a real server: what the conformance suite does not show.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { lastText, project, TestServer, TestWorker, textOf, until } from "./server.js";

const server = new TestServer(["trip", "reviewer", "many", "typed", "both"]);
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

const repository = fileURLToPath(new URL("../../../../../", import.meta.url));

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

const many = `
import { Worker } from "@a2ad/worker";

const worker = new Worker();
worker.agent("many", { concurrency: 150 }, async (task) => {
  let n = 0;
  for (let i = 0; i < 12; i++) {
    const ones = Array.from({ length: 100 }, () => () => task.step("one", () => 1));
    n += (await task.gather(...ones)).length;
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

const inPython = `
from a2ad import Worker
worker = Worker()

@worker.agent("both")
async def both(task, message):
    plan = await task.step("plan", lambda city, days: f"{days} days in {city}", "Zürich", 3)
    await task.status("Looking")
    await task.artifact("table").data({"rows": [1, 2.5, 0.00001]}, append=True)
    await task.write("begun ")
    day = await task.ask("Which day?", choices=["Monday", "Tuesday"])
    await task.gather(task.step("a", lambda: 1), task.step("b", lambda: 2))
    await task.write("ended")
    ref = await task.signal("paid")
    return f"{plan}, {day}, {ref}"

worker.run()
`;

const inTypeScript = `
import { Worker } from "@a2ad/worker";

await new Worker()
  .agent("both", async (task) => {
    const plan = await task.step("plan", () => "of TypeScript", { args: ["Zürich", 3] });
    await task.status("Looking");
    await task.artifact("table").data({ rows: [1, 2.5, 0.00001] }, { append: true });
    await task.write("begun ");
    const day = await task.ask("Which day?", { choices: ["Monday", "Tuesday"] });
    await task.gather(() => task.step("a", () => 1), () => task.step("b", () => 2));
    await task.write("ended");
    const ref = await task.signal("paid");
    return \`\${plan}, \${day}, \${ref}\`;
  })
  .run();
`;

void test("each library continues the tasks of the other", async (t) => {
  const python = (program: string) => {
    const env = { ...process.env, A2AD_URL: server.url, PYTHONPATH: join(repository, "sdk/python/src") };
    const child = spawn("python3", ["-c", program], { env, stdio: "inherit" });
    t.after(() => child.kill("SIGKILL"));
    return child;
  };
  const begun = python(inPython);
  const id = await server.send("both", "x");
  await server.reached("both", id, "INPUT_REQUIRED");
  begun.kill("SIGKILL");
  await once(begun, "exit");
  const worker = start(project(server, "both"), inTypeScript);
  await server.send("both", "Monday", id);
  await until("the signal", () => server.task("show", id).includes("signal:paid#1"));
  await worker.stop();
  const ended = python(inPython);
  server.task("signal", id, "paid", '"r-17"');
  const task = await server.reached("both", id, "COMPLETED");
  ended.kill("SIGTERM");
  await once(ended, "exit");
  assert.deepEqual([lastText(task), textOf(task)], ["3 days in Zürich, Monday, r-17", "begun ended"]);
  assert.doesNotMatch(server.task("show", id), /retry|nondeterminism/);
});
