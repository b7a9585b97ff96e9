/** The worker API of the server, over HTTP. */
import { monotonic, sleep } from "./clock.js";
import { A2adError, Refused, Stopped } from "./errors.js";
import { HttpError, Pool, type Answer } from "./http.js";
import { clean, type Json } from "./json.js";
import type { Logger } from "./log.js";
import { version } from "./version.js";
import { decodeRun, isRecord, Recorded, type Run } from "./wire.js";

const claimWait = 30;
const claimTimeout = claimWait + 30;
/** Runs that one request may claim. */
const maxClaim = 100;
/** Seconds between two tries of a request. */
const maxPause = 5;
const maxRetryAfter = 60;

/** The server answered with an error. A proxy may have answered instead, without a reason. */
export class ServerError extends A2adError {
  override name = "ServerError";

  constructor(
    readonly status: number,
    /** Its code, such as FORBIDDEN, or empty. */
    readonly reason: string,
    readonly text: string,
    /** Seconds to wait before the next try. */
    readonly after?: number,
  ) {
    super(reason === "" ? `${status}: ${text}` : `${status} ${reason}: ${text}`);
  }

  /** Returns whether each repetition of the request would get this answer too. */
  refuses(): boolean {
    return [400, 409, 413].includes(this.status) && this.reason !== "";
  }

  /** Returns what to check if a claim gets this answer, after a separator, or an empty text. */
  advice(agent: string): string {
    if (this.status === 401) {
      return "; check A2AD_API_KEY (apiKey)";
    }
    if (this.status === 403) {
      return "; check that the API key has the scope worker and may be used for the agent";
    }
    if (this.reason === "") {
      return "; check that A2AD_URL (url) is the URL of an a2ad server";
    }
    return this.status === 404
      ? `; check the name of the agent, or add an agent file to the server: "name: ${agent}", "executor: {pull: {}}"`
      : "";
  }
}

/** How a request of a run is repeated. */
interface Repetition {
  readonly signal?: AbortSignal | undefined;
  /** How old the lease may be when the answer does not say that it was renewed, in seconds. */
  readonly age?: number;
  readonly mayRefuse?: boolean;
}

/** What sends a request once. Tests have another one than `Pool`. */
export interface Transport {
  /** `sent` is called when the request is written. */
  request(
    method: string,
    path: string,
    body: string,
    timeout: number,
    signal?: AbortSignal,
    sent?: () => void,
  ): Promise<Answer>;
  close(): void;
}

/** Sends the requests of one worker. */
export class Client {
  readonly #http: Transport;
  readonly #now: () => number;
  readonly #sleep: typeof sleep;

  constructor(
    url: string,
    apiKey: string | undefined,
    private readonly logger: Logger,
    test: { transport?: Transport; now?: () => number; sleep?: typeof sleep } = {},
  ) {
    const headers = {
      "Content-Type": "application/json",
      "User-Agent": `a2ad-typescript/${version}`,
      ...(apiKey !== undefined && { Authorization: `Bearer ${apiKey}` }),
    };
    this.#http = test.transport ?? new Pool(new URL(`${url.replace(/\/+$/, "")}/worker/v1`), headers);
    this.#now = test.now ?? monotonic;
    this.#sleep = test.sleep ?? sleep;
  }

  close(): void {
    this.#http.close();
  }

  /**
   * Waits for up to `most` runs of an agent. Returns an empty list if none came in time. `sent` is called when the
   * request is written.
   */
  async claim(worker: string, agent: string, most: number, signal: AbortSignal, sent?: () => void): Promise<Run[]> {
    const body = JSON.stringify({ worker, agents: [agent], max: Math.min(most, maxClaim), waitSeconds: claimWait });
    return await this.#send("POST", "/claim", body, claimTimeout, (answer) => this.#runs(answer), signal, sent);
  }

  /** Returns the claimed runs. One that cannot be read costs the others nothing. */
  #runs(answer: Json): Run[] {
    const runs: Run[] = [];
    let wrong: unknown;
    for (const run of listOf(answer, "runs")) {
      try {
        runs.push(decodeRun(run, this.#now()));
      } catch (err) {
        this.logger.error(`a claimed task cannot be read: ${String(err)}`, {});
        wrong = err;
      }
    }
    if (wrong !== undefined && runs.length === 0) {
      throw wrong as Error;
    }
    return runs;
  }

  /** Reads the steps that the claim did not contain. */
  async steps(run: Run, signal: AbortSignal): Promise<void> {
    while (run.steps.length < run.stepCount) {
      const what = `steps?after=${run.steps.length}`;
      run.steps.push(...(await this.#retried(run, "GET", what, "", nextSteps, { signal })));
    }
  }

  /** Stores events: see Reporter. */
  async report(run: Run, events: readonly string[], batch: string, signal: AbortSignal): Promise<boolean> {
    const body = `{"events":[${events.join(",")}],"batchId":"${batch}"}`;
    const how = { signal, age: run.leaseSeconds / 4, mayRefuse: true };
    return await this.#retried(run, "POST", "events", body, wasCanceled, how);
  }

  /** Renews the lease. Returns whether the task was canceled. */
  async heartbeat(run: Run, signal: AbortSignal): Promise<boolean> {
    return await this.#retried(run, "POST", "heartbeat", "{}", wasCanceled, { signal });
  }

  /** Ends a run that no event has ended. */
  async finish(run: Run, outcome: "retry" | "release", signal: AbortSignal, error = "", after?: number): Promise<void> {
    const body = JSON.stringify({
      outcome,
      ...(error !== "" && { error: clean(error, 4000) }),
      ...(after !== undefined && { retryAfterSeconds: Math.ceil(after) }),
    });
    await this.#retried(run, "POST", "finish", body, anObject, { signal, mayRefuse: true });
  }

  /**
   * Repeats a request until it is answered, until the lease must have expired, or until the signal aborts. The last two
   * throw Stopped. It is sent at least once, because the server knows best. Each try gets a third of the lease, so that
   * one lost answer does not cost the run.
   */
  async #retried<T>(
    run: Run,
    method: string,
    what: string,
    body: string,
    decode: (answer: Json) => T,
    { signal, age = 0, mayRefuse = false }: Repetition,
  ): Promise<T> {
    const path = `/runs/${encodeURIComponent(run.taskId)}/${run.epoch}/${what}`;
    const third = run.leaseSeconds / 3;
    const left = () => run.renewed + run.leaseSeconds - this.#now();
    for (let tries = 1; ; tries++) {
      const started = this.#now();
      const timeout = left() > 0 ? Math.min(third, left()) : third;
      let last: Error;
      let pause = Math.random() * Math.min(0.1 * 2 ** tries, maxPause);
      try {
        const answer = await this.#send(method, path, body, timeout, decode, signal);
        run.renewed = Math.max(run.renewed, started - age);
        return answer;
      } catch (err) {
        if (err instanceof ServerError) {
          refuse(err, mayRefuse);
          pause = Math.max(pause, err.after ?? 0);
        } else if (!(err instanceof HttpError)) {
          throw err;
        }
        last = err;
      }
      await this.#sleep(Math.max(0, Math.min(pause, third, left())), signal);
      if (signal?.aborted === true) {
        throw new Stopped("ended", "the attempt has ended");
      }
      if (left() <= 0) {
        throw new Stopped("lost", `requests failed until the lease expired: ${last.message}`);
      }
    }
  }

  async #send<T>(
    method: string,
    path: string,
    body: string,
    timeout: number,
    decode: (answer: Json) => T,
    signal?: AbortSignal,
    sent?: () => void,
  ): Promise<T> {
    const answer = await this.#http.request(method, path, body, timeout, signal, sent);
    if (answer.status !== 200) {
      throw serverError(answer);
    }
    try {
      return decode(JSON.parse(answer.body.toString()) as Json);
    } catch (err) {
      throw new HttpError(`the response is not that of an a2ad server (${String(err)})`, { cause: err });
    }
  }
}

/** Throws if an answer means that the request must not be repeated. */
function refuse(err: ServerError, mayRefuse: boolean): void {
  if (err.reason === "LEASE_LOST") {
    throw new Stopped("lost", "the lease is lost");
  }
  if (mayRefuse && err.refuses()) {
    // What the author of an agent needs: not the place in the request.
    const invalid = err.reason === "INVALID_AGENT_RESPONSE";
    throw new Refused(invalid ? err.text.replace(/^events\[\d+\]: /, "") : err.message);
  }
}

function serverError({ status, headers, body }: Answer): ServerError {
  let reason = "";
  let text = body.toString().slice(0, 500);
  try {
    const { error } = JSON.parse(body.toString()) as { error: { reason: unknown; message: unknown } };
    if (typeof error.reason === "string") {
      reason = error.reason;
      text = String(error.message);
    }
  } catch {
    // from a proxy
  }
  const after = headers["retry-after"] ?? "";
  return new ServerError(
    ...([status, reason, text] as const),
    /^\d{1,9}$/.test(after) ? Math.min(Number(after), maxRetryAfter) : undefined,
  );
}

function listOf(answer: Json, member: string): Json[] {
  const found = isRecord(answer) ? answer[member] : undefined;
  if (!Array.isArray(found)) {
    throw new TypeError(`it has no ${member}`);
  }
  return found;
}

function nextSteps(answer: Json): Recorded[] {
  const steps = listOf(answer, "steps").map((s) => new Recorded(s));
  if (steps.length === 0) {
    throw new TypeError("the next step is missing");
  }
  return steps;
}

function wasCanceled(answer: Json): boolean {
  const canceled = isRecord(answer) ? answer.cancelRequested : undefined;
  if (typeof canceled !== "boolean") {
    throw new TypeError("cancelRequested is not true or false");
  }
  return canceled;
}

function anObject(answer: Json): void {
  if (!isRecord(answer)) {
    throw new TypeError("it is not an object");
  }
}
