import { caller } from "./place.js";

/** The longest delay of another attempt, in seconds. */
const retryLimit = 7 * 86_400;

/** The base of the errors of this library. */
export class A2adError extends Error {
  override name = "A2adError";
  /** FILE:LINE of the agent's call if the error is about that call, or empty. The message begins with it. */
  where = "";
  /** @internal The message without the place. */
  readonly plain: string;

  constructor(text = "", options?: { cause?: unknown }) {
    super(text, options);
    this.plain = text;
  }

  /** @internal Adds the place of the agent's call, unless it is known. */
  place(where: string): this {
    if (this.where === "" && where !== "") {
      this.where = where;
      this.message = `${where}: ${this.plain}`;
    }
    return this;
  }
}

/**
 * A call of the library has a wrong argument or is in the wrong place.
 *
 * Nothing of the call is sent. The task does not fail: it is retried later, so that a corrected program can continue
 * it. If the agent catches the error, each later call throws it again, and the function ends with it. In a step, it
 * fails the step instead: see `Task.step`.
 */
export class UsageError extends A2adError {
  override name = "UsageError";
}

/** The server refused what the agent did, such as a call to an unknown agent. */
export class Refused extends UsageError {
  override name = "Refused";
}

/** A call was used as if it were its result, or was not awaited. */
export class NotAwaited extends UsageError {
  override name = "UsageError";
}

/** Returns a UsageError with the line of the agent's code. */
export function misuse(text: string): UsageError {
  return new UsageError(text).place(caller());
}

/**
 * The agent's code took another path than the recorded one. It ends the attempt. If the agent catches the error, each
 * later call throws it again, and the attempt fails.
 */
export class NondeterminismError extends A2adError {
  override name = "NondeterminismError";

  constructor(
    /** Of the step. */
    readonly key: string,
    /** What is recorded. */
    readonly expected: string,
    /** What the code does now. */
    readonly got: string,
  ) {
    const [kind = "", hashed = ""] = expected.split(" with ", 2);
    const differs = hashed !== "" && got.startsWith(`${kind} with `);
    const what = differs
      ? `the arguments of ${kind.replace(/^a /, "")} '${key}' differ from the recorded ones`
      : "the code takes another path than the recorded one";
    const repair = differs ? "read changing values inside a step" : "take the same path each time";
    super(`${what}; ${repair} (step '${key}' is recorded as ${expected}, but the code now does ${got})`);
  }
}

/**
 * A step failed. If the failure is recorded, each later attempt throws it again. In the attempt in which the step
 * failed, `cause` is what its function threw.
 */
export class StepError extends A2adError {
  override name = "StepError";
  /**
   * @internal Whether the failure was recorded when it was thrown. If the agent does not catch it, it fails the task.
   */
  recorded = false;

  constructor(
    /** The name of the step. */
    readonly step: string,
    /**
     * The name of the original error. For a timeout it is `TimeoutError`, for a mistake after the work `UsageError`.
     */
    readonly type: string,
    /** The message of the original error. */
    readonly text: string,
    options?: { cause?: unknown },
  ) {
    super(text === "" ? `${step}: ${type}` : `${step}: ${type}: ${text}`, options);
  }
}

/** A called agent did not complete its task. */
export class CallError extends A2adError {
  override name = "CallError";

  constructor(
    readonly agent: string,
    /** Such as `failed`, `rejected` or `canceled`. */
    readonly state: string,
    /** The text of its last message or, if that has none, of its artifacts. */
    readonly text: string,
  ) {
    super(`agent '${agent}' ended its task as ${state}${text === "" ? "" : `: ${text}`}`);
  }
}

/** No answer or signal came before the timeout of the wait; or a step took longer than its timeout. */
export class TimeoutError extends A2adError {
  override name = "TimeoutError";
}

/** An answer fits the JSON Schema of the question, but not the schema that the agent passed as `returns`. */
export class ValidationError extends A2adError {
  override name = "ValidationError";

  constructor(
    /** What was checked. */
    readonly what: string,
    /** What is wrong, and where. */
    readonly issues: readonly string[],
  ) {
    super(`${what} does not fit: ${issues.join("; ")}`);
  }
}

/** Throw it to end this attempt. The server starts another one, if attempts are left. */
export class Retry extends A2adError {
  override name = "Retry";
  /** Seconds until the next attempt; undefined for the backoff of the agent on the server. */
  readonly after: number | undefined;

  /** `after` is the delay in seconds, rounded up to whole ones; at most seven days. A negative one counts as 0. */
  constructor(reason = "", options: { after?: number } = {}) {
    super(checkReason(reason));
    const type = (options as unknown) === null ? "null" : typeof options;
    if (type !== "object") {
      throw misuse(`the options of Retry must be an object such as { after: 60 }, not ${type}`);
    }
    const { after } = options;
    if (after !== undefined && typeof after !== "number") {
      throw misuse(`after must be a number of seconds, not ${typeof after}`);
    }
    if (after !== undefined && after > retryLimit) {
      throw misuse(`after must be between 0 and 7 days in seconds, not ${after}`);
    }
    this.after = after === undefined || Number.isNaN(after) ? undefined : Math.max(after, 0);
  }
}

/** Throw it to fail the task permanently. The client sees at most 4,000 characters of the reason. */
export class Fail extends A2adError {
  override name = "Fail";

  constructor(reason: string) {
    super(checkReason(reason));
  }
}

/** Throw it to reject the task. The client sees at most 4,000 characters of the reason. */
export class Reject extends A2adError {
  override name = "Reject";

  constructor(reason: string) {
    super(checkReason(reason));
  }
}

function checkReason(reason: unknown): string {
  if (typeof reason !== "string") {
    throw misuse(`the reason must be a string, not ${reason === null ? "null" : typeof reason}`);
  }
  return reason;
}

/**
 * The run has ended, so the agent's code must not continue. It is the reason of `Task.abortSignal`. The calls of a task
 * do not throw it: they never return.
 */
export class Stopped extends A2adError {
  override name = "Stopped";

  constructor(
    /**
     * `waiting`: the task waits without this process. `canceled`: the task was canceled. `lost`: the lease expired.
     * `released`: the worker stops, and the task returns to the queue. `ended`: the function, or the try of a step, has
     * ended. `crashed`: a test crashes the agent here.
     */
    readonly why: "waiting" | "canceled" | "lost" | "released" | "ended" | "crashed",
    text: string = why,
  ) {
    super(text);
  }
}
