/** Errors of the agent's code in the log: where they were thrown, without the library's frames. */
import { A2adError } from "./errors.js";
import { placeOf, stackOf } from "./place.js";
import type { Session } from "./session.js";
import type { Run } from "./wire.js";

/** Returns the fields of log lines about a run. */
export const fieldsOf = ({ taskId, agent, epoch, attempt }: Run): Record<string, unknown> => ({
  ...{ task_id: taskId, agent, epoch, attempt },
});

/** Returns the class and the message of what was thrown. It may be anything, and have any members. */
export function classAndText(err: unknown): [type: string, text: string] {
  try {
    const { name, message }: { name: unknown; message: unknown } = err instanceof Error ? err : new Error(String(err));
    return [String(name), String(message)];
  } catch {
    return ["Error", "an error that cannot be shown"];
  }
}

/** Returns the class and the message of an error in one text. */
export function describe(err: unknown): string {
  return err instanceof A2adError ? err.message : classAndText(err).join(": ").replace(/: $/, "");
}

/** Logs an error of the agent's code, with its place and its stack. */
export function logFailure({ logger, run }: Session, level: "warn" | "error", what: string, err: unknown): void {
  const at = placeOf(err);
  const stack = stackOf(err);
  const more = stack === "" ? {} : { err: stack };
  logger[level](`${what}: ${describe(err)}${at === "" ? "" : ` (${at})`}`, { ...fieldsOf(run), ...more });
}

/** Logs a mistake of the agent's code in one line. Its stack is for debugging. */
export function logMistake({ logger, run }: Session, err: A2adError, where = ""): void {
  err.place(placeOf(err)).place(where);
  logger.error(`mistake in the program: ${err.message}`, fieldsOf(run));
  logger.debug("the stack of the mistake", { ...fieldsOf(run), err: err.stack });
}
