/**
 * The driver of the library for TypeScript: a worker whose agents are programs of the conformance suite. It uses the
 * public API of the library alone.
 */
import { readFileSync } from "node:fs";

import * as library from "@a2ad/worker";
import {
  CallError,
  Fail,
  Reject,
  Retry,
  StepError,
  TimeoutError,
  UsageError,
  Worker,
  type Json,
  type Message,
  type Task,
} from "@a2ad/worker";

/** One call of the library. Its first member is its verb, the others are its arguments: see README.md. */
type Instruction = Record<string, Json>;

interface Job {
  /** Of the server. */
  url: string;
  /** What the agents have effects on. */
  world: string;
  worker: string;
  /** Seconds. */
  grace: number;
  agents: { name: string; handler: boolean; concurrency: number; do: Instruction[] }[];
}

/** What the program has returned; undefined if it goes on. */
type Returned = { value: unknown } | undefined;

class EffectFailed extends Error {
  override name = "EffectFailed";
}

class Crash extends Error {
  override name = "Crash";
}

const list = (v: Json | undefined) => (v ?? []) as Instruction[];

/** Does something outside, and returns its result. The runner counts effects, and says how each of them ends. */
async function effect(world: string, name: string, key: string, signal: AbortSignal): Promise<Json> {
  const answer = await fetch(world, { method: "POST", body: JSON.stringify({ name, key }), signal });
  const { result, error } = (await answer.json()) as { result?: Json; error?: string };
  if (error) {
    throw new EffectFailed(error);
  }
  return result ?? null;
}

/** Returns the text of an error, without what languages add, and its kind. */
function kindOf(err: unknown): { text: string; kind: string } {
  if (err instanceof StepError) {
    return { text: err.text, kind: "step" };
  }
  if (err instanceof CallError) {
    return { text: `${err.state}: ${err.text}`, kind: "call" };
  }
  if (err instanceof TimeoutError) {
    return { text: "", kind: "timeout" };
  }
  return { text: "", kind: err instanceof UsageError ? "usage" : "" };
}

/** One run of an agent. */
class Program {
  constructor(
    readonly task: Task,
    readonly world: string,
    readonly vars: Map<string, unknown>,
  ) {}

  static begin(task: Task, message: Message, world: string): Program {
    const vars = new Map<string, unknown>([
      ["message", message.text],
      ["messages", task.messages.map((m) => m.text).join(",")],
      ["attempt", task.attempt],
      ["saved", task.saved ?? null],
    ]);
    return new Program(task, world, vars);
  }

  /** Returns the same program with variables of its own. */
  branch(): Program {
    return new Program(this.task, this.world, new Map(this.vars));
  }

  /** Executes instructions until one of them returns. */
  async play(instructions: Instruction[]): Promise<Returned> {
    for (const i of instructions) {
      const returned = await this.control(i);
      if (returned !== undefined) {
        return returned;
      }
    }
    return undefined;
  }

  async result(instructions: Instruction[]): Promise<unknown> {
    return (await this.play(instructions))?.value;
  }

  /** Executes an instruction that directs the program, and leaves the others to call. */
  async control(i: Instruction): Promise<Returned> {
    if ("return" in i) {
      return { value: this.value(i.return) };
    }
    if ("if" in i) {
      return this.play(list(this.value(i.if) === (i.is ?? null) ? i.then : i.else));
    }
    if ("try" in i) {
      try {
        return await this.play(list(i.try));
      } catch (err) {
        const { text, kind } = kindOf(err);
        if (kind !== i.catch) {
          throw err;
        }
        this.vars.set("error", text);
        return this.play(list(i.then));
      }
    }
    if ("repeat" in i) {
      for (let n = 0; n < Number(i.repeat); n++) {
        await this.play(list(i.do));
      }
      return undefined;
    }
    const result = await this.call(i);
    if (typeof i.as === "string") {
      this.vars.set(i.as, result);
    }
    return undefined;
  }

  /** Calls the library once. */
  async call(i: Instruction): Promise<unknown> {
    const { task } = this;
    const verb = Object.keys(i)[0] ?? "";
    const what = i[verb];
    const text = typeof what === "string" ? this.text(what) : "";
    const timeout = typeof i.timeout === "string" ? { timeout: i.timeout } : {};
    switch (verb) {
      case "write":
        return typeof i.to === "string" ? task.artifact(i.to).write(text) : task.write(text);
      case "artifact":
        return this.artifact(text, i);
      case "status":
        return task.status(text);
      case "step":
        return this.step(text, i);
      case "effect":
        return effect(this.world, text, task.idempotencyKey(text), task.abortSignal);
      case "ask":
        if (i.schema !== undefined) {
          return task.ask(text, { schema: i.schema as object, ...timeout });
        }
        return task.ask(text, { ...(i.choices !== undefined && { choices: i.choices as string[] }), ...timeout });
      case "authRequired":
        return (await task.authRequired(text, timeout)).text;
      case "sleep":
        return task.sleep(text);
      case "sleepUntil":
        return task.sleepUntil(new Date(text));
      case "signal":
        return task.signal(text, timeout);
      case "call":
        return (await task.call(text, this.text(String(i.message)), i.abandon === true ? { abandon: true } : {})).text;
      case "gather":
        return task.gather(...(what as Instruction[][]).map((b) => () => this.branch().result(b)));
      case "checkpoint":
        return task.checkpoint(this.value(what));
      case "usage": {
        const [inputTokens, outputTokens] = i.tokens as [number, number];
        return task.usage({ model: text, inputTokens, outputTokens });
      }
      case "names":
        return {
          task: names(task),
          artifact: names(task.artifact("a")),
          worker: names(new Worker()),
          errors: Object.entries(library).flatMap(([name, v]) => (v.prototype instanceof Error ? [name] : [])),
        };
      case "fail":
        throw new Fail(text);
      case "reject":
        throw new Reject(text);
      case "retry":
        throw new Retry(text, typeof i.after === "number" ? { after: i.after } : {});
      case "crash":
        throw new Crash(text);
    }
    throw new Error(`the driver does not know the instruction ${JSON.stringify(i)}`);
  }

  artifact(name: string, i: Instruction): Promise<void> {
    const a = this.task.artifact(name);
    const append = i.append === true ? { append: true } : {};
    if (typeof i.file === "string") {
      return a.file(Buffer.from(i.file), { filename: "file.txt", mediaType: "text/plain", ...append });
    }
    if (typeof i.link === "string") {
      return a.link(i.link);
    }
    return typeof i.replace === "string" ? a.replace(this.text(i.replace)) : a.data(this.value(i.data), append);
  }

  /** Does the instructions of a step. Without any, the step is an effect of its name. */
  step(name: string, i: Instruction): Promise<unknown> {
    const work = (abort: AbortSignal) =>
      i.do === undefined
        ? effect(this.world, name, this.task.idempotencyKey(name), abort)
        : this.branch().result(list(i.do));
    return this.task.step(name, work, {
      ...(i.input !== undefined && { input: this.value(i.input) }),
      ...(typeof i.retries === "number" && { retries: i.retries }),
      ...(typeof i.backoff === "string" && { backoff: i.backoff }),
      ...(typeof i.timeout === "string" && { timeout: i.timeout }),
    });
  }

  /** Replaces the variables of a text. */
  text(text: string): string {
    return text.replace(/\{(\w+)\}/g, (_, name: string) => {
      const value = this.vars.get(name);
      return typeof value === "string" ? value : JSON.stringify(value);
    });
  }

  /** Replaces the variables of a value. A text that is one variable alone becomes its value. */
  value(value: Json | undefined): unknown {
    if (typeof value === "string") {
      const whole = /^\{(\w+)\}$/.exec(value)?.[1];
      return whole === undefined ? this.text(value) : this.vars.get(whole);
    }
    if (Array.isArray(value)) {
      return value.map((v) => this.value(v));
    }
    if (typeof value === "object" && value !== null) {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, this.value(v)]));
    }
    return value;
  }
}

/** Returns the names of the members of an object, and of its class. */
function names(object: object): string[] {
  const all = [...Object.keys(object), ...Object.getOwnPropertyNames(Object.getPrototypeOf(object))];
  return all.filter((n) => n !== "constructor").sort();
}

const job = JSON.parse(readFileSync(process.argv[2] ?? "", "utf8")) as Job;
const worker = new Worker({ url: job.url, name: job.worker, grace: job.grace });
for (const { name, handler, concurrency, do: program } of job.agents) {
  const run = (task: Task, message: Message) => Program.begin(task, message, job.world).result(program);
  if (handler) {
    worker.handler(name, { concurrency }, run);
  } else {
    worker.agent(name, { concurrency }, run);
  }
}
await worker.run();
