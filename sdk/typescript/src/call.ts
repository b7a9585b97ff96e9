/** Calls of a task: what its methods return, and where the agent's code made them. */
import { AsyncResource } from "node:async_hooks";

import { NondeterminismError, NotAwaited, Stopped, UsageError } from "./errors.js";
import { fieldsOf } from "./failures.js";
import { Place } from "./place.js";
import { branchPrefix, currentStep, type StepTry } from "./scope.js";
import type { Session } from "./session.js";

/** A promise of nothing: the agent's function is left where it awaits it. */
const never = (): Promise<never> => new Promise(() => undefined);

/**
 * What a method of a task returns: a promise that does nothing until it is awaited. So a forgotten `await` is found,
 * and no call fails without a handler.
 */
export class Call<T> implements Promise<T> {
  readonly [Symbol.toStringTag] = "Promise";
  readonly #begin: () => Promise<T>;
  readonly #waiting: Set<Call<unknown>>;
  /** What the caller's place in the program is: its step and branch, and its trace. */
  readonly #context = new AsyncResource("a2ad.call");
  #begun: Promise<T> | undefined;

  constructor(
    begin: () => Promise<T>,
    private readonly name: string,
    private readonly where: Place,
    waiting: Set<Call<unknown>>,
  ) {
    this.#begin = begin;
    this.#waiting = waiting;
    waiting.add(this);
  }

  then<A = T, B = never>(
    resolved?: ((value: T) => A | PromiseLike<A>) | null,
    rejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    if (this.#begun === undefined) {
      this.handedOver();
      this.#begun = this.#context.runInAsyncScope(this.#begin);
    }
    return this.#begun.then(resolved, rejected);
  }

  catch<B = never>(rejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<T | B> {
    return this.then(undefined, rejected);
  }

  finally(settled?: (() => void) | null): Promise<T> {
    return this.then().finally(settled);
  }

  /** Notes that something else awaits this call, or that it has begun. */
  handedOver(): void {
    this.#waiting.delete(this);
  }

  notAwaited(): NotAwaited {
    const err = new NotAwaited(`write await before ${this.name}(…), which has done nothing yet`);
    err.place(this.where.toString());
    return err;
  }

  /** Refuses to become a text. */
  [Symbol.toPrimitive](): never {
    throw this.notAwaited();
  }

  /** Refuses to become JSON. */
  toJSON(): never {
    throw this.notAwaited();
  }
}

/** Starts the calls of one task, and remembers where the agent's code made them. */
export class Caller {
  /** The calls that nothing has awaited yet. */
  readonly #waiting: Set<Call<unknown>>;

  constructor(
    readonly session: Session,
    private readonly owner = "task",
    waiting = new Set<Call<unknown>>(),
  ) {
    this.#waiting = waiting;
  }

  /** Returns the same caller for the methods of another object. */
  of(owner: string): Caller {
    return new Caller(this.session, owner, this.#waiting);
  }

  /** Returns a call. Its errors name the line of the agent's code. */
  start<T>(method: string, work: () => Promise<T>): Call<T> {
    const where = new Place();
    const { session } = this;
    const waiting = currentStep(session)?.waiting ?? this.#waiting;
    const beside = method === "write" || method === "usage" ? session.trying.get(branchPrefix(session)) : undefined;
    return new Call(() => this.#run(where, work, beside), `${this.owner}.${method}`, where, waiting);
  }

  /** Does what a method does that does not wait, such as `Task.artifact`. */
  now<T>(work: () => T): T {
    try {
      return work();
    } catch (err) {
      this.#explain(err, new Place());
      throw err;
    }
  }

  async #run<T>(where: Place, work: () => Promise<T>, beside: StepTry | undefined): Promise<T> {
    try {
      return await this.#alone(where, work, beside);
    } catch (err) {
      if (err instanceof Stopped) {
        err.place(where.toString());
        return await never();
      }
      this.#explain(err, where);
      throw err;
    }
  }

  /**
   * Does the work, unless another call of the same branch is in progress. A step can contain it. So if one was running
   * when the call was made, it may be that of a callback of the step, which fails with it.
   */
  async #alone<T>(where: Place, work: () => Promise<T>, beside: StepTry | undefined): Promise<T> {
    const { session } = this;
    if (session.stopped instanceof Stopped) {
      if (session.stopped.why === "ended") {
        this.#late(where);
      }
      throw session.stopped;
    }
    const step = currentStep(session);
    if (step !== undefined) {
      step.check();
      return await work();
    }
    if (session.closed) {
      this.#late(where);
    }
    session.checkOpen();
    const branch = branchPrefix(session);
    const other = session.calling.get(branch);
    if (other !== undefined) {
      // The order of the two may change in the next attempt, and with it their keys.
      const mistake = new UsageError(
        `the call at ${other.toString() || "another place"} is still in progress: ` +
          "await one call before the next, or use task.gather. A callback of a step that has lost its " +
          "context needs AsyncResource.bind",
      );
      if (beside !== undefined) {
        beside.mistake ??= mistake;
      }
      throw mistake;
    }
    session.calling.set(branch, where);
    try {
      return await work();
    } finally {
      session.calling.delete(branch);
    }
  }

  #late(where: Place): void {
    const { session } = this;
    if (session.mistake === undefined) {
      const what = `the call at ${where.toString()} came after the function had ended: await what it begins`;
      session.logger.warn(what, fieldsOf(session.run));
    }
  }

  /** Remembers a mistake: the running step fails with it, or the agent may not go on. */
  #explain(err: unknown, where: Place): void {
    if (!(err instanceof UsageError || err instanceof NondeterminismError)) {
      return;
    }
    err.place(where.toString());
    const step = currentStep(this.session);
    if (step === undefined || step.ended) {
      this.session.refuse(err);
    } else {
      step.mistake ??= err;
    }
  }

  /** Throws if a call was not awaited. */
  checkAwaited(): void {
    const mistake = forgotten(this.#waiting);
    if (mistake !== undefined) {
      throw mistake;
    }
  }
}

/** Returns the mistake if a call was not awaited. */
export function forgotten(waiting: ReadonlySet<Call<unknown>>): NotAwaited | undefined {
  const [first] = waiting;
  return first?.notAwaited();
}

/** Refuses a call as an argument. */
export function refuseCalls(...values: unknown[]): void {
  for (const value of values) {
    if (value instanceof Call) {
      throw value.notAwaited();
    }
  }
}
