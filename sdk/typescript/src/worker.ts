import type { Server } from "node:http";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

import type { Agent, AgentFunction } from "./agent.js";
import { Client, errorText, ServerError } from "./client.js";
import { UsageError } from "./errors.js";
import { serveHealth, type Health } from "./health.js";
import { stderrLogger, type Logger } from "./log.js";
import { Runs } from "./runs.js";
import { noTracing, openTracing, type StartSpan } from "./tracing.js";
import { checkOptions, checkText, shown } from "./values.js";

/** Seconds that the server keeps a claim when there is no task. */
const claimWait = 30;
/** Milliseconds between two claims while the server cannot be reached. */
const maxPause = 10_000;
/** Milliseconds that a process gets to end after its worker has stopped, if a function of an agent did not return. */
const exitDelay = 2000;

export interface WorkerOptions {
  /** Of the server; default A2AD_URL, or http://127.0.0.1:8080. */
  url?: string;
  /** Default A2AD_API_KEY. */
  apiKey?: string;
  /** What the server's record of attempts shows; default the names of the machine and the process. */
  name?: string;
  /** Seconds that runs get to end when the worker is stopped. The others go back to the queue. Default 20. */
  grace?: number;
  /** An address such as ":8081" that answers `/livez`, `/readyz` and `/status`. Default: none. */
  health?: string;
  /** Default: lines on stderr, as A2AD_LOG_FORMAT (`text` or `json`) and A2AD_LOG_LEVEL say. */
  logger?: Logger;
}

export interface AgentOptions {
  /** How many tasks of the agent run at once; default 8. */
  concurrency?: number;
}

/** Does the tasks of agents whose file has the executor `pull`. */
export class Worker {
  readonly url: string;
  readonly name: string;
  readonly #apiKey: string | undefined;
  readonly #grace: number;
  readonly #health: string | undefined;
  readonly #log: Logger;
  readonly #agents = new Map<string, Agent>();
  readonly #reached = new Map<string, boolean>();
  readonly #stop = new AbortController();
  #runs: Runs | undefined;

  constructor(options: WorkerOptions = {}) {
    checkOptions(options, "Worker", ["url", "apiKey", "name", "grace", "health", "logger"]);
    this.url = options.url ?? setting("A2AD_URL") ?? "http://127.0.0.1:8080";
    if (!URL.canParse(this.url)) {
      throw new UsageError(`the URL of the server is none: ${shown(this.url)}`);
    }
    this.#apiKey = options.apiKey ?? setting("A2AD_API_KEY");
    this.name = options.name ?? `${hostname().replace(/[^!-~]/g, "-").slice(0, 100)}-${process.pid}`;
    if (!/^[!-~]{1,128}$/.test(this.name)) {
      throw new UsageError(`the name of a worker has 1 to 128 ASCII characters without spaces: ${shown(this.name)}`);
    }
    this.#grace = options.grace ?? 20;
    if (!(this.#grace >= 0 && this.#grace <= 86400)) {
      throw new UsageError(`grace must be between 0 and 86400 seconds, not ${shown(this.#grace)}`);
    }
    this.#health = options.health;
    this.#log = options.logger ?? stderrLogger(setting("A2AD_LOG_FORMAT"), setting("A2AD_LOG_LEVEL"));
  }

  /**
   * Registers a function for whole tasks of an agent. It gets the task and its first message. It runs again from its
   * start after a crash and after each wait; what is recorded is not done again. What it returns is the last message:
   * nothing, a text, a `Message`, the bytes of a file, or a value that becomes a data part.
   */
  agent(name: string, run: AgentFunction): this;
  agent(name: string, options: AgentOptions, run: AgentFunction): this;
  agent(name: string, a: AgentOptions | AgentFunction, b?: AgentFunction): this {
    return this.#register(name, a, b, true);
  }

  /**
   * Registers a function for single messages of an agent. It gets the task and the newest message. After a crash it runs
   * again, with the last `checkpoint` in `task.saved`. What it has written is not set back.
   */
  handler(name: string, run: AgentFunction): this;
  handler(name: string, options: AgentOptions, run: AgentFunction): this;
  handler(name: string, a: AgentOptions | AgentFunction, b?: AgentFunction): this {
    return this.#register(name, a, b, false);
  }

  #register(name: string, a: AgentOptions | AgentFunction, b: AgentFunction | undefined, replay: boolean): this {
    checkText(name, "the name of an agent", 1);
    const run = typeof a === "function" ? a : b;
    const options = typeof a === "function" ? {} : a;
    checkOptions(options, `the agent "${name}"`, ["concurrency"]);
    const { concurrency = 8 } = options;
    if (typeof run !== "function") {
      throw new UsageError(`the agent "${name}" has no function`);
    }
    if (this.#agents.has(name)) {
      throw new UsageError(`the agent "${name}" is registered twice`);
    }
    if (!Number.isInteger(concurrency) || concurrency < 1) {
      throw new UsageError(`concurrency must be a whole number from 1, not ${shown(concurrency)}`);
    }
    this.#agents.set(name, { name, run, concurrency, replay });
    return this;
  }

  /**
   * Works until the process gets SIGTERM or SIGINT; a second one ends the process. If a function of an agent has not
   * returned after the grace time, the process ends soon after `run` returns.
   */
  async run(): Promise<void> {
    const stop = () => {
      this.stop();
    };
    process.once("SIGTERM", stop).once("SIGINT", stop);
    try {
      await this.serve();
    } finally {
      process.off("SIGTERM", stop).off("SIGINT", stop);
    }
    if (this.#runs?.abandoned === true) {
      setTimeout(() => process.exit(), exitDelay).unref();
    }
  }

  /** Makes `serve` return, once the runs have ended or the grace time is over. */
  stop(): void {
    this.#stop.abort();
  }

  /** Works until `stop` is called. */
  async serve(): Promise<void> {
    if (this.#agents.size === 0) {
      throw new UsageError("the worker has no agent: call worker.agent(name, function)");
    }
    const client = new Client(this.url, this.#apiKey);
    const runs = new Runs(client, this.#log, await this.#tracing());
    this.#runs = runs;
    const health = await this.#serveHealth(runs);
    const agents = [...this.#agents.values()];
    this.#log.info("worker started", { worker: this.name, server: this.url, agents: agents.map((a) => a.name).join(",") });
    await Promise.all(agents.map((a) => this.#claim(client, a, runs)));
    if (runs.size > 0) {
      this.#log.info("worker stops", { worker: this.name, runs: runs.size, grace_seconds: this.#grace });
    }
    await runs.drain(this.#grace);
    health?.close();
    this.#log.info("worker stopped", { worker: this.name });
  }

  #tracing(): Promise<StartSpan> {
    return openTracing().catch((err: unknown) => {
      this.#log.warn("tracing is off", { err });
      return noTracing;
    });
  }

  async #serveHealth(runs: Runs): Promise<Server | undefined> {
    if (this.#health === undefined) {
      return undefined;
    }
    return await serveHealth(this.#health, (): Health => {
      const agents = [...this.#agents.values()];
      return {
        worker: this.name,
        ready: !this.#stop.signal.aborted && agents.every((a) => this.#reached.get(a.name) === true),
        agents: Object.fromEntries(
          agents.map((a) => [a.name, { running: runs.of(a), concurrency: a.concurrency }] as const),
        ),
      };
    });
  }

  /** Claims runs of one agent for its free slots. */
  async #claim(client: Client, agent: Agent, runs: Runs): Promise<void> {
    const stop = this.#stop.signal;
    const stopping = () => stop.aborted;
    for (let failures = 0; !stopping(); ) {
      const free = await runs.free(agent, stop);
      if (free === 0) {
        return;
      }
      try {
        // The first claim does not wait, so that it is soon known whether the server can be reached.
        const wait = this.#reached.get(agent.name) === true ? claimWait : 0;
        for (const run of await client.claim(this.name, agent.name, free, wait, stop)) {
          runs.start(agent, run);
        }
        failures = 0;
        this.#reached.set(agent.name, true);
      } catch (err) {
        if (!stopping()) {
          this.#reached.set(agent.name, false);
          await this.#pause(agent, err, ++failures);
        }
      }
    }
  }

  /** Waits before the next claim: longer each time, and not all workers equally long. */
  async #pause(agent: Agent, err: unknown, failures: number): Promise<void> {
    const asked = err instanceof ServerError ? (err.after ?? 0) * 1000 : 0;
    const pause = Math.max((0.5 + Math.random() / 2) * Math.min(200 * 2 ** failures, maxPause), asked);
    this.#log.warn("claim failed", { agent: agent.name, err: errorText(err), again_in_seconds: pause / 1000 });
    await sleep(pause, undefined, { signal: this.#stop.signal }).catch(() => undefined);
  }
}

/** Returns a variable of the environment. An empty one is not set. */
function setting(name: string): string | undefined {
  const value = process.env[name];
  return value === "" ? undefined : value;
}
