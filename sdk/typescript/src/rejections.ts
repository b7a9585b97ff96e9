/** Promises of agents that fail although nothing handles that. By default, Node ends the process for one of them. */
import { describe, fieldsOf } from "./failures.js";
import { placeOf, stackOf } from "./place.js";
import { currentSession } from "./scope.js";

/** How many workers of this process work. */
let workers = 0;

/**
 * Logs such promises of agents, until the returned function is called. One of the rest of the program has the usual
 * effect: the handlers of the program get it, or it ends the process.
 */
export function watchRejections(): () => void {
  if (workers++ === 0) {
    process.on("unhandledRejection", rejected);
  }
  return () => {
    if (--workers === 0) {
      process.off("unhandledRejection", rejected);
    }
  };
}

function rejected(reason: unknown): void {
  const session = currentSession(); // Node calls this in the context of the promise
  if (session === undefined) {
    if (process.listenerCount("unhandledRejection") === 1) {
      throw reason; // as without this listener
    }
    return;
  }
  const at = placeOf(reason);
  session.logger.error(
    `a promise of the agent that nothing awaits has failed: ${describe(reason)}${at === "" ? "" : ` (${at})`}`,
    { ...fieldsOf(session.run), ...(reason instanceof Error && { err: stackOf(reason) }) },
  );
}
