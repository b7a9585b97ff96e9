/** A worker: it claims tasks, runs agents, and renews leases. */
import { setMaxListeners } from "node:events";
import type { Server } from "node:http";
import { hostname } from "node:os";

import type { Agent, AgentFunction, Ending } from "./agent.js";
import { attempt } from "./attempt.js";
import { agent as checkAgent, count, options as checkOptions, seconds } from "./check.js";
import { Client, ServerError } from "./client.js";
import { monotonic, sleep } from "./clock.js";
import { misuse, Stopped, UsageError } from "./errors.js";
import { describe, fieldsOf } from "./failures.js";
import { healthAddress, serveHealth, type Address, type Status } from "./health.js";
import { HttpError } from "./http.js";
import { isFunction, shown, typeName } from "./json.js";
import { reliable, stderrLogger, type Logger } from "./log.js";
import { caller, traceOf } from "./place.js";
import { watchRejections } from "./rejections.js";
import { countServing, exitIfKept, onSignals, refuseTest } from "./process.js";
import { Slots } from "./slots.js";
import { openTracing, type StartSpan } from "./tracing.js";
import { watchEventLoop } from "./watch.js";
import type { Run } from "./wire.js";

const maxConcurrency = 10_000;

export interface WorkerOptions {
  /** Of the server; default A2AD_URL, or http://127.0.0.1:8080. */
  url?: string;
  /** Default A2AD_API_KEY. */
  apiKey?: string;
  /** What the list of attempts shows; default the names of the machine and the process. */
  name?: string;
  /** Seconds that runs may continue when the worker stops. Then their tasks return to the queue. Default 20. */
  grace?: number;
  /** An address such as ":8081" for /livez, /readyz and /status; default none. */
  health?: string;
  /** Default: lines on stderr, as A2AD_LOG_FORMAT (`text` or `json`) and A2AD_LOG_LEVEL say. */
  logger?: Logger;
}

export interface AgentOptions {
  /** At most so many tasks of the agent run in this process at once; default 8. */
  concurrency?: number;
}

/** A run, and how to release it without waiting for its function. */
interface Entry {
  readonly release: AbortController;
  done: Promise<void>;
}

/**
 * Claims and executes the tasks of agents whose file has the executor `pull`. A wrong argument throws UsageError. Start
 * a worker once at a time.
 */
export class Worker {
  readonly url: string;
  readonly name: string;
  readonly #apiKey: string | undefined;
  readonly #grace: number;
  readonly #health: Address | undefined;
  readonly #log: Logger;
  readonly #agents = new Map<string, Agent>();
  readonly #runs = new Set<Entry>();
  #slots: Slots[] = [];
  #stop = new AbortController();
  #serving = false;

  constructor(options: WorkerOptions = {}) {
    placed(() => {
      checkOptions(options, "Worker", ["url", "apiKey", "name", "grace", "health", "logger"]);
    });
    const { grace = 20, health } = options;
    this.url = checkUrl(options.url ?? setting("A2AD_URL") ?? "http://127.0.0.1:8080");
    this.#apiKey = options.apiKey ?? setting("A2AD_API_KEY");
    if (this.#apiKey !== undefined && !/^[!-~]+$/.test(this.#apiKey)) {
      throw misuse("apiKey must be printable ASCII without spaces");
    }
    this.name = options.name ?? `${hostname().slice(0, 100)}-${process.pid}`.replace(/[^!-~]/g, "-");
    if (!/^[!-~]{1,128}$/.test(this.name)) {
      throw misuse(`name must be 1 to 128 printable ASCII characters: ${shown(this.name)}`);
    }
    this.#grace = placed(() => seconds(grace, "grace"));
    this.#health = health === undefined ? undefined : healthAddress(health);
    const lines = () => stderrLogger(setting("A2AD_LOG_FORMAT"), setting("A2AD_LOG_LEVEL"));
    this.#log = reliable(options.logger ?? placed(lines));
  }

  /**
   * Registers a function for whole tasks of an agent. It gets the task and the first message of the turn. It runs again
   * from its start after a crash and after each wait, without repeating what is recorded. The last message of the task
   * is what it returns: nothing, a string, a `Message`, the bytes of a file, or another value that becomes a data part.
   */
  agent(name: string, run: AgentFunction): this;
  agent(name: string, options: AgentOptions, run: AgentFunction): this;
  agent(name: string, a: AgentOptions | AgentFunction, b?: AgentFunction): this {
    return this.#register(name, a, b, true);
  }

  /**
   * Registers a function for single messages of an agent that keeps its own state.
   *
   * It is like `agent`, but the function gets the newest message and begins at the last `checkpoint`, which is in
   * `task.saved`. It does so after a crash and after each wait. What it wrote to an artifact since that checkpoint, or
   * since a step that wrote to the same artifact, is then removed. Statuses and usage are not, so they are sent again.
   *
   * `task.ask` and `task.authRequired` do not return the answer: the function gets it as its next message. If none
   * comes in time, they throw TimeoutError when it runs again with the same message. Steps, calls and waits are
   * recorded for the message and the checkpoint.
   */
  handler(name: string, run: AgentFunction): this;
  handler(name: string, options: AgentOptions, run: AgentFunction): this;
  handler(name: string, a: AgentOptions | AgentFunction, b?: AgentFunction): this {
    return this.#register(name, a, b, false);
  }

  #register(name: string, a: AgentOptions | AgentFunction, b: AgentFunction | undefined, replay: boolean): this {
    const run = typeof a === "function" ? a : b;
    const options = typeof a === "function" ? {} : a;
    return placed(() => {
      checkAgent(name);
      checkOptions(options, `the agent '${name}'`, ["concurrency"]);
      if (!isFunction(run)) {
        throw new UsageError(`the agent '${name}' must be a function, not ${typeName(run)}`);
      }
      if (this.#serving) {
        throw new UsageError(`register the agent '${name}' before the worker starts`);
      }
      if (this.#agents.has(name)) {
        throw new UsageError(`the agent '${name}' is already registered`);
      }
      const concurrency = count(options.concurrency ?? 8, "concurrency", 1, maxConcurrency);
      this.#agents.set(name, { name, run, concurrency, replay, where: caller() });
      return this;
    });
  }

  /**
   * Works until the process gets SIGTERM or SIGINT. A second signal ends it at once. After a signal, a function that
   * was left does not keep the process from exiting: it ends five seconds after this returns. Tests cannot import a
   * file that calls this: it throws UsageError then.
   */
  async run(): Promise<void> {
    refuseTest();
    const signal = { came: false };
    const restore = onSignals(() => {
      signal.came = true;
      this.stop();
    });
    try {
      await this.serve();
    } finally {
      restore();
    }
    if (signal.came) {
      exitIfKept(this.#log);
    }
  }

  /**
   * Tells `serve` to stop claiming, and to return once the runs have ended. Before `serve`, it lets that return at
   * once.
   */
  stop(): void {
    this.#stop.abort();
  }

  /** Works until `stop` is called. It retries while the server is unreachable or refuses its claims. */
  async serve(): Promise<void> {
    if (this.#agents.size === 0) {
      throw misuse("the worker has no agent: call worker.agent(name, function)");
    }
    if (this.#serving) {
      throw misuse("the worker has started already");
    }
    this.#serving = true;
    const ended = countServing();
    try {
      await this.#serve(this.#stop.signal);
    } finally {
      ended();
      this.#serving = false;
      this.#stop = new AbortController();
    }
  }

  async #serve(stop: AbortSignal): Promise<void> {
    this.#slots = [...this.#agents.values()].map((agent) => new Slots(agent));
    setMaxListeners(0, stop); // each agent has some
    const client = new Client(this.url, this.#apiKey, this.#log);
    const startSpan = await openTracing();
    const health = await this.#serveHealth();
    watchRejections();
    const unwatch = watchEventLoop(this.#log);
    this.#log.info(`worker ${this.name} claims tasks of ${[...this.#agents.keys()].join(", ")} from ${this.url}`, {});
    try {
      await Promise.all(this.#slots.map((slots) => this.#claim(client, slots, startSpan, stop)));
    } finally {
      this.stop(); // also if a claim fails in a way that it should not
      await this.#drain();
      client.close();
      health?.close();
      health?.closeAllConnections(); // also those that send no request
      unwatch();
    }
  }

  /** Returns the state of the worker as its health endpoint shows it. */
  status(): Status {
    const stopping = !this.#serving || this.#stop.signal.aborted;
    const claims = this.#slots.flatMap(({ claimedAt }) => (claimedAt === undefined ? [] : [claimedAt.getTime()]));
    return {
      worker: this.name,
      ready: !stopping && this.#slots.every((s) => s.reachable),
      stopping,
      runs: this.#runs.size,
      lastClaim: claims.length === 0 ? null : new Date(Math.max(...claims)).toISOString(),
      agents: Object.fromEntries(
        this.#slots.map(({ agent, running, reachable, error, claimedAt }) => [
          agent.name,
          {
            concurrency: agent.concurrency,
            running,
            reachable,
            error: error === "" ? null : error,
            lastClaim: claimedAt?.toISOString() ?? null,
          },
        ]),
      ),
    };
  }

  async #serveHealth(): Promise<Server | undefined> {
    return this.#health && (await serveHealth(this.#health, () => this.status(), this.#log));
  }

  /** Waits for the runs to end. Releases those that do not. */
  async #drain(): Promise<void> {
    const all = async () => {
      await Promise.all([...this.#runs].map((r) => r.done));
    };
    if (this.#runs.size > 0) {
      const grace = this.#grace.toFixed(0);
      this.#log.info(`worker ${this.name} is stopping; ${this.#runs.size} runs may continue for ${grace} s`, {});
      const ended = new AbortController();
      const ending = all().then(() => {
        ended.abort();
      });
      await Promise.race([ending, sleep(this.#grace, ended.signal)]);
      ended.abort();
    }
    this.#runs.forEach(({ release }) => {
      release.abort();
    });
    await all();
  }

  /** Claims runs of one agent for its free slots. */
  async #claim(client: Client, slots: Slots, startSpan: StartSpan, stop: AbortSignal): Promise<void> {
    for (let failures = 0; ;) {
      const free = await slots.some(stop);
      if (free === 0) {
        return;
      }
      const began = monotonic();
      let runs: Run[];
      try {
        runs = await this.#ask(client, slots, free, stop);
      } catch (err) {
        if (stop.aborted) {
          return;
        }
        await this.#pause(slots, err, ++failures, stop);
        continue;
      }
      slots.ready();
      slots.claimedAt = new Date();
      if (runs.length === 0 && monotonic() - began < Slots.waitsAfter) {
        await sleep(slots.pause(++failures), stop); // the server does not let claims wait, because it stops
        continue;
      }
      failures = 0;
      runs.forEach((run) => {
        this.#start(client, slots, run, startSpan);
      });
    }
  }

  /** Claims runs once. The agent is ready if the server got the claim and lets it wait. */
  async #ask(client: Client, slots: Slots, free: number, stop: AbortSignal): Promise<Run[]> {
    let waits: NodeJS.Timeout | undefined;
    const sent = () => {
      waits = setTimeout(() => {
        slots.ready();
      }, Slots.waitsAfter * 1000);
    };
    try {
      return await client.claim(this.name, slots.agent.name, free, stop, sent);
    } finally {
      clearTimeout(waits);
    }
  }

  /** Waits before the next claim: longer each time, and not all workers equally long. */
  async #pause(slots: Slots, err: unknown, failures: number, stop: AbortSignal): Promise<void> {
    if (!(err instanceof ServerError || err instanceof HttpError)) {
      throw err;
    }
    slots.reachable = false;
    slots.error = err.message;
    let pause = slots.pause(failures);
    if (err instanceof ServerError) {
      pause = Math.max(pause, err.after ?? 0);
      slots.error += err.advice(slots.agent.name);
    }
    const text = `claim failed: ${slots.error}; retrying in ${pause.toFixed(1)} s`;
    this.#log.warn(text, { agent: slots.agent.name });
    await sleep(pause, stop);
  }

  #start(client: Client, slots: Slots, run: Run, startSpan: StartSpan): void {
    const entry: Entry = { release: new AbortController(), done: Promise.resolve() };
    slots.running++;
    this.#runs.add(entry);
    entry.done = this.#execute(client, slots.agent, run, startSpan(run), entry.release.signal).finally(() => {
      this.#runs.delete(entry);
      slots.running--;
      slots.wake();
    });
  }

  async #execute(
    client: Client,
    agent: Agent,
    run: Run,
    span: ReturnType<StartSpan>,
    release: AbortSignal,
  ): Promise<void> {
    const started = performance.now();
    let ending: Ending = { outcome: "lost" };
    try {
      ending = await attempt({ client, agent, run, logger: this.#log, span, release });
    } catch (err) {
      if (err instanceof Stopped) {
        ending = { outcome: err.why, reason: err.message };
      } else {
        this.#log.error("run failed", { ...fieldsOf(run), err: traceOf(err) || describe(err) });
      }
    }
    span.end();
    const { outcome, reason = "" } = ending;
    this.#log.info(`run ended: ${outcome}${reason === "" ? "" : ` (${reason})`}`, {
      ...fieldsOf(run),
      outcome,
      seconds: Math.round(performance.now() - started) / 1000,
    });
  }
}

/** Adds the line of the agent's code to a mistake. */
function placed<T>(check: () => T): T {
  try {
    return check();
  } catch (err) {
    throw err instanceof UsageError ? err.place(caller()) : err;
  }
}

function checkUrl(value: string): string {
  const url = URL.canParse(value) ? new URL(value) : undefined;
  if (value.includes("@")) {
    // a2ad has no use for it, and it would be in logs
    throw misuse("url must not contain a user name or password: use apiKey");
  }
  if (url === undefined || !["http:", "https:"].includes(url.protocol)) {
    throw misuse(`url must be a URL such as http://127.0.0.1:8080, not ${shown(value)}`);
  }
  return value;
}

/** Returns a variable of the environment. An empty one is not set. */
function setting(name: string): string | undefined {
  const value = process.env[name];
  return value === "" ? undefined : value;
}
