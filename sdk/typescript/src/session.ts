import { setMaxListeners } from "node:events";

import { realClock, type Clock } from "./clock.js";
import { NondeterminismError, Stopped, UsageError } from "./errors.js";
import { clean, compact, digest, type Json } from "./json.js";
import { logFailure } from "./failures.js";
import { isOfLibrary, postponed, scopeOf } from "./keys.js";
import { silent, type Logger } from "./log.js";
import { Outbox, type Unit } from "./outbox.js";
import type { Place } from "./place.js";
import { branchPrefix, runIn, type StepTry } from "./scope.js";
import { Segments, takeBack } from "./segments.js";
import { guardListeners } from "./signal.js";
import { noSpan, type Span } from "./tracing.js";
import { numberOf, type Recorded, type Run } from "./wire.js";

/** Seconds that a task waits for a corrected program: at first, and at most. */
const postponeFirst = 5;
const postponeMost = 300;

/** What a session needs of the server, or of its replacement in a test. */
export interface Reporter {
  /**
   * Stores events, all or none. Returns whether the task was canceled. It retries until the lease is lost or the signal
   * aborts, and then throws Stopped. It throws Refused for invalid events.
   */
  report(run: Run, events: readonly string[], batch: string, signal: AbortSignal): Promise<boolean>;
}

export interface SessionOptions {
  /** Whether the agent's function is for whole tasks and runs again from its start, or for messages. */
  readonly replay?: boolean;
  readonly clock?: Clock;
  readonly logger?: Logger;
  /** Of the attempt. */
  readonly span?: Span;
}

/** One run of an agent: it numbers what the agent records, compares it with the record, and sends it in order. */
export class Session {
  readonly replay: boolean;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly span: Span;
  readonly known: ReadonlyMap<string, Recorded>;
  /** Which message of the client the function gets, from 1. */
  readonly number: number;
  /**
   * The prefix of keys if the function does not get the first message: work for one message is not the work for
   * another.
   */
  readonly turn: string;
  /** The prefix of keys. That of a handler also has the checkpoint where it begins again. */
  scope: string;
  /** What has ended the run. */
  stopped: Error | undefined;
  /** The first mistake of the program. After it, the agent may begin no other call. */
  mistake: UsageError | NondeterminismError | undefined;
  /** Whether the agent's function has ended, so that nothing else may begin. */
  closed = false;
  /** The steps in progress. */
  readonly working = new Set<Promise<void>>();
  /** By the prefix of their branch: where the calls in progress were made. */
  readonly calling = new Map<string, Place>();
  /** By the prefix of their branch: the steps whose function is running. */
  readonly trying = new Map<string, StepTry>();
  canceled = false;
  /** The message of the turn that has answered the last question, or the first message. */
  answered = 0;
  /** By artifact that steps write: the prefix of their branch. */
  readonly streams = new Map<string, string>();
  /** Aborts when the run ends. The agent may listen to it. */
  readonly abort = this.abortController();
  #leave: () => void = () => undefined;
  /** Resolves when nothing more of the run counts, so that its function is left. */
  readonly over = new Promise<void>((resolve) => (this.#leave = resolve));

  readonly #counts = new Map<string, number>();
  /** Keys of recorded steps that the agent has come to. */
  readonly #used = new Set<string>();
  /** Failures, each with its branch. */
  #held: { within: string; unit: Unit }[] = [];
  /** What the agent writes outside steps. */
  readonly segments: Segments;
  #batches = 0;
  readonly #outbox: Outbox;
  readonly #closing = new AbortController();

  constructor(
    readonly run: Run,
    private readonly reporter: Reporter,
    { replay = true, clock = realClock, logger = silent, span = noSpan }: SessionOptions = {},
  ) {
    this.replay = replay;
    this.clock = clock;
    this.logger = logger;
    this.span = span;
    setMaxListeners(0, this.abort.signal, this.#closing.signal); // one for each thing that the agent waits for
    this.known = new Map(run.steps.map((s) => [s.key, s]));
    this.number = numberOf(run, replay ? 0 : run.messages.length - 1);
    this.turn = this.number > 1 ? `m${this.number}/` : "";
    this.scope = this.turn;
    const check = () => {
      this.check();
    };
    this.#outbox = new Outbox(
      (events) => this.#send(events),
      check,
      () => this.stopped !== undefined,
      clock,
    );
    this.segments = new Segments(this, this.#outbox);
    if (!replay) {
      this.saved(run.checkpoint);
      takeBack(run.steps).forEach((event) => {
        this.#outbox.put([event]);
      });
    }
  }

  // Keys

  /** Begins new keys after a checkpoint of a handler. */
  saved(checkpoint: Json | undefined): void {
    if (!this.replay) {
      const text = compact(checkpoint, true);
      this.scope = this.turn + (text === "null" ? "" : `${digest(text).slice(0, 8)}/`);
    }
  }

  /** Returns the key of the next use of a name: `plan#1`, then `plan#2`. */
  nextKey(name: string): string {
    const n = (this.#counts.get(name) ?? 0) + 1;
    this.#counts.set(name, n);
    return `${name}#${n}`;
  }

  /**
   * Returns what is recorded under a key, or throws NondeterminismError. `sha` is the hash of the input of a step or a
   * wait, or of the message of a call.
   */
  recorded(key: string, kind: Recorded["kind"], name: string, sha = ""): Recorded | undefined {
    const old = this.known.get(key);
    if (old === undefined) {
      return undefined;
    }
    this.#used.add(key);
    if (old.kind !== kind) {
      throw new NondeterminismError(key, `a ${old.kind}`, `a ${kind}`);
    }
    if (old.name !== name) {
      throw new NondeterminismError(key, `a ${kind} named '${old.name}'`, `a ${kind} named '${name}'`);
    }
    // A wait may have been recorded by a server that did not store its hash.
    if (old.inputSha !== sha && (kind === "step" || old.inputSha !== "")) {
      const hashed = (hash: string) => `a ${kind} with the input hash ${hash.slice(0, 12) || "none"}`;
      throw new NondeterminismError(key, hashed(old.inputSha), hashed(sha));
    }
    return old;
  }

  /** Returns the keys of recorded steps that the agent has not come to in this run. */
  unused(): string[] {
    const here = new Set([...this.#counts.keys()].map(scopeOf));
    return [...this.known.keys()].filter((k) => !this.#used.has(k) && !isOfLibrary(k) && here.has(scopeOf(k)));
  }

  // Events

  /** Adds events to those that wait to be sent. They are stored together. */
  add(...events: object[]): void {
    this.addRaw(...events.map((event) => compact(event)));
  }

  /** Adds events that are JSON already. */
  addRaw(...events: string[]): void {
    this.check();
    this.segments.close();
    this.releaseHeld();
    this.#outbox.put(events);
  }

  /** Keeps the record of a failure until the agent does something else, so has handled it. */
  hold(...events: string[]): void {
    if (events.length > 0) {
      this.#held.push({ within: branchPrefix(this), unit: events });
    }
  }

  /** Records failures of this branch and of branches in it. Others may not be handled yet. */
  releaseHeld(): void {
    const here = branchPrefix(this);
    const released = this.#held.filter((h) => h.within.startsWith(here));
    this.#held = this.#held.filter((h) => !h.within.startsWith(here));
    released.forEach(({ unit }) => {
      this.#outbox.put(unit);
    });
  }

  /** Throws the reason if the run has ended. */
  check(): void {
    if (this.stopped !== undefined) {
      throw this.stopped;
    }
  }

  /**
   * Ends the run: from now on the agent's calls do not return, or throw a reason that is a mistake. The task may be
   * canceled or lost after such a mistake.
   */
  stop(reason: Error): void {
    if (this.stopped !== undefined && (this.stopped instanceof Stopped || !(reason instanceof Stopped))) {
      return;
    }
    this.stopped = reason;
    if (reason instanceof Stopped) {
      this.#leave();
    }
    runIn({ session: this }, () => {
      this.abort.abort(reason); // listeners are code of the agent
    });
  }

  /** Returns what aborts a signal for the agent's code. */
  abortController(): AbortController {
    const controller = new AbortController();
    guardListeners(controller.signal, (err) => {
      logFailure(this, "error", "a listener of an abort signal has failed", err);
    });
    return controller;
  }

  cancel(): void {
    this.canceled = true;
    this.stop(new Stopped("canceled", "the task was canceled"));
  }

  /**
   * From now on refuses calls, so that a mistake that the agent catches is not forgotten. Calls in progress go on: the
   * work of a step is recorded.
   */
  refuse(mistake: UsageError | NondeterminismError): void {
    if (this.mistake === undefined) {
      this.mistake = mistake;
      this.releaseHeld(); // the agent did something else, if only a mistake
    }
  }

  /** Throws an error if no work and no wait may begin: after the agent's function, or after a mistake. */
  checkOpen(): void {
    this.check();
    if (this.mistake !== undefined) {
      throw this.mistake;
    }
    if (this.closed) {
      throw new Stopped("ended", "the function has ended");
    }
  }

  /** Returns the mistake if a call of this branch is in progress, although its function or branch has ended. */
  inProgress(what: "function" | "branch"): UsageError | undefined {
    const here = branchPrefix(this);
    const place = [...this.calling].find(([branch]) => branch.startsWith(here))?.[1];
    return place === undefined
      ? undefined
      : new UsageError(`the ${what} has ended, but this call is still in progress: await it`).place(place.toString());
  }

  /** Throws that mistake. */
  checkEnded(what: "function" | "branch"): void {
    const left = this.inProgress(what);
    if (left !== undefined) {
      this.refuse(left);
      throw left;
    }
  }

  // Streams

  /** Appends text to an artifact without recording it: a segment or a step does. */
  async chunk(artifact: string, name: string, text: string): Promise<void> {
    this.check();
    await this.#outbox.write(artifact, name, text);
  }

  /** Appends what is left of the text of a step. */
  endText(artifact: string, rest: string): void {
    this.#outbox.add(artifact, "", rest);
  }

  /** Sends what waits, and returns when the server has stored it. */
  async flush(): Promise<void> {
    await this.#outbox.flush();
  }

  async #send(events: readonly string[]): Promise<void> {
    try {
      await this.#report(events, String(++this.#batches));
    } catch (err) {
      this.stop(err as Error);
      throw err;
    }
  }

  async #report(events: readonly string[], batch: string): Promise<void> {
    if (await this.reporter.report(this.run, events, batch, this.#closing.signal)) {
      this.cancel();
    }
  }

  /** Stops the requests of this run. */
  close(): void {
    this.#outbox.close();
    this.#closing.abort();
  }

  /** Drops what was not sent, because the next attempt does it again. Only its usage counts. */
  async drop(): Promise<void> {
    const events = [...this.#held.flatMap(({ unit }) => unit), ...this.#outbox.drop()];
    this.#held = [];
    this.segments.clear();
    const usage = events.filter((e) => e.startsWith('{"usage":'));
    if (usage.length > 0) {
      await this.#report(usage, "usage").catch((err: unknown) => {
        if (!(err instanceof Stopped || err instanceof UsageError)) {
          throw err;
        }
      });
    }
  }

  /**
   * Records a mistake in the program, and lets the task wait for a corrected one. It does not count as an attempt. What
   * the agent has done until then is recorded first.
   */
  async postpone(reason: string): Promise<void> {
    await this.flush().catch((err: unknown) => {
      if (!(err instanceof UsageError)) {
        throw err; // a refusal of what was not sent is the mistake itself
      }
    });
    await this.drop();
    const attempts = (this.known.get(postponed)?.attempts ?? 0) + 1;
    const pause = Math.min(postponeFirst * 2 ** Math.min(attempts - 1, 20), postponeMost);
    const error: Json = { type: "UsageError", message: clean(reason, 4000) };
    const nextAt = new Date(this.clock.now() + pause * 1000).toISOString().replace(/\.\d+Z$/, "Z");
    const step = { key: postponed, name: postponed, error, attempts, nextAt };
    const wait = { key: `${postponed}/pause#${attempts}`, for: `${pause.toFixed(3)}s` };
    await this.#report([compact({ step }), compact({ wait })], "postponed");
  }
}
