import { setTimeout as sleep } from "node:timers/promises";

import { execute, fieldsOf, type Agent, type Ending } from "./agent.js";
import { errorText, type Client } from "./client.js";
import { Refused, Stopped } from "./errors.js";
import type { Logger } from "./log.js";
import { Session } from "./session.js";
import type { StartSpan } from "./tracing.js";
import type { Run } from "./wire.js";

/** Milliseconds that the server gets to hear that a run ends. */
const finishTimeout = 10_000;

interface Entry {
  readonly agent: Agent;
  readonly session: Session;
  done: Promise<void>;
}

/** The runs that a worker works on. */
export class Runs {
  /** Whether a function of an agent goes on after its run has ended. */
  abandoned = false;
  readonly #running = new Set<Entry>();
  readonly #waiting = new Map<Agent, () => void>();

  constructor(
    private readonly client: Client,
    private readonly log: Logger,
    private readonly startSpan: StartSpan,
  ) {}

  get size(): number {
    return this.#running.size;
  }

  /** Returns how many runs of an agent there are. */
  of(agent: Agent): number {
    return [...this.#running].filter((e) => e.agent === agent).length;
  }

  /** Returns how many more runs of an agent may start, once there is one, or 0 when the worker stops. */
  async free(agent: Agent, stop: AbortSignal): Promise<number> {
    while (!stop.aborted) {
      const free = agent.concurrency - this.of(agent);
      if (free > 0) {
        return free;
      }
      let wake: () => void = () => undefined;
      const freed = new Promise<void>((done) => (wake = done));
      this.#waiting.set(agent, wake);
      stop.addEventListener("abort", wake);
      await freed;
      stop.removeEventListener("abort", wake);
    }
    return 0;
  }

  start(agent: Agent, run: Run): void {
    const session = new Session(run, this.client, agent.replay);
    const entry: Entry = { agent, session, done: Promise.resolve() };
    this.#running.add(entry);
    entry.done = this.#do(entry).finally(() => {
      this.#running.delete(entry);
      this.#waiting.get(agent)?.();
    });
  }

  async #do({ agent, session }: Entry): Promise<void> {
    const { run } = session;
    const span = this.startSpan(run);
    const started = performance.now();
    const ending = await this.#attempt(agent, session, span);
    const failure = ["retry", "lost", "postponed"].includes(ending.outcome) ? ending.reason : undefined;
    span.set({ "a2ad.outcome": ending.outcome });
    span.end(failure);
    this.log.info("attempt ended", {
      ...fieldsOf(session),
      outcome: ending.outcome,
      reason: failure,
      seconds: Number(((performance.now() - started) / 1000).toFixed(3)),
    });
  }

  async #attempt(agent: Agent, session: Session, span: ReturnType<StartSpan>): Promise<Ending> {
    const { run } = session;
    const beating = this.#heartbeat(session);
    let ending: Ending;
    try {
      await this.client.readSteps(run);
      session.learn(run.steps ?? []);
      ending = await execute(agent, session, this.log, span);
      this.abandoned ||= ending.abandoned === true && ending.outcome !== "waiting";
    } catch (err) {
      ending = { outcome: err instanceof Stopped ? err.why : "lost", reason: errorText(err) };
    } finally {
      session.stop(new Stopped("lost", "the attempt has ended"));
    }
    await beating;
    if (ending.outcome === "retry") {
      await this.#finish(run, "retry", ending.reason, ending.after);
    } else if (ending.outcome === "released") {
      await this.#finish(run, "release");
    }
    return ending;
  }

  /** Renews the lease until the run has ended. Ends the run when the task is not its own any more. */
  async #heartbeat(session: Session): Promise<void> {
    const { run, abort } = session;
    const every = (run.leaseSeconds * 1000) / 3;
    for (;;) {
      await sleep(every, undefined, { signal: abort.signal }).catch(() => undefined);
      if (abort.signal.aborted) {
        return;
      }
      try {
        if (await this.client.heartbeat(run, abort.signal)) {
          session.cancel();
        }
      } catch (err) {
        if (err instanceof Stopped) {
          session.stop(err);
        } else {
          this.log.warn("heartbeat failed", { task_id: run.taskId, err: errorText(err) });
        }
      }
    }
  }

  /** Waits for the runs to end. Releases those that do not end in time. */
  async drain(graceSeconds: number): Promise<void> {
    const timer = new AbortController();
    const grace = sleep(graceSeconds * 1000, undefined, { signal: timer.signal }).catch(() => undefined);
    await Promise.race([grace, this.#all()]);
    timer.abort();
    for (const { session } of this.#running) {
      session.stop(new Stopped("released", "the worker stops"));
    }
    await this.#all();
  }

  async #all(): Promise<void> {
    await Promise.all([...this.#running].map((e) => e.done));
  }

  async #finish(run: Run, outcome: "retry" | "release", reason?: string, after?: number): Promise<void> {
    const timer = new AbortController();
    const late = sleep(finishTimeout, undefined, { signal: timer.signal }).catch(() => undefined);
    const finish = this.client.finish(run, outcome, reason, after).catch((err: unknown) => {
      if (err instanceof Refused) {
        this.log.warn("finish failed", { task_id: run.taskId, err: err.message });
      }
    });
    await Promise.race([finish, late]);
    timer.abort();
  }
}
