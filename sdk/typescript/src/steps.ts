import { Fail, Reject, Retry, StepError, TimeoutError, UsageError, ValidationError } from "./errors.js";
import { runIn, scopeIn, type RunningStep } from "./scope.js";
import { restore, type Schema } from "./schema.js";
import type { Session } from "./session.js";
import type { Span } from "./tracing.js";
import { clean, decode, digest, encode, seconds, type Duration } from "./values.js";
import { wait } from "./waits.js";
import type { Json, Recorded } from "./wire.js";

/** Seconds of a pause between two tries of a step from which on the task waits without a worker. */
const longPause = 10;
const longestBackoff = 3600;

export interface StepOptions {
  /** What the step depends on. If it differs when the agent runs again, the program has changed. */
  input?: unknown;
  /** How often the function is called again after it has failed; default 0. */
  retries?: number;
  /** The pause before the first retry, doubled from there; default 1 second. */
  backoff?: Duration;
  /** How long one call of the function may take. Its `AbortSignal` aborts then. */
  timeout?: Duration;
}

/** The function of a step. It should pass the `AbortSignal` to what it waits for. */
export type StepFunction<T> = (abort: AbortSignal) => T | Promise<T>;

/** Names and numbers of a step, checked. */
interface Plan {
  readonly input: string | undefined;
  readonly retries: number;
  readonly backoff: number;
  readonly timeout: number | undefined;
  readonly returns: Schema | undefined;
}

/** Reads the options of a step. It throws UsageError from the caller's stack. */
export function planStep(name: string, fn: unknown, options: StepOptions & { returns?: Schema }): Plan {
  const { input, retries = 0, backoff = 1, timeout, returns } = options;
  if (typeof fn !== "function") {
    throw new UsageError(`step takes a function, not ${typeof fn}: write step("${name}", () => …)`);
  }
  if (!Number.isInteger(retries) || retries < 0) {
    throw new UsageError(`retries must be a whole number from 0, not ${retries}`);
  }
  return {
    input: input === undefined ? undefined : encode(input, `the input of step "${name}"`),
    retries,
    backoff: seconds(backoff, "backoff"),
    timeout: timeout === undefined ? undefined : seconds(timeout, "timeout"),
    returns,
  };
}

/** Does a step, or returns what is recorded of it. */
export async function doStep(
  session: Session,
  parent: Span,
  key: string,
  name: string,
  fn: StepFunction<unknown>,
  plan: Plan,
): Promise<unknown> {
  const old = session.recorded(key, "step", name, plan.input === undefined ? "" : digest(plan.input));
  session.check();
  if (old?.endedAt !== undefined) {
    session.closeSegments();
    if (old.error !== undefined) {
      throw recordedFailure(name, old.error);
    }
    return returned(old.result ?? null, name, plan);
  }
  return await new Step(session, parent, key, name, fn, plan).run(old);
}

function returned(result: Json, name: string, { returns }: Plan): unknown {
  return returns === undefined ? result : restore(result, returns, `the result of step "${name}"`);
}

/** A step that has to be done. */
class Step {
  constructor(
    private readonly session: Session,
    private readonly parent: Span,
    private readonly key: string,
    private readonly name: string,
    private readonly fn: StepFunction<unknown>,
    private readonly plan: Plan,
  ) {}

  async run(old: Recorded | undefined): Promise<unknown> {
    let begun = old?.artifact ?? "";
    let tried = old?.nextAt === undefined ? 0 : (old.attempts ?? 1);
    if (old?.nextAt !== undefined) {
      await this.pauseUntil(tried, Date.parse(old.nextAt));
    }
    for (;;) {
      tried++;
      const span = this.parent.child(`step ${this.name}`, { "a2ad.step": this.key });
      const running: RunningStep = {
        ...{ key: this.key, name: this.name, input: this.plan.input, span, begun, usage: [], over: false },
      };
      if (begun !== "") {
        this.session.add(beginning(running));
      }
      const startedAt = new Date().toISOString();
      try {
        const text = await this.try(running);
        this.session.add(...running.usage, record(running, { attempts: tried, ...until(startedAt) }, text));
        await this.session.flush();
        return await returned(decode(text), this.name, this.plan);
      } catch (err) {
        if (this.session.over || isFinal(err)) {
          throw err;
        }
        await this.failed(running, err, tried, startedAt);
      }
      begun = running.begun;
    }
  }

  /** Calls the function, and returns its result as JSON. */
  private async try(running: RunningStep): Promise<string> {
    this.session.running.set(this.key, this.name);
    const { branch } = scopeIn(this.session);
    const scope = { session: this.session, step: running, branch };
    try {
      const result = await runIn(scope, () => running.span.within(() => this.limited()));
      const text = encode(result, `the result of step "${this.name}"`);
      running.span.end();
      return text;
    } catch (err) {
      running.span.end(String(err));
      throw err;
    } finally {
      running.over = true;
      this.session.running.delete(this.key);
    }
  }

  private async limited(): Promise<unknown> {
    const { timeout } = this.plan;
    const abort = this.session.abort.signal;
    if (timeout === undefined) {
      return this.fn(abort);
    }
    const limit = new AbortController();
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      // Unlike AbortSignal.timeout, it keeps the process alive.
      timer = setTimeout(() => {
        const err = new TimeoutError(`it took longer than ${timeout} s`);
        reject(err);
        limit.abort(err);
      }, timeout * 1000);
    });
    try {
      return await Promise.race([this.fn(AbortSignal.any([abort, limit.signal])), late]);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Records that the function failed. It throws StepError if the step is not tried again. */
  private async failed(running: RunningStep, err: unknown, tried: number, startedAt: string): Promise<void> {
    const { session, plan } = this;
    const error = described(err);
    const failure = { error, attempts: tried };
    if (tried > plan.retries) {
      const events = [...running.usage, record(running, { ...failure, ...until(startedAt) })];
      const recorded = plan.retries > 0;
      if (recorded) {
        session.add(...events);
        await session.flush();
      } else {
        session.hold(events);
      }
      throw new StepError(this.name, error.type, error.message, recorded, { cause: err });
    }
    const delay = Math.min(plan.backoff * 2 ** (tried - 1), longestBackoff);
    const at = session.clock.now() + delay * 1000;
    session.add(...running.usage, record(running, { ...failure, nextAt: new Date(at).toISOString() }));
    await session.flush();
    await this.pauseUntil(tried, at);
  }

  private async pauseUntil(tried: number, at: number): Promise<void> {
    const { session } = this;
    const key = `${this.key}/pause#${tried}`;
    const old = session.recorded(key, "wait", "");
    if (old?.endedAt !== undefined) {
      return;
    }
    const delay = (at - session.clock.now()) / 1000;
    const { branch } = scopeIn(session);
    if (old === undefined && (delay < longPause || branch !== undefined || session.running.size > 0)) {
      await session.clock.sleep(Math.max(delay, 0));
      session.check();
      return;
    }
    await wait(session, key, "a pause", { until: new Date(at).toISOString() });
  }
}

/** Reports whether an error is not for the retries of a step: another try cannot change it. */
function isFinal(err: unknown): boolean {
  return [Retry, Fail, Reject, UsageError, ValidationError].some((kind) => err instanceof kind);
}

const until = (startedAt: string) => ({ startedAt, endedAt: new Date().toISOString() });

/** Returns the event that a step begins to write an artifact. */
export function beginning(s: RunningStep): string {
  return record(s, { artifact: s.begun });
}

/** Returns the event of a step. Input and result are JSON already. */
function record(s: RunningStep, more: object, result?: string): string {
  let text = JSON.stringify({ key: s.key, name: s.name, ...more }).slice(0, -1);
  if (s.input !== undefined) {
    text += `,"input":${s.input}`;
  }
  if (result !== undefined) {
    text += `,"result":${result}`;
  }
  return `{"step":${text}}}`;
}

function described(err: unknown): { type: string; message: string } {
  const { name, message } = err instanceof Error ? err : new Error(String(err));
  return { type: clean(name, 200), message: clean(message, 4000) };
}

function recordedFailure(step: string, error: Json): StepError {
  const { type, message } = typeof error === "object" && error !== null && !Array.isArray(error) ? error : {};
  const text = typeof message === "string" ? message : typeof error === "string" ? error : "";
  return new StepError(step, typeof type === "string" ? type : "Error", text, true);
}
