/**
 * The driver of the TypeScript library: a worker whose agents are programs of the suite. It uses only the public API of
 * the library.
 */
import { readFileSync } from "node:fs";

import * as library from "../../src/index.js";
import { Worker, type Json, type Message, type Task } from "../../src/index.js";
import { run as runInMemory } from "../../src/testing.js";
import { EffectFailed, Program, type Instruction, type World } from "./program.js";

interface Job {
  /** Of the server. */
  url: string;
  /** Of the runner, which counts the effects of agents. */
  world: string;
  worker: string;
  /** Seconds. */
  grace: number;
  agents: { name: string; handler: boolean; concurrency: number; do: Instruction[] }[];
}

/** Returns the public names of the library. */
async function names(): Promise<Record<string, string[]>> {
  const found: Record<string, object> = { worker: new Worker() };
  await runInMemory((task) => {
    Object.assign(found, { task, artifact: task.artifact("a") });
  }, "x");
  const membersOf = (object: object) => {
    const prototype = Object.getPrototypeOf(object) as object;
    return [...Object.keys(object), ...Object.getOwnPropertyNames(prototype)].filter((n) => n !== "constructor");
  };
  const errors = Object.entries(library).flatMap(([name, v]) => (v.prototype instanceof Error ? [name] : []));
  return { ...Object.fromEntries(Object.entries(found).map(([of, object]) => [of, membersOf(object)])), errors };
}

if (process.argv[2] === "--names") {
  console.log(JSON.stringify(await names()));
  process.exit();
}
const job = JSON.parse(readFileSync(process.argv[2] ?? "", "utf8")) as Job;
const world: World = {
  async effect(name, key, signal) {
    const answer = await fetch(job.world, { method: "POST", body: JSON.stringify({ name, key }), signal });
    const { result, error } = (await answer.json()) as { result?: Json; error?: string };
    if (error) {
      throw new EffectFailed(error);
    }
    return result ?? null;
  },
};
const worker = new Worker({ url: job.url, name: job.worker, grace: job.grace });
for (const { name, handler, concurrency, do: program } of job.agents) {
  const run = (task: Task, message: Message) => Program.begin(task, message, world).result(program);
  if (handler) {
    worker.handler(name, { concurrency }, run);
  } else {
    worker.agent(name, { concurrency }, run);
  }
}
await worker.run();
