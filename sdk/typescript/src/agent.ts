/** An agent: a function, and how one run of it ends. */
import { setImmediate as turn } from "node:timers/promises";

import { Fail, NondeterminismError, Reject, Retry, StepError, Stopped, UsageError } from "./errors.js";
import { describe, fieldsOf, logFailure, logMistake } from "./failures.js";
import { clean, compact, type Json } from "./json.js";
import { countPending } from "./pending.js";
import { runIn } from "./scope.js";
import type { Session } from "./session.js";
import { Task } from "./task.js";
import { encodeParts, Message, type Part } from "./wire.js";

/** The function of an agent. It gets the task and a message. It returns the last message, or a promise of it. */
export type AgentFunction = (task: Task, message: Message) => unknown;

/** A function that does the tasks of one agent of the server. */
export interface Agent {
  readonly name: string;
  readonly run: AgentFunction;
  readonly concurrency: number;
  /** Whether the function is for whole tasks and runs again from its start, or for messages. */
  readonly replay: boolean;
  /** FILE:LINE where it was registered. */
  readonly where: string;
}

/** How a run ended. The server knows of each outcome but `retry`, which the worker must tell it. */
export interface Ending {
  readonly outcome:
    "finished" | "waiting" | "postponed" | "canceled" | "lost" | "crashed" | "released" | "ended" | "retry";
  readonly reason?: string;
  /** Seconds until the next attempt. */
  readonly after?: number | undefined;
  /** Why the task is postponed. */
  readonly error?: UsageError;
}

/** Characters of the reason of a failure. */
const maxReason = 4000;

/** @internal Calls the function of the agent, and records how its task ends. If the run ends first, it is left. */
export async function execute(agent: Agent, session: Session): Promise<Ending> {
  const ending = await session.span.within(() => runIn({ session }, () => play(agent, session)));
  session.stop(new Stopped("ended", "the attempt has ended")); // for what the agent left running
  session.span.outcome(ending.outcome);
  return ending;
}

/** The run has ended, so the agent's function is left where it is. */
const left = Symbol("left");

async function play(agent: Agent, session: Session): Promise<Ending> {
  try {
    const value = await Promise.race([session.over.then(() => left), countPending(invoke(agent, session))]);
    if (value === left) {
      return stopped(session);
    }
    logUnused(session);
    return await end(session, "TASK_STATE_COMPLETED", value, agent.where);
  } catch (err) {
    return await failed(session, err);
  }
}

/** Returns what the agent's function returns, when the steps that it has left in progress are recorded. */
async function invoke(agent: Agent, session: Session): Promise<unknown> {
  try {
    return await call(agent, session);
  } finally {
    await Promise.all(session.working);
  }
}

/** Returns what the agent's function returns. It throws what has ended the run, also if the agent has caught it. */
async function call(agent: Agent, session: Session): Promise<unknown> {
  const task = new Task(session);
  const first = agent.replay ? task.message : (task.messages.at(-1) ?? task.message);
  let value: unknown;
  try {
    value = await agent.run(task, first);
  } catch (err) {
    // The agent, or a framework between it and the library, may have caught what ended the run, wrapped it or replaced
    // it, for example in an AggregateError of parallel tool calls.
    const ended = session.stopped ?? session.mistake;
    if (ended === undefined && !(err instanceof UsageError)) {
      Task.checkAwaited(task); // such a mistake may be what caused the error
    }
    if (session.stopped === undefined) {
      leave(session);
    }
    throw ended ?? err;
  }
  await turn(); // an async function that the agent did not await may begin its call only now
  session.check();
  if (session.mistake !== undefined) {
    throw session.mistake;
  }
  Task.checkAwaited(task);
  session.checkEnded("function");
  session.closed = true;
  return value;
}

/** Lets a function that has thrown begin no other work. The record of the steps at work counts. */
function leave(session: Session): void {
  session.closed = true;
  const left = session.inProgress("function");
  if (left !== undefined && session.mistake === undefined) {
    session.logger.warn(`${left.message}. The attempt ends after it`, fieldsOf(session.run));
  }
}

async function failed(session: Session, err: unknown): Promise<Ending> {
  if (err instanceof Stopped) {
    return stopped(session);
  }
  if (err instanceof Fail || err instanceof Reject) {
    logUnused(session);
    const state = err instanceof Fail ? "TASK_STATE_FAILED" : "TASK_STATE_REJECTED";
    return await end(session, state, clean(err.plain, maxReason), "");
  }
  if (err instanceof Retry) {
    return await again(session, err.plain || "the agent asked for another attempt", err.after);
  }
  if (err instanceof UsageError) {
    return await postpone(session, err);
  }
  if (err instanceof NondeterminismError) {
    session.logger.error(`nondeterminism: ${err.message}`, fieldsOf(session.run));
    return await again(session, `nondeterminism: ${err.plain}`); // without a path, because a client may read it
  }
  if (err instanceof StepError) {
    if (err.cause === undefined) {
      // It failed in an earlier attempt, whose log says where.
      session.logger.warn(`step failed: ${err.message}`, fieldsOf(session.run));
    }
    return err.recorded
      ? await end(session, "TASK_STATE_FAILED", clean(err.plain, maxReason), "")
      : await again(session, err.plain);
  }
  logFailure(session, "error", "attempt failed", err);
  return await again(session, describe(err));
}

function logUnused(session: Session): void {
  const unused = session.replay ? session.unused() : [];
  if (unused.length > 0) {
    const more = unused.length > 10 ? ` and ${unused.length - 10} more` : "";
    session.logger.warn(
      `the function ended without these recorded steps: ${unused.slice(0, 10).join(", ")}${more}; ` +
        "take the same path each time",
      fieldsOf(session.run),
    );
  }
}

/** Ends the task. `where` is for a mistake in the value. */
async function end(session: Session, state: string, value: unknown, where: string): Promise<Ending> {
  try {
    const parts = value === undefined || value === null || value === "" ? undefined : partsOf(value);
    session.check();
    session.segments.end();
    session.addRaw(compact({ statusUpdate: { status: { state, ...(parts && { message: { parts } }) } } }));
    await session.flush();
  } catch (err) {
    if (err instanceof Stopped) {
      return stopped(session);
    }
    if (err instanceof UsageError) {
      err.place(where);
      return await postpone(session, err);
    }
    throw err;
  }
  return { outcome: "finished" };
}

/** Returns the result of an agent's function as the parts of its last message. */
function partsOf(value: unknown): object[] {
  if (value instanceof Message) {
    return encodeParts(value.parts);
  }
  if (typeof value === "string") {
    return encodeParts([{ text: value }]);
  }
  return encodeParts([value instanceof Uint8Array ? { raw: value } : ({ data: value as Json } satisfies Part)]);
}

/** Lets the task wait for a corrected program. The client sees no failure. */
async function postpone(session: Session, error: UsageError): Promise<Ending> {
  logMistake(session, error);
  try {
    await session.postpone(error.message);
  } catch (err) {
    if (err instanceof UsageError) {
      return await again(session, `${error.message} (${err.message})`); // such as a task with too many steps
    }
    if (err instanceof Stopped) {
      return { outcome: err.why, reason: err.message };
    }
    throw err;
  }
  return { outcome: "postponed", error };
}

function stopped({ stopped: why }: Session): Ending {
  return why instanceof Stopped ? { outcome: why.why, reason: why.message } : { outcome: "lost", reason: String(why) };
}

async function again(session: Session, reason: string, after?: number): Promise<Ending> {
  await session.drop();
  return { outcome: "retry", reason: clean(reason, maxReason), after };
}
