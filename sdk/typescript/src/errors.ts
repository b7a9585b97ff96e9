import { callersLine } from "./caller.js";

/** Base of the errors of this library. */
export class A2adError extends Error {
  override name = "A2adError";
}

/** The agent's code calls the library in a way that cannot work. The message names the line of the agent's code. */
export class UsageError extends A2adError {
  override name = "UsageError";
  /** The place of the call, such as `trip.ts:12:9`. */
  at: string | undefined;

  /** @param hasPlace whether the agent's call is on the stack. */
  constructor(text: string, hasPlace = true) {
    super(text);
    if (hasPlace) {
      this.locate();
    }
  }

  /** @internal Adds the place of the agent's call to the message, unless it is known. */
  locate(): void {
    this.at ??= located(this);
  }
}

/** The agent's code has taken another path than the one that is recorded. */
export class NondeterminismError extends A2adError {
  override name = "NondeterminismError";
  /** The place of the call, such as `trip.ts:12:9`. */
  readonly at: string | undefined;

  constructor(
    readonly key: string,
    /** What is recorded. */
    readonly expected: string,
    /** What the code did now. */
    readonly got: string,
  ) {
    super(`step "${key}" is recorded as ${expected}, but the code now does ${got}`);
    this.at = located(this);
  }
}

/** Adds the place of the agent's call to the message of an error. */
function located(err: Error): string | undefined {
  const at = callersLine();
  if (at !== undefined) {
    err.message += ` (at ${at})`;
  }
  return at;
}

/**
 * A step failed. It is thrown again, with the same text, when the agent runs again. In the attempt in which the step
 * failed, `cause` is what its function threw.
 */
export class StepError extends A2adError {
  override name = "StepError";

  constructor(
    readonly step: string,
    /** The name of the original error. */
    readonly type: string,
    /** The message of the original error. */
    readonly text: string,
    /** The failure is final: another attempt would get it again. */
    readonly recorded: boolean,
    options?: ErrorOptions,
  ) {
    super(text === "" ? `${step}: ${type}` : `${step}: ${type}: ${text}`, options);
  }
}

/** A called agent did not complete its task. */
export class CallError extends A2adError {
  override name = "CallError";

  constructor(
    readonly agent: string,
    /** Such as `failed`. */
    readonly state: string,
    readonly text: string,
  ) {
    super(`agent "${agent}" ended its task as ${state}${text === "" ? "" : `: ${text}`}`);
  }
}

/** What the agent waited for did not come in time. */
export class TimeoutError extends A2adError {
  override name = "TimeoutError";
}

/** A value does not fit the schema that the agent passed as `returns`. */
export class ValidationError extends A2adError {
  override name = "ValidationError";

  constructor(
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

  /** @param options.after the delay in seconds; without it, the server's backoff for the agent applies. */
  constructor(
    reason = "",
    readonly options: { after?: number } = {},
  ) {
    super(reason);
    const { after = 0 } = options;
    if (!(after >= 0 && after <= 7 * 86400)) {
      throw new UsageError(`after must be between 0 and 604800 seconds, not ${after}`);
    }
  }
}

/** Throw it to fail the task for good. The client reads the reason. */
export class Fail extends A2adError {
  override name = "Fail";
}

/** Throw it to reject the task. The client reads the reason. */
export class Reject extends A2adError {
  override name = "Reject";
}

/**
 * The run has ended, so the agent's function must not go on. It is the reason of `Task.abortSignal`. The calls of a task
 * do not throw it: they do not return any more.
 */
export class Stopped extends A2adError {
  override name = "Stopped";

  constructor(
    readonly why: "waiting" | "canceled" | "lost" | "released" | "crashed",
    text: string,
  ) {
    super(text);
  }
}

/** The server does not accept what the agent did, such as a call of an agent that does not exist. */
export class Refused extends UsageError {
  override name = "Refused";

  constructor(text: string) {
    super(text, false); // the request does not know the agent's call, which adds its place
  }
}
