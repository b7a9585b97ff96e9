/** One run: the agent's function at work, its heartbeats, and its end on the server. */
import { execute, type Agent, type Ending } from "./agent.js";
import type { Client } from "./client.js";
import { sleep } from "./clock.js";
import { Refused, Stopped } from "./errors.js";
import { fieldsOf } from "./failures.js";
import type { Logger } from "./log.js";
import { Session } from "./session.js";
import type { Span } from "./tracing.js";
import type { Run } from "./wire.js";

/** Seconds for the request that releases a run. After that, the lease must expire. */
const releaseTimeout = 10;

export interface Attempt {
  readonly client: Client;
  readonly agent: Agent;
  readonly run: Run;
  readonly logger: Logger;
  readonly span: Span;
  /** Aborts when the worker stops, and the run must be released without waiting for the function. */
  readonly release: AbortSignal;
}

/** Calls the agent's function, and tells the server how it ended if no event did. */
export async function attempt({ client, agent, run, logger, span, release }: Attempt): Promise<Ending> {
  const ended = new AbortController();
  const finish = async (outcome: "retry" | "release", signal: AbortSignal, reason?: string, after?: number) => {
    try {
      await client.finish(run, outcome, signal, reason, after);
    } catch (err) {
      if (err instanceof Refused) {
        logger.warn(`finish failed: ${err.message}`, fieldsOf(run));
      } else if (!(err instanceof Stopped)) {
        throw err;
      } else if (outcome === "release" && err.why === "ended") {
        logger.warn("release failed: no answer", fieldsOf(run));
      }
    }
  };
  const released = async (): Promise<Ending> => {
    const late = new AbortController();
    const timer = setTimeout(() => {
      late.abort();
    }, releaseTimeout * 1000);
    await finish("release", late.signal);
    clearTimeout(timer);
    return { outcome: "released" };
  };

  try {
    await client.steps(run, release);
  } catch (err) {
    if (release.aborted) {
      return await released();
    }
    throw err;
  }
  const session = new Session(run, client, { replay: agent.replay, logger, span });
  const heart = new AbortController();
  const beating = heartbeat(client, session, heart.signal);
  const told = { retry: false };
  const play = async (): Promise<Ending> => {
    const ending = await execute(agent, session);
    if (ending.outcome === "retry") {
      told.retry = true;
      heart.abort(); // so that repeated requests end with the lease
      await finish("retry", ended.signal, ending.reason, ending.after);
    }
    return ending;
  };
  const playing = play();
  try {
    const ending = await Promise.race([playing, aborted(release)]);
    if (ending !== undefined) {
      return ending;
    }
    const { stopped } = session;
    if (stopped instanceof Stopped && stopped.why !== "ended") {
      return { outcome: stopped.why, reason: stopped.message };
    }
    if (stopped instanceof Stopped && !told.retry) {
      return await playing; // the server knows how it ended
    }
    session.stop(new Stopped("released", "the worker stops"));
    session.close();
    ended.abort();
    return await released();
  } finally {
    heart.abort();
    ended.abort();
    session.close();
    await beating;
    playing.catch(() => undefined); // of a run that was released meanwhile
  }
}

/** Renews the lease until the attempt has ended. Stops the agent if the lease or the task ends. */
async function heartbeat(client: Client, session: Session, signal: AbortSignal): Promise<void> {
  try {
    for (;;) {
      await sleep(session.run.leaseSeconds / 3, signal);
      if (signal.aborted) {
        return;
      }
      if (await client.heartbeat(session.run, signal)) {
        session.cancel();
        return;
      }
    }
  } catch (err) {
    session.stop(err as Error); // if the attempt has ended, this changes nothing
  }
}

/** Returns when a signal aborts. */
function aborted(signal: AbortSignal): Promise<undefined> {
  return new Promise((resolve) => {
    const end = () => {
      resolve(undefined);
    };
    signal.addEventListener("abort", end, { once: true });
    if (signal.aborted) {
      end();
    }
  });
}
