// One conversation that the agent of each framework has, while its worker is killed.
//
// The fake model of each framework answers three times: it looks up orders, wants to pay one back, and says that it has.
import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, type TestContext } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";

import { Worker, type AgentFunction } from "../../src/index.js";
import { crashEverywhere, type Result } from "../../src/testing.js";
import { claimed, FakeServer, ok } from "../fake.js";
import { TestServer, TestWorker, textOf, until } from "../live/server.js";
import { done, Effects } from "./effects.js";

const packageRoot = fileURLToPath(new URL("../../../", import.meta.url));
const repository = join(packageRoot, "../..");

/** The text of the first answer of the model, in two chunks. */
export const lookup = ["Looking up ", "orders. "] as const;
export const final = ["Paid ", "back."] as const;
const wholeText = [...lookup, ...final].join("");

/** Returns the orders in the message of the client: A7, B2. */
export const ordersIn = (text: string) => text.split(" ").filter((word) => /\d$/.test(word));

const everything = [
  "model 1",
  "model 1 in the middle",
  "GET /orders/A7",
  "model 2",
  "POST /orders/A7/refund",
  "model 3",
  "model 3 in the middle",
];

/** Makes a directory with the agent of an example, which can import the library and the packages that it needs. */
export function exampleProject(example: string, packages: readonly string[]): string {
  const directory = mkdtempSync(join(tmpdir(), `a2ad-${example}-`));
  after(() => {
    rmSync(directory, { recursive: true, force: true });
  });
  const modules = join(directory, "node_modules");
  const library = join(modules, "@a2ad", "worker");
  mkdirSync(library, { recursive: true });
  copyFileSync(join(packageRoot, "package.json"), join(library, "package.json"));
  symlinkSync(join(packageRoot, "build", "src"), join(library, "dist")); // the same modules as those of the tests
  for (const name of packages) {
    mkdirSync(join(modules, name, ".."), { recursive: true });
    symlinkSync(join(packageRoot, "node_modules", name), join(modules, name));
  }
  writeFileSync(join(directory, "package.json"), '{"type": "module"}\n');
  copyFileSync(join(repository, "examples", "frameworks", example, "agent.ts"), join(directory, "agent.ts"));
  return directory;
}

/** Imports the agent of such a directory. */
export async function importAgent<T>(directory: string): Promise<T> {
  return (await import(pathToFileURL(join(directory, "agent.ts")).href)) as T;
}

/** Lets the agent crash at each request, and counts what it does. */
export async function crashesRepeatLittle(agent: AgentFunction): Promise<Result> {
  const startsOfRuns: number[] = [];
  const counted: AgentFunction = async (task, message) => {
    if (task.attempt === 1 && task.messages.length === 1) {
      startsOfRuns.push(done.length);
    }
    return await agent(task, message);
  };
  // Tools of one answer run at once, and are recorded in any order, each by itself or together.
  const compare = (r: Result) => [r.state, textIn(r), r.questions, r.usage];
  done.length = 0;
  const result = await crashEverywhere(counted, "Pay A7 and B2 back", { answers: ["yes"], compare });
  assert.deepEqual([result.state, textIn(result)], ["completed", wholeText]);
  const all = new Set([...everything, "GET /orders/B2"]);
  assert.deepEqual(new Set(done), all);
  // A crash may repeat the model call that was running, which notes two things, or the two tool calls. What was recorded
  // before is not done again, neither then nor after the question.
  for (const [i, start] of startsOfRuns.entries()) {
    const effects = done.slice(start, startsOfRuns[i + 1]);
    assert.ok(effects.length >= all.size && effects.length <= all.size + 2, `run ${i + 1}: ${effects.join(", ")}`);
  }
  return result;
}

export const textIn = (r: Result) => r.artifacts.answer?.text;

/** Kills the worker in the middle of each thing that it does, and answers its question. */
export async function killsRepeatLittle(t: TestContext, directory: string, fake: string): Promise<void> {
  // A lease outlasts the pauses of a busy machine. A worker that loses its lease works twice.
  const server = new TestServer(["support"], "5s");
  const workers: TestWorker[] = [];
  t.after(async () => {
    await Promise.all(workers.map((w) => w.kill()));
    await server.stop();
  });
  await server.start();
  const program = `
import { Worker } from "@a2ad/worker";
import { shop } from ${JSON.stringify(new URL("effects.js", import.meta.url).href)};
import { model } from ${JSON.stringify(new URL(fake, import.meta.url).href)};
import { support } from "./agent.ts";

const worker = new Worker();
worker.agent("support", support(model(), shop));
await worker.run();
`;
  process.env.EFFECTS = directory; // for the workers
  const effects = new Effects(directory);
  const startAt = (stop: string) => {
    effects.stopNextAt(stop);
    const worker = new TestWorker(server, directory, program);
    workers.push(worker);
    return worker;
  };
  const killAt = async (what: string) => {
    const before = effects.count(what);
    const worker = startAt(what);
    await until(what, () => effects.count(what) > before);
    if (what.endsWith("in the middle")) {
      // The client has the first half of the sentence before the second one exists.
      const half = what.startsWith("model 1") ? lookup[0] : [...lookup, final[0]].join("");
      await until("half a sentence", async () => textOf(await server.get("support", task)) === half);
    }
    await worker.kill();
  };
  const task = await server.send("support", "Pay A7 back");
  for (const what of everything.slice(0, 4)) {
    await killAt(what);
  }
  let worker = startAt("");
  const asked = await server.reached("support", task, "INPUT_REQUIRED");
  assert.equal(asked.status.message?.parts[0]?.text, "Pay 30 EUR of A7 back?");
  await worker.kill();
  await server.send("support", "yes", task);
  for (const what of everything.slice(4)) {
    await killAt(what);
  }
  worker = startAt("");
  const ended = await server.reached("support", task, "COMPLETED");
  await worker.kill();
  assert.equal(textOf(ended), wholeText);
  assert.deepEqual(
    Object.fromEntries([...new Set(effects.list())].map((what) => [what, effects.count(what)])),
    {
      // Killed once at the beginning and once in the middle, which was reached once more.
      "model 1": 3,
      "model 1 in the middle": 2,
      "GET /orders/A7": 2,
      "model 2": 2,
      "POST /orders/A7/refund": 2,
      "model 3": 3,
      "model 3 in the middle": 2,
    },
  );
}

/** Cancels the task of an agent while the agent does `work`, and returns when the signal of the work has aborted. */
export async function cancelReaches(
  t: TestContext,
  agentThat: (work: (signal?: AbortSignal) => Promise<never>) => AgentFunction,
): Promise<void> {
  let begun = false;
  let reached: () => void;
  const canceled = new Promise<void>((done) => (reached = done));
  const work = async (signal?: AbortSignal) => {
    begun = true;
    return await new Promise<never>((_, fail) => {
      signal?.addEventListener("abort", () => {
        reached();
        fail(signal.reason as Error);
      });
    });
  };
  const server = new FakeServer(claimed("t", { leaseSeconds: 0.03 }));
  server.answer = (path) => (path.endsWith("/heartbeat") && begun ? [200, { cancelRequested: true }] : ok);
  const ignore = () => undefined;
  const logger = { info: ignore, warn: ignore, error: ignore };
  const worker = new Worker({ url: await server.start(), logger, grace: 0 }).agent("a", agentThat(work));
  const served = worker.serve();
  t.after(async () => {
    worker.stop();
    await served;
    server.close();
  });
  await canceled;
}

/** Asserts that the block in a section of the how-to page is part of the example. */
export function pageShowsExample(example: string, heading: string): void {
  const page = readFileSync(join(repository, "docs", "how-to", "frameworks-js.md"), "utf8");
  const block = page.split(`\n## ${heading}\n`)[1]?.split("\n## ")[0]?.split("```ts\n")[1]?.split("```")[0] ?? "";
  assert.match(block, /async \(task, message\) =>/);
  const agent = readFileSync(join(repository, "examples", "frameworks", example, "agent.ts"), "utf8");
  // The example indents what the page shows.
  const withoutIndent = (text: string) => text.replace(/^ +/gm, "");
  assert.ok(withoutIndent(agent).includes(withoutIndent(block)), `agent.ts of ${example} is not what the page shows`);
}
