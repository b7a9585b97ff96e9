import { randomUUID } from "node:crypto";
import { setMaxListeners } from "node:events";

import { NondeterminismError, Refused, Stopped } from "./errors.js";
import { Outbox, realClock, type Clock } from "./outbox.js";
import { scopeIn } from "./scope.js";
import { clean } from "./values.js";
import type { Recorded, Run } from "./wire.js";

/** Seconds that a task waits for a corrected program: at first, and at most. */
const postponeFirst = 5;
const postponeMost = 300;

/** What a session needs of the server, or of what stands in for it in a test. */
export interface Reporter {
  /**
   * Stores events, all or none. Returns whether the task was canceled. It tries again until the lease is lost; then it
   * throws Stopped. It throws Refused for events that are not valid.
   */
  report(run: Run, events: readonly string[], batch: string): Promise<boolean>;
}

/** Successive writes to an artifact, which are recorded as one step. */
interface Segment {
  readonly key: string;
  readonly replayed: boolean;
}

/** One run of an agent: it numbers and compares what the agent records, and sends it in order. */
export class Session {
  readonly known = new Map<string, Recorded>();
  /** The names of the steps whose functions run now. */
  readonly running = new Map<string, string>();
  readonly abort = new AbortController();
  stopped: unknown = undefined;
  canceled = false;

  readonly #report: (events: readonly string[]) => Promise<boolean>;
  readonly #outbox: Outbox;
  readonly #counts = new Map<string, number>();
  readonly #segments = new Map<string, Segment>();
  #held: { within: string; events: readonly string[] }[] = [];
  #ending = false;

  constructor(
    readonly run: Run,
    reporter: Reporter,
    /** The agent's function runs again from its start. */
    readonly replay: boolean,
    readonly clock: Clock = realClock,
  ) {
    this.learn(run.steps ?? []);
    setMaxListeners(0, this.abort.signal); // one for each request of the agent
    this.#report = (events) => reporter.report(run, events, randomUUID());
    this.#outbox = new Outbox(async (events) => {
      try {
        if (await this.#report(events)) {
          this.cancel();
        }
      } catch (err) {
        this.stop(err);
        throw err;
      }
    }, clock);
  }

  /** Adds steps to those that earlier attempts have recorded. */
  learn(steps: readonly Recorded[]): void {
    for (const s of steps) {
      this.known.set(s.key, s);
    }
  }

  /** Returns the key of the next use of a name: `plan#1`, then `plan#2`. */
  nextKey(name: string): string {
    const n = (this.#counts.get(name) ?? 0) + 1;
    this.#counts.set(name, n);
    return `${name}#${n}`;
  }

  /** Returns what is recorded under a key, or throws NondeterminismError. */
  recorded(key: string, kind: Recorded["kind"], name: string, sha = ""): Recorded | undefined {
    const old = this.known.get(key);
    if (old === undefined) {
      return undefined;
    }
    const oldName = old.agent ?? old.name ?? "";
    const oldSha = old.inputSha ?? "";
    if (old.kind !== kind) {
      throw new NondeterminismError(key, `a ${old.kind}`, `a ${kind}`);
    }
    if (oldName !== name) {
      throw new NondeterminismError(key, `a ${kind} named "${oldName}"`, `a ${kind} named "${name}"`);
    }
    if (kind === "step" && oldSha !== sha) {
      const short = (digest: string) => `a step with the input ${digest.slice(0, 12) || "nothing"}`;
      throw new NondeterminismError(key, short(oldSha), short(sha));
    }
    return old;
  }

  /** Adds events to those that wait to be sent, after what the agent has done before. */
  add(...events: (string | object)[]): void {
    this.check();
    this.closeSegments();
    this.#releaseHeld();
    for (const e of events) {
      this.#outbox.put(typeof e === "string" ? e : JSON.stringify(e));
    }
  }

  /** Adds the event that ends the run, and returns when it is stored. Nothing follows it. */
  async end(event: string | object): Promise<void> {
    this.add(event);
    this.#ending = true;
    await this.#outbox.flush();
  }

  /** Keeps the record of a failure until the agent does something else: it has handled it. */
  hold(events: readonly string[]): void {
    this.check();
    this.#held.push({ within: this.#prefix(), events });
  }

  /** Records the failures of this branch, and of branches in it. The agent may not have handled others. */
  #releaseHeld(): void {
    const here = this.#prefix();
    const held = this.#held;
    this.#held = held.filter((h) => !h.within.startsWith(here));
    for (const { within, events } of held) {
      if (within.startsWith(here)) {
        for (const e of events) {
          this.#outbox.put(e);
        }
      }
    }
  }

  /** Returns the prefix of keys in the branch of `gather` that calls; empty outside of it. */
  #prefix(): string {
    return scopeIn(this).branch?.prefix ?? "";
  }

  /** Whether the agent's function must not go on: the run has ended, or is about to. */
  get over(): boolean {
    return this.stopped !== undefined || this.#ending;
  }

  /** Throws what has ended the run, if it has ended. */
  check(): void {
    if (this.stopped !== undefined) {
      throw this.stopped as Error;
    }
    if (this.#ending) {
      throw new Stopped("waiting", "the run has ended");
    }
  }

  /** Ends the run: from now on the agent's calls do not return. */
  stop(reason: unknown): void {
    if (this.stopped === undefined) {
      this.stopped = reason;
      this.abort.abort(reason);
    }
  }

  cancel(): void {
    this.canceled = true;
    this.stop(new Stopped("canceled", "the task was canceled"));
  }

  /** Appends text to an artifact, and sends it soon. */
  async write(artifact: string, name: string, text: string): Promise<void> {
    this.check();
    if (this.replay) {
      const segment = this.#segments.get(artifact) ?? this.#openSegment(artifact);
      if (segment.replayed) {
        return;
      }
    }
    await this.chunk(artifact, name, text);
  }

  /** Sends text to an artifact, whoever records it. */
  async chunk(artifact: string, name: string, text: string): Promise<void> {
    this.check();
    await this.#outbox.write(artifact, name, text);
    this.check();
  }

  #openSegment(artifact: string): Segment {
    const key = this.nextKey(`write:${artifact}`);
    const segment = { key, replayed: this.recorded(key, "step", "write")?.endedAt !== undefined };
    this.#releaseHeld();
    if (!segment.replayed) {
      this.#outbox.put(JSON.stringify({ step: { key, name: "write", artifact } }));
    }
    this.#segments.set(artifact, segment);
    return segment;
  }

  /** Records that the writes until now are complete. */
  closeSegments(): void {
    for (const { key, replayed } of this.#segments.values()) {
      if (!replayed) {
        this.#outbox.put(JSON.stringify({ step: { key, name: "write", result: null } }));
      }
    }
    this.#segments.clear();
  }

  /** Sends what waits, and returns when the server has stored it. */
  async flush(): Promise<void> {
    this.check();
    await this.#outbox.flush();
    this.check();
  }

  /**
   * Records why the agent cannot go on, and lets the task wait. The program is wrong, and a corrected one continues the
   * task: no attempt is counted, and the client sees no failure.
   */
  async postpone(reason: string): Promise<void> {
    this.drop();
    const old = this.known.get("postponed");
    const attempts = (old?.attempts ?? 0) + 1;
    const pause = Math.min(postponeFirst * 2 ** (attempts - 1), postponeMost);
    const error = { type: "UsageError", message: clean(reason, 4000) };
    const nextAt = new Date(this.clock.now() + pause * 1000).toISOString();
    const step = { step: { key: "postponed", name: "postponed", error, attempts, nextAt } };
    const wait = { wait: { key: `postponed/pause#${attempts}`, for: `${pause}s` } };
    if (this.stopped instanceof Refused) {
      await this.#report([JSON.stringify(step), JSON.stringify(wait)]); // the outbox is closed
    } else {
      this.add(step);
      await this.end(wait);
    }
  }

  /** Forgets what was not sent: the attempt has failed, and the next one does it again. */
  drop(): void {
    this.#outbox.drop();
    this.#segments.clear();
    this.#held = [];
  }
}
