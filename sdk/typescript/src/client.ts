import { setTimeout as sleep } from "node:timers/promises";

import { A2adError, Refused, Stopped } from "./errors.js";
import { version } from "./version.js";
import type { Recorded, Run } from "./wire.js";

const requestTimeout = 30_000;
/** The server gives at most this many runs at once. */
const maxClaimed = 100;

/** The server answered with an error. */
export class ServerError extends A2adError {
  override name = "ServerError";

  constructor(
    readonly status: number,
    /** Its code, such as FORBIDDEN. */
    readonly reason: string,
    text: string,
    /** Seconds to wait before the next try. */
    readonly after: number | undefined,
  ) {
    super(`${status} ${reason}: ${text}`);
  }
}

interface Answer {
  cancelRequested?: boolean;
  runs?: Run[];
  steps?: Recorded[];
}

/** The worker API of the server. */
export class Client {
  readonly #url: string;
  readonly #headers: Record<string, string>;

  constructor(url: string, apiKey: string | undefined) {
    this.#url = `${url.replace(/\/+$/, "")}/worker/v1`;
    this.#headers = { "Content-Type": "application/json", "User-Agent": `a2ad-typescript/${version}` };
    if (apiKey !== undefined && apiKey !== "") {
      this.#headers.Authorization = `Bearer ${apiKey}`;
    }
  }

  /** Waits for up to `max` runs of an agent. The list is empty if none came in time. */
  async claim(worker: string, agent: string, max: number, waitSeconds: number, stop: AbortSignal): Promise<Run[]> {
    const body = JSON.stringify({ worker, agents: [agent], max: Math.min(max, maxClaimed), waitSeconds });
    const limit = AbortSignal.timeout(waitSeconds * 1000 + requestTimeout);
    return (await this.#request("POST", "/claim", body, limit, stop)).runs ?? [];
  }

  /** Reads the steps that the claim did not contain. */
  async readSteps(run: Run): Promise<void> {
    const steps = (run.steps ??= []);
    while (steps.length < (run.stepCount ?? 0)) {
      const answer = await this.#retried(run, "GET", `steps?after=${steps.length}`);
      if (answer.steps === undefined || answer.steps.length === 0) {
        throw new A2adError(`task ${run.taskId}: step ${steps.length + 1} is missing`);
      }
      steps.push(...answer.steps);
    }
  }

  /** Stores events: see Reporter. */
  async report(run: Run, events: readonly string[], batch: string): Promise<boolean> {
    const body = `{"events":[${events.join(",")}],"batchId":"${batch}"}`;
    return (await this.#retried(run, "POST", "events", body)).cancelRequested ?? false;
  }

  /** Renews the lease. Returns whether the task was canceled. */
  async heartbeat(run: Run, stop: AbortSignal): Promise<boolean> {
    return (await this.#retried(run, "POST", "heartbeat", "{}", stop)).cancelRequested ?? false;
  }

  /** Ends a run that no event has ended. */
  async finish(run: Run, outcome: "retry" | "release", error?: string, after?: number): Promise<void> {
    const retryAfterSeconds = after === undefined ? undefined : Math.ceil(after);
    await this.#retried(run, "POST", "finish", JSON.stringify({ outcome, error, retryAfterSeconds }));
  }

  /** Sends a request until it is answered, until the lease must have expired, or until `stop` aborts. */
  async #retried(run: Run, method: string, what: string, body?: string, stop?: AbortSignal): Promise<Answer> {
    const until = performance.now() + run.leaseSeconds * 1000;
    const path = `/runs/${run.taskId}/${run.epoch}/${what}`;
    for (let tries = 1; ; tries++) {
      let pause: number | undefined;
      let last: unknown;
      try {
        return await this.#request(method, path, body, AbortSignal.timeout(requestTimeout), stop);
      } catch (err) {
        if (stop?.aborted === true) {
          throw new Stopped("lost", "the attempt has ended");
        }
        pause = afterError(err);
        last = err;
      }
      const wait = (pause ?? Math.random() * Math.min(0.1 * 2 ** tries, 5)) * 1000;
      if (performance.now() + wait > until) {
        throw new Stopped("lost", `the server cannot be reached: ${errorText(last)}`);
      }
      await sleep(wait, undefined, stop && { signal: stop }).catch(() => undefined);
    }
  }

  async #request(
    method: string,
    path: string,
    body: string | undefined,
    limit: AbortSignal,
    stop?: AbortSignal,
  ): Promise<Answer> {
    // Not AbortSignal.any: what it makes of a signal that lives as long as the worker is kept as long.
    const aborted = new AbortController();
    const abort = () => {
      aborted.abort();
    };
    limit.addEventListener("abort", abort);
    stop?.addEventListener("abort", abort);
    try {
      const init = { method, headers: this.#headers, signal: aborted.signal, ...(body !== undefined && { body }) };
      return await readAnswer(await fetch(this.#url + path, init));
    } finally {
      limit.removeEventListener("abort", abort);
      stop?.removeEventListener("abort", abort);
    }
  }
}

async function readAnswer(answer: Response): Promise<Answer> {
  const text = await answer.text();
  if (answer.ok) {
    return JSON.parse(text) as Answer;
  }
  let reason = "";
  let message = text.slice(0, 500);
  try {
    const { error } = JSON.parse(text) as { error: { reason: string; message: string } };
    ({ reason, message } = error);
  } catch {
    // from a proxy
  }
  const after = Number(answer.headers.get("Retry-After") ?? NaN);
  throw new ServerError(answer.status, reason, message, Number.isFinite(after) ? after : undefined);
}

/** Returns how long the server asks to wait before a request is sent again, and throws if it must not be. */
function afterError(err: unknown): number | undefined {
  if (!(err instanceof ServerError)) {
    return undefined; // no answer
  }
  if (err.reason === "LEASE_LOST") {
    throw new Stopped("lost", "the lease is lost: another worker has the task");
  }
  if (err.status !== 429 && err.status < 500) {
    throw new Refused(err.message);
  }
  return err.after;
}

/** Returns why a request failed. `fetch` hides it in the cause of its error. */
export function errorText(err: unknown): string {
  const { cause } = err instanceof Error ? err : {};
  if (cause instanceof Error) {
    return cause instanceof AggregateError ? cause.errors.map(errorText).join("; ") : cause.message;
  }
  return err instanceof Error ? err.message : String(err);
}
