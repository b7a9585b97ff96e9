import { Stopped, UsageError } from "./errors.js";
import { scopeIn } from "./scope.js";
import type { Session } from "./session.js";
import type { Json } from "./wire.js";

/** Why a wait is over. */
export interface WaitResult {
  by: string;
  value?: Json;
  messageId?: string;
}

/** A promise of nothing: the agent's function is left where it awaits it. */
export const never = (): Promise<never> => new Promise(() => undefined);

/** Refuses what a step must not do, because its function does not run again when the agent does. */
export function outsideSteps(session: Session, what: string): void {
  const { step } = scopeIn(session);
  if (step !== undefined) {
    throw new UsageError(`${what} inside the step "${step.name}": a step can only write and report usage`);
  }
}

/**
 * Returns the result of a wait that is over. Otherwise it begins the wait, which ends the run: then it never returns,
 * and the function is left where it is.
 */
export async function wait(session: Session, key: string, what: string, event: object): Promise<WaitResult> {
  const old = session.recorded(key, "wait", "");
  session.check();
  if (old?.endedAt !== undefined) {
    session.closeSegments();
    return (old.result ?? { by: "time" }) as unknown as WaitResult;
  }
  const [running] = session.running.values();
  if (running !== undefined) {
    throw new UsageError(`${what} while the step "${running}" runs: await the step first, or use gather`);
  }
  await session.end({ wait: { key, ...event } });
  session.stop(new Stopped("waiting", "the task waits"));
  return await never();
}

/** Ends the run until called tasks have ended. Inside `gather`, other branches may still work. */
export async function waitForCalls(session: Session, key: string, tasks: string[], any: boolean): Promise<never> {
  const { branch } = scopeIn(session);
  if (branch !== undefined) {
    return await branch.block(tasks);
  }
  await wait(session, key, "call", { tasks, ...(any && { mode: "any" }) });
  throw new UsageError(`the wait "${key}" is over, but its calls are not`);
}
