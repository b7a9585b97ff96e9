/** Errors of the agent's code in the log: where they were thrown, without the library's frames. */
import { types } from "node:util";

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
    const isError = err instanceof Error || types.isNativeError(err); // also of another realm
    const { name = "Error", message }: { name?: unknown; message?: unknown } = isError || hasMessage(err) ? err : {};
    return [String(name), String(message ?? err)];
  } catch {
    return ["Error", "an error that cannot be shown"];
  }
}

/** Reports whether something like `{ code: 429, message: "too many requests" }` was thrown. */
const hasMessage = (err: unknown): err is { message: string } =>
  typeof err === "object" && err !== null && "message" in err && typeof err.message === "string";

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
