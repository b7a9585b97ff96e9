/** Steps: work that is recorded, and not done again. */
import { refuseCalls, forgotten } from "./call.js";
import { count, name as checkName, options as checkOptions, seconds, secondsLeft, type Duration } from "./check.js";
import { A2adError, Fail, Reject, Retry, StepError, TimeoutError, UsageError } from "./errors.js";
import { classAndText, logFailure, logMistake } from "./failures.js";
import { clean, compact, digest, inputs, isFunction, type Json, plain, typeName, withInput } from "./json.js";
import { countPending } from "./pending.js";
import { branchPrefix, currentBranch, nextKey, outsideSteps, runIn, stamp, stream, StepTry } from "./scope.js";
import { checkSchema, validate, type Schema } from "./schema.js";
import type { Session } from "./session.js";
import { beginWait } from "./wait.js";
import type { Abort, Recorded } from "./wire.js";

/** Seconds. From here on, a pause between two tries is a wait without a worker. */
const longPause = 10;
const longestPause = 3600;
const maxRetries = 1000;

export interface StepOptions {
  /** What the step depends on: it must be the same each time. */
  input?: unknown;
  /** The same, if it is several values. */
  args?: readonly unknown[];
  /** How often the function is called again after it has failed, at most 1,000; default 0. */
  retries?: number;
  /** The pause before the first retry. It doubles each time, up to an hour; default 1 second. */
  backoff?: Duration;
  /** How long one call of the function may take. Then its `AbortSignal` aborts; default: no limit. */
  timeout?: Duration;
}

/** The function of a step. It should pass the `AbortSignal` to what it waits for. */
export type StepFunction<T> = (abort: Abort) => T | PromiseLike<T>;

/** A step with its checked arguments. */
interface Plan {
  readonly name: string;
  readonly fn: StepFunction<unknown>;
  readonly retries: number;
  readonly backoff: number;
  readonly timeout: number | undefined;
  readonly returns: Schema | undefined;
}

/** @internal Returns the recorded result of a step, or does the step and records it. */
export async function doStep(
  session: Session,
  name: string,
  fn: StepFunction<unknown>,
  options: StepOptions & { returns?: Schema },
): Promise<unknown> {
  const plan = planOf(name, fn, options);
  outsideSteps(session, "step");
  const sent = inputs("input" in options && options.input !== undefined ? [options.input] : (options.args ?? []));
  const key = nextKey(session, name);
  const old = session.recorded(key, "step", name, digest(sent));
  session.check();
  if (old !== undefined && old.artifact !== "") {
    stream(session, old.artifact);
    session.segments.continue(old.artifact, old.ended ? key : "");
  }
  session.segments.close(); // now, so that it does not depend on how the step ends
  if (old?.ended === true) {
    if (old.error !== undefined) {
      throw recordedError(name, old.error);
    }
    return await restore(old.result ?? null, plan, `the recorded result of step '${name}'`);
  }
  return await new Work(session, plan, key, sent).run(old);
}

function planOf(name: string, fn: unknown, options: StepOptions & { returns?: Schema }): Plan {
  if (typeof name === "function") {
    throw new UsageError('the name of a step comes first: step("work", work, …)');
  }
  checkOptions(options, "step", ["input", "args", "retries", "backoff", "timeout", "returns"]);
  refuseCalls(fn, options.input, ...(Array.isArray(options.args) ? (options.args as unknown[]) : []));
  if (!isFunction(fn)) {
    throw new UsageError(`the function of a step must be a function, not ${typeName(fn)}: step("work", () => …)`);
  }
  const { input, args, retries = 0, backoff = 1, timeout, returns } = options;
  if (args !== undefined && (!Array.isArray(args) || input !== undefined)) {
    throw new UsageError("step takes either input, which is one value, or args, an array of values");
  }
  if (returns !== undefined) {
    checkSchema(returns);
  }
  return {
    name: checkName(name, "the name of a step"),
    fn: fn as StepFunction<unknown>,
    retries: count(retries, "retries", 0, maxRetries),
    backoff: seconds(backoff, "backoff"),
    timeout: timeout === undefined ? undefined : secondsLeft(timeout, "timeout"),
    returns,
  };
}

/** A step that has to be done. */
class Work {
  constructor(
    private readonly session: Session,
    private readonly plan: Plan,
    private readonly key: string,
    private readonly input: string | undefined,
  ) {}

  async run(old: Recorded | undefined): Promise<unknown> {
    const { session, plan } = this;
    const span = session.span.child(`step ${plan.name}`, { "a2ad.step": this.key });
    try {
      let step = this.begin(old?.artifact ?? "", span);
      let tried = 0;
      if (old !== undefined && old.nextAt !== "") {
        tried = old.attempts;
        await this.pause(tried, Date.parse(old.nextAt));
      }
      for (;;) {
        tried++;
        const result = await this.working(this.once(step, tried));
        if ("value" in result) {
          span.end();
          return result.value;
        }
        await this.pause(tried, result.again);
        step = this.begin(step.begun, span);
      }
    } catch (err) {
      span.end(err);
      throw err;
    }
  }

  /** Returns the next try. It restores the artifact that an earlier one wrote. */
  private begin(artifact: string, span: StepTry["span"]): StepTry {
    const step = new StepTry(this.session, this.key, this.plan.name, this.input, span);
    if (artifact !== "") {
      beginStream(step, artifact);
    }
    return step;
  }

  /** Lets the end of the agent's function wait for a try. */
  private async working<T>(trying: Promise<T>): Promise<T> {
    const done = trying.then(
      () => undefined,
      () => undefined,
    );
    this.session.working.add(done);
    try {
      return await trying;
    } finally {
      this.session.working.delete(done);
    }
  }

  /** Calls the function, and records the result or the failure. `again` is when to call it again. */
  private async once(step: StepTry, tried: number): Promise<{ value: unknown } | { again: number }> {
    const { session } = this;
    session.checkOpen();
    const started = Date.now();
    const result = await this.try(step);
    if (!("value" in result)) {
      return { again: await this.failed(step, result.cause, tried, started) };
    }
    session.endText(step.begun, step.pairs.rest());
    session.addRaw(...usageOf(step), stepEvent(step, { attempts: tried, ...times(started) }, result.json));
    await session.flush();
    return { value: result.value };
  }

  private async try(step: StepTry): Promise<{ json: string; value: unknown } | { cause: unknown }> {
    const { session, plan } = this;
    try {
      const result = await this.callFunction(step);
      const mistake = step.mistake ?? forgotten(step.waiting);
      if (mistake !== undefined) {
        throw mistake;
      }
      const what = `the result of step '${plan.name}'`;
      const [json, value] = plain(result, what);
      // What cannot be restored now could not be restored in a later attempt either.
      return { json, value: await restore(value, plan, what) };
    } catch (err) {
      session.check(); // the function may have failed because the run has ended
      return { cause: step.mistake ?? forgotten(step.waiting) ?? err };
    }
  }

  private async callFunction(step: StepTry): Promise<unknown> {
    const { session, plan } = this;
    const branch = currentBranch(session);
    const prefix = branchPrefix(session);
    const call = async (abort: Abort) => {
      const result = await step.span.within(() => runIn({ session, step, branch }, () => plan.fn(abort)));
      step.returned = !step.ended;
      return result;
    };
    session.trying.set(prefix, step);
    try {
      return await limited((abort) => countPending(call(abort)), session, plan.timeout);
    } finally {
      session.trying.delete(prefix);
      step.ended = true;
    }
  }

  /** Records that the function failed, and returns when the next try is. It throws if there is none. */
  private async failed(step: StepTry, cause: unknown, tried: number, started: number): Promise<number> {
    const { session, plan } = this;
    const failure = failureOf(plan.name, cause);
    this.log(cause, plan.retries > 0 ? ` (try ${tried} of ${plan.retries + 1})` : "");
    const record = { error: { type: failure.type, message: failure.text }, attempts: tried };
    const ended = { ...record, ...times(started) };
    if (isEnding(cause)) {
      session.hold(...usageOf(step), stepEvent(step, ended));
      throw cause;
    }
    const isMistake = cause instanceof UsageError;
    if (isMistake || tried > plan.retries) {
      if (isMistake || plan.retries > 0) {
        failure.recorded = true;
        session.addRaw(...usageOf(step), stepEvent(step, ended));
        await session.flush();
      } else {
        session.hold(...usageOf(step), stepEvent(step, ended)); // it is recorded with what the agent does next
      }
      throw failure;
    }
    const delay = Math.min(plan.backoff * 2 ** Math.min(tried - 1, 60), longestPause);
    const at = session.clock.now() + delay * 1000;
    session.addRaw(...usageOf(step), stepEvent(step, { ...record, nextAt: stamp(at) }));
    await session.flush();
    return at;
  }

  private log(cause: unknown, tries: string): void {
    if (cause instanceof UsageError) {
      logMistake(this.session, cause, this.session.calling.get(branchPrefix(this.session))?.toString());
    } else if (!isEnding(cause)) {
      logFailure(this.session, "warn", `step ${this.plan.name} failed${tries}`, cause);
    }
  }

  private async pause(tried: number, at: number): Promise<void> {
    const { session } = this;
    const first = `${this.key}/pause#${tried}`;
    let key = first;
    for (let n = 2, old = session.known.get(key); old !== undefined; old = session.known.get(key)) {
      if (old.by !== "tasks") {
        return;
      }
      key = `${first}.${n++}`; // a call of another branch has ended before the pause
    }
    // The clock may have been set back.
    const delay = Math.min(Math.max((at - session.clock.now()) / 1000, 0), longestPause);
    if (delay < longPause) {
      await session.clock.sleep(delay, session.abort.signal);
      session.check();
      return;
    }
    const wait = { calls: [], until: session.clock.now() + delay * 1000, key };
    const branch = currentBranch(session);
    if (branch === undefined) {
      await beginWait(session, wait, key);
    } else {
      await branch.group.block(branch.number, wait, delay);
    }
  }
}

/** Calls a function with a signal that aborts when the run ends or the time is up. */
async function limited(
  call: (abort: Abort) => Promise<unknown>,
  session: Session,
  timeout: number | undefined,
): Promise<unknown> {
  const ended = session.abort.signal;
  if (timeout === undefined) {
    return await call(ended);
  }
  const limit = session.abortController();
  const end = () => {
    limit.abort(ended.reason);
  };
  ended.addEventListener("abort", end);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => {
        const err = new TimeoutError(`it took longer than ${timeout} s`);
        reject(err);
        limit.abort(err);
      },
      Math.min(timeout * 1000, 2 ** 31 - 1),
    );
  });
  try {
    return await Promise.race([call(limit.signal), late]);
  } finally {
    clearTimeout(timer);
    ended.removeEventListener("abort", end);
  }
}

/** @internal Records that a step begins to write an artifact. */
export function beginStream(step: StepTry, artifact: string): void {
  stream(step.session, artifact);
  step.begun = artifact;
  step.session.addRaw(stepEvent(step, { artifact }));
}

/** Returns the event of a step. Its result is JSON already. */
function stepEvent(step: StepTry, more: object, result?: string): string {
  const text = withInput({ key: step.key, name: step.name, ...more }, step.input);
  return `{"step":${result === undefined ? text : `${text.slice(0, -1)},"result":${result}}`}}`;
}

/** Returns the events of the usage that a try of a step reported, to send with its record. */
function usageOf(step: StepTry): string[] {
  return step.usage.splice(0).map((usage) => compact({ usage }));
}

const times = (started: number) => ({ startedAt: stamp(started), endedAt: stamp(Date.now()) });

/** What a step's function may throw to end the attempt or the task, and how it is recorded. */
const endings = [
  ["a2ad.Retry", Retry],
  ["a2ad.Fail", Fail],
  ["a2ad.Reject", Reject],
] as const;

const isEnding = (err: unknown): err is Retry | Fail | Reject => endings.some(([, kind]) => err instanceof kind);

function failureOf(step: string, cause: unknown): StepError {
  let [type, text] = classAndText(cause);
  if (cause instanceof UsageError) {
    // Without the path of a file, because a client may read it.
    text = `${cause.plain}. The step is not done again, because its function was called`;
    type = "UsageError";
  } else if (cause instanceof A2adError) {
    text = cause.plain;
    type = endings.find(([, kind]) => cause instanceof kind)?.[0] ?? type;
  }
  return new StepError(step, clean(type, 200), clean(text, 4000), { cause });
}

function recordedError(step: string, error: Json): A2adError {
  const { type, message } = typeof error === "object" && error !== null && !Array.isArray(error) ? error : {};
  const kind = typeof type === "string" ? type : "Error";
  const text = typeof message === "string" ? message : typeof error === "string" ? error : "";
  const ending = endings.find(([name]) => name === kind)?.[1];
  if (ending !== undefined) {
    return new ending(text);
  }
  const failure = new StepError(step, kind, text);
  failure.recorded = true;
  return failure;
}

async function restore(value: Json, { returns }: Plan, what: string): Promise<unknown> {
  if (returns === undefined) {
    return value;
  }
  const [got, issues] = await validate(value, returns);
  if (issues.length > 0) {
    throw new UsageError(`${what} does not fit the schema in returns: ${issues.join("; ")}`);
  }
  return got;
}
