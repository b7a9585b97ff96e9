import { ArtifactWriter, reportUsage, sendStatus, write } from "./artifact.js";
import { Caller } from "./call.js";
import { moment, name as checkName, options as checkOptions, waitSeconds, type Duration } from "./check.js";
import { bindMethods, explained } from "./explained.js";
import { gather } from "./gather.js";
import { plain, type Json, type Recordable } from "./json.js";
import { ask, type AskOptions } from "./question.js";
import type { OutputOf, Schema } from "./schema.js";
import { nextKey, outsideGather, outsideSteps, stamp } from "./scope.js";
import type { Session } from "./session.js";
import { doStep, type StepFunction, type StepOptions } from "./step.js";
import type { Usage } from "./usage.js";
import { callAgent, question, wait, waitForSignal, type CallResult } from "./wait.js";
import type { Abort, Artifact, Message, NewPart } from "./wire.js";

/**
 * A task, in one attempt of its agent.
 *
 * Methods record what they do. When the agent runs again, after a crash or a wait, they return what is recorded. Call
 * them in the same order each time. A call does nothing until it is awaited. Await each before the next one; for
 * concurrency use `gather`.
 *
 * A method throws UsageError for a wrong argument, and NondeterminismError if the record differs. When the run has
 * ended, because the task waits, was canceled or has another worker, it never returns.
 */
export class Task {
  readonly id: string;
  /** Clients choose it. Do not use it as a key: see `contextKey`. */
  readonly contextId: string;
  /** Unique for tenant, owner and context. */
  readonly contextKey: string;
  readonly agent: string;
  readonly tenant: string;
  readonly owner: string;
  /** 1, or more if earlier attempts at this turn have failed. */
  readonly attempt: number;
  /** When the turn must end. */
  readonly deadline: Date | undefined;
  /** The messages of this turn, oldest first. */
  readonly messages: readonly Message[];
  /**
   * Which message of the client the function gets, from 1. Clients may reuse the id of a message, but each has its own
   * number.
   */
  readonly messageNumber: number;
  /** For each of `messages`, the metadata of its request (`params.metadata`), or null. */
  readonly requestMetadata: readonly Json[];
  /** The URIs of the extensions in the agent's file that the clients of `messages` activated. */
  readonly extensions: readonly string[];
  /** The messages of client and agent until this run, oldest first. */
  readonly history: readonly Message[];
  /** The artifacts of the task when this attempt began. */
  readonly artifacts: readonly Artifact[];
  /** The trace context of the client, as a W3C `traceparent`, or empty. */
  readonly traceparent: string;
  readonly #session: Session;
  readonly #caller: Caller;
  #saved: Json | undefined;

  /** @internal */
  constructor(session: Session) {
    this.#session = session;
    this.#caller = new Caller(session);
    bindMethods(this);
    const { run } = session;
    this.id = run.taskId;
    this.contextId = run.contextId;
    this.contextKey = run.contextKey;
    this.agent = run.agent;
    this.tenant = run.tenant;
    this.owner = run.owner;
    this.attempt = run.attempt;
    this.deadline = run.deadline;
    this.messages = run.messages;
    this.messageNumber = session.number;
    this.requestMetadata = run.requestMetadata;
    this.extensions = run.extensions;
    this.history = run.history;
    this.artifacts = run.artifacts;
    this.traceparent = run.traceparent;
    this.#saved = run.checkpoint;
  }

  /** @internal Throws UsageError if a call was not awaited. */
  static checkAwaited(task: Task): void {
    task.#caller.checkAwaited();
  }

  /** The first message of this turn. */
  get message(): Message {
    const [first] = this.messages;
    if (first === undefined) {
      throw new RangeError("a task has a message");
    }
    return first;
  }

  /** The last value that `checkpoint` saved, as read from JSON, or undefined. */
  get saved(): Json | undefined {
    return this.#saved;
  }

  /** Whether the task was canceled. The next method call then never returns. */
  get cancelled(): boolean {
    return this.#session.canceled;
  }

  /**
   * Aborts when the run has ended: the task waits, was canceled or has another worker, or the worker stops. Pass it to
   * what the agent waits for, and use it to release resources. Its reason is a `Stopped`.
   */
  get abortSignal(): Abort {
    return this.#session.abort.signal;
  }

  /**
   * Returns an idempotency key for an API that a step calls. It is the same in every attempt. It differs by task and
   * name, and by the message that the function gets. Each use needs a name of its own, such as one with the number of
   * the pass of a loop: with the same name, the API takes the second use for a repetition of the first.
   */
  idempotencyKey(name: string): string {
    return this.#caller.now(() => `${this.id}:${this.#session.turn}${checkName(name, "the name")}`);
  }

  // Work

  /**
   * Calls a function, records what it returns, and returns that.
   *
   * When the agent runs again, `step` returns the recorded value without calling the function. If the attempt ends
   * before the value is recorded, the function is called again. `input` must be the same each time; what does not
   * convert to JSON is compared by the name of its type.
   *
   * The value must convert to at most 1 MiB of JSON. It is returned as read from JSON, also in the attempt that calls
   * the function: a `Date` becomes a string, and `undefined` becomes null. With `returns`, a schema of zod or a
   * similar library, it is what the schema makes of it.
   *
   * If the function throws or takes longer than `timeout`, it is called again up to `retries` times. Then `step` throws
   * StepError. A timeout aborts the signal that the function gets; what the function writes later is lost. If the
   * function throws Retry, Fail or Reject, it is not called again, and `step` throws the same. In later attempts it
   * throws one of these three, with the same reason: a class of your own and the `after` of Retry are not recorded.
   *
   * If the agent catches the error, or the retries are used up, the failure is recorded. Otherwise the attempt fails,
   * and the next one does the step again.
   *
   * A mistake that is found after the function was called fails the step for good, so that the work is not repeated: a
   * result that cannot be recorded, or a wrong call of this library in the function.
   */
  step<S extends Schema>(
    name: string,
    fn: StepFunction<unknown>,
    options: StepOptions & { returns: S },
  ): Promise<OutputOf<S>>;

  step<T>(name: string, fn: StepFunction<T>, options?: StepOptions): Promise<Recordable<T>>;

  step(name: string, fn: StepFunction<unknown>, options: StepOptions & { returns?: Schema } = {}): Promise<unknown> {
    return this.#caller.start("step", () => doStep(this.#session, name, fn, options));
  }

  // Output

  /**
   * Appends text to the artifact `answer`.
   *
   * The first text is sent at once, and later text every 50 ms. `write` waits only if the server is slower than the
   * agent. What is written between two other calls is recorded together. If the agent dies before that, the artifact is
   * restored and the text is sent again.
   */
  write(text: string): Promise<void> {
    return this.#caller.start("write", () => write(this.#session, "answer", "", text));
  }

  /** Returns a writer for an artifact. The id defaults to the name. */
  artifact(name: string, options: { id?: string } = {}): ArtifactWriter {
    return this.#caller.now(() => {
      checkName(name, "the name of an artifact");
      checkOptions(options, "artifact", ["id"]);
      const { id = name } = options;
      return new ArtifactWriter(this.#caller, checkName(id, "the id of an artifact"), name);
    });
  }

  /** Tells the client what the agent is doing. */
  status(text: string): Promise<void> {
    return this.#caller.start("status", () => sendStatus(this.#session, text));
  }

  /** Saves a JSON value of at most 1 MiB. The next attempt or turn finds it in `saved`. */
  checkpoint(value: unknown): Promise<void> {
    return this.#caller.start("checkpoint", async () => {
      const session = this.#session;
      outsideSteps(session, "checkpoint");
      outsideGather(session, "checkpoint");
      const [text, saved] = plain(value, "the checkpoint");
      session.check();
      session.segments.end();
      session.addRaw(`{"checkpoint":${text}}`);
      await session.flush();
      this.#saved = saved;
      session.saved(saved);
    });
  }

  /**
   * Reports what a model used. The server sums it by task and model. Recorded usage is not counted again when the agent
   * runs again. Inside a step, it is recorded with the step. It also counts if the step fails.
   */
  usage(usage: Usage): Promise<void> {
    return this.#caller.start("usage", () => reportUsage(this.#session, usage));
  }

  // Waiting

  /** Waits, without holding a slot of the worker. */
  sleep(duration: Duration): Promise<void> {
    return this.#caller.start("sleep", () => this.#sleep(() => ({ for: waitSeconds(duration, "duration") })));
  }

  /** Waits until a time, from 1970 to 9998. */
  sleepUntil(at: Date): Promise<void> {
    return this.#caller.start("sleepUntil", () => this.#sleep(() => ({ until: stamp(moment(at, "the time")) })));
  }

  async #sleep(condition: () => { for?: string; until?: string }): Promise<void> {
    const checked = condition();
    await wait(this.#session, nextKey(this.#session, "sleep"), checked);
  }

  /** Waits for a signal, and returns its JSON value. Throws TimeoutError if none comes in time. */
  signal<T = Json>(name: string, options: { timeout?: Duration } = {}): Promise<T> {
    return this.#caller.start("signal", () => waitForSignal(this.#session, name, options) as Promise<T>);
  }

  /**
   * Asks the client, and returns its answer. No slot is held meanwhile.
   *
   * Pass at most one of `choices`, `schema` and `returns`. By default the answer is a string. With `choices`, it is
   * one of these up to 100 texts. With `schema`, a JSON Schema, it is a value that fits. With `returns`, a schema of
   * zod or a similar library, it is what the schema makes of it. The server refuses answers that do not fit. Throws
   * TimeoutError if no answer comes in time, and ValidationError if `returns` refuses what its JSON Schema allows.
   */
  ask<S extends Schema>(question: string, options: { returns: S; timeout?: Duration }): Promise<OutputOf<S>>;

  ask<T = Json>(question: string, options: { schema: object; timeout?: Duration }): Promise<T>;

  ask<const C extends string>(question: string, options: { choices: readonly C[]; timeout?: Duration }): Promise<C>;

  ask(question: string, options?: AskOptions): Promise<string>;

  ask(question: string, options: AskOptions & { schema?: object; returns?: Schema } = {}): Promise<unknown> {
    return this.#caller.start("ask", () => ask(this.#session, question, options));
  }

  /** Asks the client to sign in somewhere, and returns its next message. Throws TimeoutError if none comes in time. */
  authRequired(text: string, options: { timeout?: Duration } = {}): Promise<Message> {
    return this.#caller.start("authRequired", async () => {
      checkOptions(options, "authRequired", ["timeout"]);
      return await question(this.#session, "TASK_STATE_AUTH_REQUIRED", text, undefined, options.timeout);
    });
  }

  /**
   * Gives a task to another agent, and waits until it ends. No slot is held meanwhile. Throws CallError if it does not
   * complete. If this task ends first, the called task is canceled, unless `abandon` is set.
   */
  call(
    agent: string,
    message: string | Message | readonly NewPart[],
    options: { abandon?: boolean } = {},
  ): Promise<CallResult> {
    return this.#caller.start("call", () => callAgent(this.#session, agent, message, options));
  }

  /**
   * Does several steps and calls at once: `task.gather(() => task.step(…), () => task.call(…))`.
   *
   * Each function is a branch. It may make several calls, one after another, and use `status`, `usage` and `gather`.
   * Two branches may not write the same artifact. Returns the results in the order of the functions. If some fail, the
   * others still run to their end. Then the first failure, in that order, is thrown.
   */
  gather<T extends readonly (() => unknown)[]>(
    ...work: T
  ): Promise<{ -readonly [K in keyof T]: Awaited<ReturnType<T[K]>> }> {
    type Results = { -readonly [K in keyof T]: Awaited<ReturnType<T[K]>> };
    return this.#caller.start("gather", async () => (await gather(this.#session, work)) as Results);
  }
}

explained(Task);
