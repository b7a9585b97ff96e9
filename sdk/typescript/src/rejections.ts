/** Failures of agents that nothing handles. By default, Node ends the process for one of them. */
import { logFailure } from "./failures.js";
import { currentSession } from "./scope.js";

/**
 * From now on logs promises of agents that fail although nothing handles that. A function that was left may have such
 * promises after its worker has ended. One of the rest of the program has the usual effect: the handlers of the program
 * get it, or it ends the process.
 */
export function watchRejections(): void {
  process.off("unhandledRejection", rejected).on("unhandledRejection", rejected);
}

function rejected(reason: unknown): void {
  const session = currentSession(); // Node calls this in the context of the promise
  if (session !== undefined) {
    logFailure(session, "error", "a promise of the agent that nothing awaits has failed", reason);
  } else if (process.listenerCount("unhandledRejection") === 1) {
    throw reason; // as without this listener
  }
}
