import { setImmediate as turn } from "node:timers/promises";

import { Fail, Refused, Reject, Retry, StepError, Stopped, UsageError } from "./errors.js";
import type { Logger } from "./log.js";
import type { Session } from "./session.js";
import { Task } from "./task.js";
import type { Span } from "./tracing.js";
import { clean, encode } from "./values.js";
import { Message, partsOf } from "./wire.js";

/** A function of an agent. It gets the task and a message. It returns the last message, or a promise of it. */
export type AgentFunction = (task: Task, message: Message) => unknown;

/** A function that does the tasks of one agent of the server. */
export interface Agent {
  readonly name: string;
  readonly run: AgentFunction;
  readonly concurrency: number;
  /** The function is for whole tasks, and runs again from its start. Otherwise it is for messages. */
  readonly replay: boolean;
}

/** How a run ended. Of all outcomes but `retry`, the server knows already. */
export interface Ending {
  readonly outcome: "finished" | "waiting" | "postponed" | "canceled" | "lost" | "crashed" | "released" | "retry";
  readonly reason?: string;
  /** Seconds until the next attempt. */
  readonly after?: number;
  /** The agent's function has not returned. It is left where it waits. */
  readonly abandoned?: boolean;
  /** Why the task is postponed. */
  readonly error?: UsageError;
}

/** Calls the function of the agent, and records how its task ends. */
export async function execute(agent: Agent, session: Session, logger: Logger, span: Span): Promise<Ending> {
  const stopped = new Promise<undefined>((done) => {
    session.abort.signal.addEventListener("abort", () => {
      done(undefined);
    });
  });
  const task = new Task(session, span);
  const message = agent.replay ? task.message : (task.messages.at(-1) ?? task.message);
  const returned = span.within(() => invoke(agent, task, message));
  try {
    const first = await Promise.race([stopped, returned]);
    if (first === undefined) {
      await turn(); // a call that was refused adds its line to the error
      return { ...(await stoppedBy(session, logger)), abandoned: true };
    }
    return await end(session, "TASK_STATE_COMPLETED", first.value);
  } catch (err) {
    if (session.over) {
      await stopped; // a wait may still be on its way to the server
      return await stoppedBy(session, logger);
    }
    return await failed(session, logger, err);
  } finally {
    session.stop(new Stopped("lost", "the attempt has ended"));
  }
}

async function invoke(agent: Agent, task: Task, message: Message): Promise<{ value: unknown }> {
  return { value: await agent.run(task, message) };
}

/** Records what the function has thrown. */
async function failed(session: Session, logger: Logger, err: unknown): Promise<Ending> {
  if (err instanceof UsageError) {
    return await postpone(session, logger, err);
  }
  if (err instanceof Retry) {
    return again(session, err.message || "the agent asked for another attempt", err.options.after);
  }
  try {
    if (err instanceof Fail || err instanceof Reject) {
      const state = err instanceof Fail ? "TASK_STATE_FAILED" : "TASK_STATE_REJECTED";
      return await end(session, state, clean(err.message, maxReason));
    }
    if (err instanceof StepError && err.recorded) {
      return await end(session, "TASK_STATE_FAILED", clean(err.message, maxReason));
    }
  } catch {
    return await stoppedBy(session, logger);
  }
  logger.error("attempt failed", { ...fieldsOf(session), err });
  return again(session, err instanceof StepError ? err.message : describe(err));
}

/** Lets the task wait for a corrected program. Its client sees no failure. */
async function postpone(session: Session, logger: Logger, error: UsageError): Promise<Ending> {
  logger.error("the program is wrong", { ...fieldsOf(session), err: error });
  try {
    await session.postpone(error.message);
  } catch (err) {
    if (err instanceof Stopped) {
      return { outcome: err.why, reason: err.message };
    }
    return again(session, `${error.message} (${describe(err)})`); // such as a task with too many steps
  }
  return { outcome: "postponed", reason: error.message, error };
}

/** What the function does after it has returned or thrown is lost, so it must have awaited its steps. */
async function end(session: Session, state: string, value: unknown): Promise<Ending> {
  const [running] = session.running.values();
  if (running !== undefined) {
    throw new UsageError(`the agent's function returned while the step "${running}" runs: await it`);
  }
  const none = value === undefined || value === null || value === "";
  const message = none ? "" : `,"message":{"parts":${lastParts(value)}}`;
  await session.end(`{"statusUpdate":{"status":{"state":"${state}"${message}}}}`);
  return { outcome: "finished" };
}

/** Returns what an agent's function returned as the parts of its last message, in JSON. */
function lastParts(value: unknown): string {
  const what = "what the agent returned";
  if (typeof value === "string" || value instanceof Message) {
    return JSON.stringify(partsOf(value, what));
  }
  if (value instanceof Uint8Array) {
    return JSON.stringify(partsOf([{ raw: value }], what));
  }
  return `[{"data":${encode(value, what)}}]`;
}

/** Returns how a run has ended whose session was stopped. */
async function stoppedBy(session: Session, logger: Logger): Promise<Ending> {
  const why = session.stopped;
  if (why instanceof Stopped) {
    return { outcome: why.why, reason: why.message };
  }
  return why instanceof Refused ? await postpone(session, logger, why) : again(session, describe(why));
}

const maxReason = 10_000;

function again(session: Session, reason: string, after?: number): Ending {
  session.drop();
  return { outcome: "retry", reason: clean(reason, 1000), ...(after !== undefined && { after }) };
}

function describe(err: unknown): string {
  return err instanceof Error ? `${err.name}: ${err.message}` : String(err);
}

/** What log lines say about a run. */
export function fieldsOf({ run }: Session): Record<string, unknown> {
  return { task_id: run.taskId, agent: run.agent, epoch: run.epoch, attempt: run.attempt };
}
