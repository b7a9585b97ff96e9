/** Where a call is made: in a step, or in a branch of `gather`. */
import { AsyncLocalStorage } from "node:async_hooks";

import { Stopped, UsageError, type NondeterminismError } from "./errors.js";
import type { Call } from "./call.js";
import type { Group } from "./gather.js";
import { Pairs } from "./pairs.js";
import type { Session } from "./session.js";
import type { Span } from "./tracing.js";
import type { Usage } from "./usage.js";

/** Bytes of a key. */
const maxKey = 256;

/** A try of a step, whose function is running or was running. */
export class StepTry {
  /** What its function reported, until the step is recorded. */
  readonly usage: Usage[] = [];
  /** The calls of its function that nothing has awaited yet. */
  readonly waiting = new Set<Call<unknown>>();
  /** The first mistake of its function in a call of this library. */
  mistake: UsageError | NondeterminismError | undefined;
  readonly pairs = new Pairs();
  returned = false;
  ended = false;

  constructor(
    readonly session: Session,
    readonly key: string,
    readonly name: string,
    readonly input: string | undefined,
    readonly span: Span,
    /** The artifact that it writes, or empty. */
    public begun = "",
  ) {}

  /** Throws if it has ended: what its function writes now would not be recorded. */
  check(): void {
    if (this.returned) {
      throw new UsageError(`the step '${this.name}' has ended: await what it starts before it returns`);
    }
    if (this.ended) {
      // It failed, so it is no mistake that something of it still runs.
      throw new Stopped("ended", `this try of the step '${this.name}' has ended`);
    }
  }
}

/** One of the things that `gather` does at once. */
export interface Branch {
  readonly prefix: string;
  readonly group: Group;
  readonly number: number;
}

interface Scope {
  readonly session: Session;
  readonly step?: StepTry | undefined;
  readonly branch?: Branch | undefined;
}

const storage = new AsyncLocalStorage<Scope>();

/** Calls a function in a place of an agent's code. */
export const runIn = <T>(scope: Scope, work: () => T): T => storage.run(scope, work);

/** Returns the session of the agent's code that runs now. */
export const currentSession = (): Session | undefined => storage.getStore()?.session;

/** Returns where the caller is. An agent may use the task of another one, whose steps and branches are not its own. */
function here(session: Session): Scope {
  const scope = storage.getStore();
  return scope?.session === session ? scope : { session };
}

/** Returns the running step that makes the call, or undefined. */
export const currentStep = (session: Session): StepTry | undefined => here(session).step;

/** Returns the branch of `gather` that makes the call, or undefined. */
export const currentBranch = (session: Session): Branch | undefined => here(session).branch;

/** Returns the prefix of the keys of that branch, or an empty text. */
export const branchPrefix = (session: Session): string => here(session).branch?.prefix ?? "";

export function outsideSteps(session: Session, what: string): void {
  const step = currentStep(session);
  if (step !== undefined) {
    throw new UsageError(`${what} inside the step '${step.name}': a step can only write and report usage`);
  }
}

/** Refuses output for which the order of branches matters: it may differ in the next attempt. */
export function outsideGather(session: Session, what: string): void {
  if (currentBranch(session) !== undefined) {
    throw new UsageError(
      `${what} inside gather: it can contain steps, calls, statuses and usage. ` +
        "Write text in a step, and anything else after gather",
    );
  }
}

/**
 * Notes that a step of this branch writes an artifact. Refuses one that another branch writes: if a step begins again,
 * the server restores its artifact, and removes all later text.
 */
export function stream(session: Session, artifact: string): void {
  const prefix = branchPrefix(session);
  const other = session.streams.get(artifact) ?? "";
  if (!prefix.startsWith(other) && !other.startsWith(prefix)) {
    throw new UsageError(`another branch of gather writes the artifact '${artifact}': give each its own`);
  }
  session.streams.set(artifact, prefix);
}

/** From now on, this branch may write the artifacts that the branches of a gather wrote. */
export function endGather(session: Session, prefix: string): void {
  for (const [artifact, writer] of session.streams) {
    if (writer.startsWith(`${prefix}.`)) {
      session.streams.set(artifact, branchPrefix(session));
    }
  }
}

/** Returns the key of the next use of a name here. */
export function nextKey(session: Session, name: string): string {
  outsideSteps(session, "a wait"); // before it is counted; others have checked this
  const key = session.nextKey((currentBranch(session)?.prefix ?? session.scope) + name);
  if (Buffer.byteLength(key) > maxKey - 16) {
    // the key of a pause is longer
    throw new UsageError(`the name '${name.slice(0, 60)}' is too long inside so many nested gathers`);
  }
  return key;
}

/** Returns a time as the server reads it. */
export const stamp = (at: number): string => new Date(at).toISOString();
