/**
 * Plays the programs of the conformance suite. It uses only the public API of the library.
 */
import { setTimeout as pause } from "node:timers/promises";

import {
  CallError,
  Fail,
  Reject,
  Retry,
  StepError,
  TimeoutError,
  UsageError,
  type Abort,
  type Json,
  type Message,
  type Task,
} from "../../src/index.js";

export type Instruction = Record<string, Json>;

/** Answers the effects of agents. It gives up when the library ends the attempt or the step. */
export interface World {
  effect(name: string, key: string, abort: Abort): Promise<Json>;
}

/** The world answered an effect with an error. */
export class EffectFailed extends Error {
  override name = "EffectFailed";
}

/** An error that the library does not know. */
class Crash extends Error {
  override name = "Crash";
}

/** What the program has returned; undefined if it goes on. */
type Returned = { value: unknown } | undefined;

const list = (v: Json | undefined) => (v ?? []) as Instruction[];

/** Returns the text of an error, without what differs by language, and its kind. */
function kindOf(err: unknown): [text: string, kind: string] {
  if (err instanceof StepError) {
    return [err.text, "step"];
  }
  if (err instanceof CallError) {
    return [`${err.state}: ${err.text}`, "call"];
  }
  if (err instanceof TimeoutError) {
    return ["", "timeout"];
  }
  if (err instanceof Fail) {
    return [err.message, "fail"];
  }
  return ["", err instanceof UsageError ? "usage" : ""];
}

/** One run of an agent. */
export class Program {
  constructor(
    readonly task: Task,
    readonly world: World,
    readonly vars: Map<string, unknown>,
    /** Aborts when the library ends the attempt or the step. */
    readonly abort: Abort = task.abortSignal,
  ) {}

  static begin(task: Task, message: Message, world: World): Program {
    const vars = {
      message: message.text,
      number: task.messageNumber,
      messages: task.messages.map((m) => m.text).join(","),
      attempt: task.attempt,
      saved: task.saved ?? null,
    };
    return new Program(task, world, new Map(Object.entries(vars)));
  }

  /** Returns the same program with its own variables. */
  branch(abort = this.abort): Program {
    return new Program(this.task, this.world, new Map(this.vars), abort);
  }

  /** Executes instructions, and returns what one of them returns. */
  async result(instructions: Instruction[]): Promise<unknown> {
    return (await this.play(instructions))?.value;
  }

  async play(instructions: Instruction[]): Promise<Returned> {
    for (const i of instructions) {
      const returned = await this.control(i);
      if (returned !== undefined) {
        return returned;
      }
    }
    return undefined;
  }

  /** Executes a control instruction here, and any other with a call of the library. */
  async control(i: Instruction): Promise<Returned> {
    if ("return" in i) {
      return { value: this.value(i.return) };
    }
    if ("if" in i) {
      const holds = JSON.stringify(this.value(i.if)) === JSON.stringify(i.is ?? null);
      return await this.play(list(holds ? i.then : i.else));
    }
    if ("try" in i) {
      return await this.attempt(i);
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

  async attempt(i: Instruction): Promise<Returned> {
    try {
      return await this.play(list(i.try));
    } catch (err) {
      const [text, kind] = kindOf(err);
      if (kind !== i.catch) {
        throw err;
      }
      this.vars.set("error", text);
      return await this.play(list(i.then));
    }
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
      case "artifact":
      case "status":
      case "checkpoint":
        await this.output(verb, text, i);
        return undefined;
      case "step":
        return await this.step(text, i);
      case "effect":
        return await this.world.effect(text, task.idempotencyKey(text), this.abort);
      case "ask":
        if (i.schema !== undefined) {
          return await task.ask(text, { schema: i.schema as object, ...timeout });
        }
        return await task.ask(text, { ...(i.choices !== undefined && { choices: i.choices as string[] }), ...timeout });
      case "authRequired":
        return (await task.authRequired(text, timeout)).text;
      case "sleep":
        await task.sleep(text);
        return undefined;
      case "sleepUntil":
        await task.sleepUntil(new Date(text));
        return undefined;
      case "signal":
        return await task.signal(text, timeout);
      case "call": {
        const abandon = typeof i.abandon === "boolean" ? { abandon: i.abandon } : {};
        return (await task.call(text, this.text(i.message as string), abandon)).text;
      }
      case "gather":
        return await task.gather(...(what as Instruction[][]).map((b) => () => this.branch().result(b)));
      case "together":
        return await Promise.all((what as Instruction[][]).map((b) => this.branch().result(b)));
      case "usage": {
        const [inputTokens, outputTokens] = i.tokens as [number, number];
        await task.usage({ model: text, inputTokens, outputTokens });
        return undefined;
      }
      case "fail":
        throw new Fail(text);
      case "reject":
        throw new Reject(text);
      case "retry":
        throw new Retry(text, typeof i.after === "number" ? { after: i.after } : {});
      case "crash":
        throw new Crash(text);
      case "ignoreStop":
        for (;;) {
          await pause(1000);
        }
      default:
        throw new Error(`the driver does not know the instruction ${JSON.stringify(i)}`);
    }
  }

  output(verb: string, text: string, i: Instruction): Promise<void> {
    switch (verb) {
      case "write":
        return typeof i.to === "string" ? this.task.artifact(i.to).write(text) : this.task.write(text);
      case "artifact":
        return this.artifact(text, i);
      case "status":
        return this.task.status(text);
      default:
        return this.task.checkpoint(this.value(i.checkpoint));
    }
  }

  artifact(name: string, i: Instruction): Promise<void> {
    const artifact = this.task.artifact(name);
    const append = typeof i.append === "boolean" ? { append: i.append } : {};
    if (typeof i.file === "string") {
      return artifact.file(Buffer.from(i.file), { filename: "file.txt", mediaType: "text/plain", ...append });
    }
    if (typeof i.link === "string") {
      return artifact.link(i.link);
    }
    if (typeof i.replace === "string") {
      return artifact.replace(this.text(i.replace));
    }
    return artifact.data(this.value(i.data), append);
  }

  /** Does the instructions of a step. Without any, the step is the effect with its name. */
  step(name: string, i: Instruction): Promise<unknown> {
    const work = (abort: Abort) =>
      i.do === undefined
        ? this.world.effect(name, this.task.idempotencyKey(name), abort)
        : this.branch(abort).result(list(i.do));
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

  /** Replaces the variables of a value. A text that is only a variable becomes its value. */
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
