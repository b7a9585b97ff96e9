import { ArtifactWriter, type Output } from "./artifact.js";
import { callResult, type CallResult } from "./call.js";
import { Refused, TimeoutError, UsageError } from "./errors.js";
import { checkWork, gather } from "./gather.js";
import { expected, type AskOptions } from "./question.js";
import { checkSchema, restore, type OutputOf, type Schema } from "./schema.js";
import { scopeIn } from "./scope.js";
import type { Session } from "./session.js";
import { beginning, doStep, planStep, type StepFunction, type StepOptions } from "./steps.js";
import { noSpan, type Span } from "./tracing.js";
import { checkUsage } from "./usage.js";
import {
  checkName,
  checkOptions,
  checkText,
  decode,
  encode,
  wireDuration,
  type Duration,
  type Recordable,
} from "./values.js";
import { never, outsideSteps, wait, waitForCalls, type WaitResult } from "./waits.js";
import { Artifact, encodeParts, Message, partsOf, type Json, type Part, type Usage } from "./wire.js";

/**
 * A task, in one attempt of an agent at it.
 *
 * Its methods record what they do. When the agent runs again, after a crash or a wait, they return what is recorded and
 * do nothing twice. Call them in the same order each time, and await each of them. When the run has ended, because the
 * task waits, was canceled, or has another worker, they do not return any more.
 */
export class Task {
  readonly id: string;
  /** Clients choose it. Do not use it as a key: see `contextKey`. */
  readonly contextId: string;
  /** Unique for tenant, owner and context. Use it, not `contextId`, as a key. */
  readonly contextKey: string;
  readonly agent: string;
  readonly tenant: string;
  readonly owner: string;
  /** The number of this attempt in its turn, from 1. */
  readonly attempt: number;
  /** When the turn must have ended. */
  readonly deadline: Date | undefined;
  /** The messages of this turn, oldest first. */
  readonly messages: readonly Message[];
  /** The messages of the task when this attempt began. */
  readonly history: readonly Message[];
  /** The artifacts of the task when this attempt began. */
  readonly artifacts: readonly Artifact[];
  /** The W3C trace context of the client's request. */
  readonly traceparent: string;
  readonly #session: Session;
  readonly #span: Span;
  #saved: Json | undefined;

  /** @internal */
  constructor(session: Session, span: Span = noSpan) {
    this.#session = session;
    this.#span = span;
    const { run } = session;
    this.id = run.taskId;
    this.contextId = run.contextId;
    this.contextKey = run.contextKey;
    this.agent = run.agent;
    this.tenant = run.tenant;
    this.owner = run.owner;
    this.attempt = run.attempt;
    this.deadline = run.deadline === undefined ? undefined : new Date(run.deadline);
    this.messages = run.messages.map((m) => Message.decode(m));
    this.history = (run.task?.history ?? []).map((m) => Message.decode(m));
    this.artifacts = (run.task?.artifacts ?? []).map((a) => Artifact.decode(a));
    this.traceparent = run.traceparent ?? "";
    this.#saved = run.checkpoint;
  }

  /** The first message of this turn. */
  get message(): Message {
    const first = this.messages[0];
    if (first === undefined) {
      throw new UsageError("the task has no message");
    }
    return first;
  }

  /** The last value of `checkpoint`. */
  get saved(): Json | undefined {
    return this.#saved;
  }

  /** Whether the task was canceled. */
  get cancelled(): boolean {
    return this.#session.canceled;
  }

  /**
   * Aborts when the run has ended: the task waits, was canceled or has another worker, or the worker stops. Pass it to
   * what the agent waits for. Its reason is a `Stopped`.
   */
  get abortSignal(): AbortSignal {
    return this.#session.abort.signal;
  }

  /** Returns a key that is the same in every attempt, for the API that a step calls. */
  idempotencyKey(name: string): string {
    checkName(name, "idempotencyKey");
    return `${this.id}:${name}`;
  }

  /**
   * Calls a function and records what it returns. When the agent runs again, it gets the recorded value and the function
   * is not called. The value must have a form in JSON; the agent gets it as that. With `returns`, a schema of zod or a
   * similar library, the agent gets what the schema makes of it.
   *
   * If the function throws, `step` throws StepError. With `retries`, the function is called again that many times first.
   * If the agent catches the StepError, the failure is recorded. Otherwise the attempt fails, and the next one does the
   * step again, unless its retries were used up.
   */
  async step<S extends Schema>(
    name: string,
    fn: StepFunction<unknown>,
    options: StepOptions & { returns: S },
  ): Promise<OutputOf<S>>;

  async step<T>(name: string, fn: StepFunction<T>, options?: StepOptions): Promise<Recordable<T>>;

  async step(name: string, fn: StepFunction<unknown>, options: StepOptions & { returns?: Schema } = {}): Promise<unknown> {
    return await this.#guarded(async () => {
      outsideSteps(this.#session, "step");
      checkName(name, "the name of a step");
      checkOptions(options, "step", ["input", "retries", "backoff", "timeout", "returns"]);
      if (options.returns !== undefined) {
        checkSchema(options.returns);
      }
      const plan = planStep(name, fn, options);
      return await doStep(this.#session, this.#span, this.#key(name), name, fn, plan);
    });
  }

  /**
   * Appends text to the artifact `answer`. The client sees it at once.
   *
   * What is written between two other calls is recorded as one piece. If the agent dies in the middle, the client's copy
   * is set back before the text comes again.
   */
  write(text: string): Promise<void> {
    return this.#output.write(new ArtifactWriter(this.#output, "answer", ""), text);
  }

  /** Returns a writer for an artifact. Its id is its name, unless `id` is set. */
  artifact(name: string, options: { id?: string } = {}): ArtifactWriter {
    checkName(name, "the name of an artifact");
    checkOptions(options, "artifact", ["id"]);
    const id = options.id ?? name;
    checkName(id, "the id of an artifact");
    return new ArtifactWriter(this.#output, id, name);
  }

  readonly #output: Output = {
    write: (to, text) => this.#guarded(() => this.#write(to, text)),
    send: (to, part, append) =>
      this.#guarded(() => {
        const parts = encodeParts([part], `artifact "${to.id}"`);
        const artifact = { artifactId: to.id, ...(to.name && { name: to.name }), parts };
        const event = { artifactUpdate: { artifact, ...(append && { append }) } };
        return this.#once(`artifact:${to.id}`, "artifact", event);
      }),
  };

  async #write(to: ArtifactWriter, text: string): Promise<void> {
    checkText(text, "write", 0, Number.POSITIVE_INFINITY);
    const { step } = scopeIn(this.#session);
    if (step === undefined) {
      await this.#session.write(to.id, to.name, text);
      return;
    }
    if (step.over) {
      throw new UsageError(`write after the end of the step "${step.name}", to which it belongs`);
    }
    if (step.begun !== to.id) {
      if (step.begun !== "") {
        throw new UsageError(`step "${step.name}" writes "${step.begun}" and "${to.id}"; a step writes one artifact`);
      }
      step.begun = to.id;
      this.#session.add(beginning(step));
    }
    await this.#session.chunk(to.id, to.name, text);
  }

  /** Tells the client what the agent is doing. */
  status(text: string): Promise<void> {
    return this.#guarded(() => {
      checkText(text, "status", 1);
      const status = { state: "TASK_STATE_WORKING", message: { parts: [{ text }] } };
      return this.#once("status", "status", { statusUpdate: { status } });
    });
  }

  /**
   * Reports what a model call has cost. The server adds it up for each task and model. Inside a step it is recorded
   * together with the step.
   */
  usage(usage: Usage): Promise<void> {
    return this.#guarded(async () => {
      checkUsage(usage);
      const { step } = scopeIn(this.#session);
      (step?.span ?? this.#span).usage(usage);
      if (step === undefined) {
        await this.#once("usage", "usage", { usage });
      } else if (step.over) {
        throw new UsageError(`usage after the end of the step "${step.name}", to which it belongs`);
      } else {
        step.usage.push(JSON.stringify({ usage }));
      }
    });
  }

  /** Sends an event, and records in the same transaction that it was sent. */
  async #once(name: string, kind: string, event: object): Promise<void> {
    outsideSteps(this.#session, kind);
    const session = this.#session;
    session.check();
    if (!session.replay) {
      session.add(event);
    } else {
      const key = this.#key(name);
      if (session.recorded(key, "step", kind) !== undefined) {
        session.closeSegments();
        return;
      }
      session.add(event, { step: { key, name: kind } });
    }
    await session.flush();
  }

  /** Saves a value, which the next attempt or turn finds in `saved`. */
  checkpoint(value: unknown): Promise<void> {
    return this.#guarded(async () => {
      outsideSteps(this.#session, "checkpoint");
      const text = encode(value, "the checkpoint");
      this.#session.add(`{"checkpoint":${text}}`);
      await this.#session.flush();
      this.#saved = decode(text);
    });
  }

  /** Waits. The task needs no worker meanwhile, so days cost nothing. */
  async sleep(duration: Duration): Promise<void> {
    await this.#wait("sleep", "sleep", () => ({ for: wireDuration(duration, "the duration of sleep") }));
  }

  /** Waits until a time. */
  async sleepUntil(at: Date): Promise<void> {
    await this.#wait("sleepUntil", "sleep", () => {
      const time = at instanceof Date ? at.getTime() : Number.NaN;
      if (!(time >= 0 && time < Date.UTC(9999, 0))) {
        throw new UsageError("sleepUntil takes a Date between 1970 and 9999");
      }
      return { until: at.toISOString() };
    });
  }

  /** Waits for a signal, and returns its value. Throws TimeoutError if it does not come in time. */
  async signal<T = Json>(name: string, options: { timeout?: Duration } = {}): Promise<T> {
    const result = await this.#wait("signal", `signal:${name}`, () => {
      checkName(name, "the name of a signal");
      checkOptions(options, "signal", ["timeout"]);
      return { signal: name, ...limit(options.timeout) };
    });
    if (result.by !== "signal") {
      throw new TimeoutError(`the signal "${name}" did not come in time`);
    }
    return (result.value ?? null) as T;
  }

  /**
   * Asks the client, and returns its answer. Days may pass; no slot is held.
   *
   * The answer is a text, or one of the `choices`. With `returns`, a schema of zod or a similar library, it is a value of
   * that schema; with `schema`, a JSON Schema, it is a value that fits it. The server refuses answers that do not fit.
   * Throws TimeoutError if no answer comes in time.
   */
  async ask<S extends Schema>(question: string, options: { returns: S; timeout?: Duration }): Promise<OutputOf<S>>;

  async ask<T = Json>(question: string, options: { schema: object; timeout?: Duration }): Promise<T>;

  async ask<C extends string>(question: string, options: { choices: readonly C[]; timeout?: Duration }): Promise<C>;

  async ask(question: string, options?: AskOptions): Promise<string>;

  async ask(question: string, options: AskOptions & { schema?: object; returns?: Schema } = {}): Promise<unknown> {
    const { returns } = options;
    const answer = await this.#question("ask", "TASK_STATE_INPUT_REQUIRED", question, options.timeout, () => {
      checkOptions(options, "ask", ["choices", "schema", "returns", "timeout"]);
      return expected(options);
    });
    if (returns !== undefined) {
      return await this.#guarded(() => restore(answer.data, returns, `the answer to "${question.slice(0, 60)}"`));
    }
    if (options.schema !== undefined) {
      return answer.data;
    }
    return options.choices === undefined ? answer.text : answer.text.trim();
  }

  /** Asks the client to sign in somewhere, and returns its next message. */
  authRequired(text: string, options: { timeout?: Duration } = {}): Promise<Message> {
    return this.#question("authRequired", "TASK_STATE_AUTH_REQUIRED", text, options.timeout, () => {
      checkOptions(options, "authRequired", ["timeout"]);
      return undefined;
    });
  }

  async #question(
    what: string,
    state: string,
    text: string,
    timeout: Duration | undefined,
    expects: () => object | undefined,
  ): Promise<Message> {
    const result = await this.#wait(what, "ask", () => {
      checkText(text, what, 1);
      const expectation = expects();
      return {
        message: true,
        status: { state, message: { parts: [{ text }] } },
        ...(expectation && { expects: expectation }),
        ...limit(timeout),
      };
    });
    if (result.by !== "message") {
      throw new TimeoutError(`no answer in time to: ${text}`);
    }
    return this.messages.find((m) => m.id === result.messageId) ?? this.messages.at(-1) ?? this.message;
  }

  /**
   * Gives a task to another agent, and waits until it has ended. Throws CallError if it did not complete. If this task
   * ends first, the other one is canceled, unless `abandon` is set.
   */
  call(
    agent: string,
    message: string | Message | readonly Part[],
    options: { abandon?: boolean } = {},
  ): Promise<CallResult> {
    return this.#guarded(async () => {
      const session = this.#session;
      outsideSteps(session, "call");
      checkName(agent, "the name of an agent");
      checkOptions(options, "call", ["abandon"]);
      const parts = partsOf(message, "the message of call");
      const key = this.#key(`call:${agent}`);
      const old = session.recorded(key, "call", agent);
      session.check();
      if (old === undefined) {
        const end = options.abandon === true ? { onParentEnd: "abandon" } : {};
        session.add({ call: { key, agent, message: { parts }, ...end } });
      }
      if (old?.endedAt === undefined) {
        return await waitForCalls(session, `${key}/wait`, [key], false);
      }
      session.closeSegments();
      return callResult(agent, old);
    });
  }

  /**
   * Does several things at once: steps and calls. It takes functions, and returns their results in order. If one fails,
   * the others are still done, and the first failure is thrown.
   */
  gather<T extends readonly (() => unknown)[]>(
    ...work: T
  ): Promise<{ -readonly [K in keyof T]: Awaited<ReturnType<T[K]>> }> {
    return this.#guarded(async () => {
      outsideSteps(this.#session, "gather");
      checkWork(work);
      const results = await gather(this.#session, this.#key("gather"), work);
      return results as { -readonly [K in keyof T]: Awaited<ReturnType<T[K]>> };
    });
  }

  /** Waits. `event` checks the arguments and says for what. */
  #wait(what: string, name: string, event: () => object): Promise<WaitResult> {
    return this.#guarded(async () => {
      const session = this.#session;
      outsideSteps(session, what);
      if (scopeIn(session).branch !== undefined) {
        throw new UsageError(`${what} inside gather: there can be steps and calls, but no other waits`);
      }
      const checked = event();
      return await wait(session, this.#key(name), what, checked);
    });
  }

  #key(name: string): string {
    return this.#session.nextKey((scopeIn(this.#session).branch?.prefix ?? "") + name);
  }

  /** Does what a method does. If the run is over, the agent's function is left at the call, also if it would fail. */
  async #guarded<T>(work: () => Promise<T>): Promise<T> {
    const session = this.#session;
    try {
      return await work();
    } catch (err) {
      if (!session.over) {
        throw err;
      }
      if (err instanceof Refused) {
        err.locate();
      }
      return await never();
    }
  }
}

function limit(timeout: Duration | undefined): object {
  return timeout === undefined ? {} : { for: wireDuration(timeout, "timeout") };
}
