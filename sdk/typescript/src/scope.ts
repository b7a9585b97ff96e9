import { AsyncLocalStorage } from "node:async_hooks";

import type { Session } from "./session.js";
import type { Span } from "./tracing.js";

/** A step whose function runs now. */
export interface RunningStep {
  readonly key: string;
  readonly name: string;
  readonly input: string | undefined;
  readonly span: Span;
  /** The artifact that it writes. */
  begun: string;
  /** Events that are sent together with the record of the step. */
  usage: string[];
  over: boolean;
}

/** One of the things that `gather` does at once. */
export interface Branch {
  readonly prefix: string;
  /** Waits for called tasks until the run ends. */
  readonly block: (calls: string[]) => Promise<never>;
}

/** From where in the agent's function the library is called. */
export interface Scope {
  readonly session: Session;
  readonly step?: RunningStep | undefined;
  readonly branch?: Branch | undefined;
}

const storage = new AsyncLocalStorage<Scope>();

/** Returns the scope of the caller. An agent may use the task of another one; its scope is not for that. */
export function scopeIn(session: Session): Scope {
  const scope = storage.getStore();
  return scope?.session === session ? scope : { session };
}

/** Reports whether the caller is part of a step of a task. */
export function inStep(taskId: string): boolean {
  const scope = storage.getStore();
  return scope?.step !== undefined && scope.session.run.taskId === taskId;
}

/** Starts work that is recorded as a part of the step of the caller, and may outlast it. In it, calls of the task fail. */
export function runAsPart<T>(work: () => T): T {
  const scope = storage.getStore();
  return scope?.step === undefined ? work() : storage.run({ ...scope, step: { ...scope.step, over: true } }, work);
}

export function runIn<T>(scope: Scope, work: () => T): T {
  return storage.run(scope, work);
}
