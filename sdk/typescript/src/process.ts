/** What a worker does with its process: signals, and the end. */
import { realpathSync } from "node:fs";

import { misuse } from "./errors.js";
import type { Logger } from "./log.js";
import { somePending } from "./pending.js";
import { caller } from "./place.js";

const signals = ["SIGTERM", "SIGINT"] as const;
/** Milliseconds that a process gets to end after its worker has stopped, if functions were left. */
const exitDelay = 5000;
/** How many workers of this process serve. */
let serving = 0;

/** Counts a worker until the returned function is called. */
export function countServing(): () => void {
  serving++;
  return () => {
    serving--;
  };
}

/** Calls `stop` at the first signal. The second one ends the process. Returns what removes the handlers. */
export function onSignals(stop: () => void): () => void {
  const restore = () => {
    signals.forEach((s) => process.off(s, told));
  };
  const told = () => {
    restore();
    stop();
  };
  signals.forEach((s) => process.on(s, told));
  return restore;
}

/**
 * Ends the process soon, if functions that were left may keep it and no other worker serves. One that was left at a
 * wait may have opened something that only a `finally` block would close.
 */
export function exitIfKept(logger: Logger): void {
  setTimeout(() => {
    if (somePending() && serving === 0) {
      logger.warn("what a function has left still keeps the process, so it exits now", {});
      process.exit();
    }
  }, exitDelay).unref();
}

/** Throws UsageError if a test imports the file that starts a worker. */
export function refuseTest(): void {
  const { NODE_TEST_CONTEXT, VITEST, JEST_WORKER_ID } = process.env;
  if ((NODE_TEST_CONTEXT ?? VITEST ?? JEST_WORKER_ID) !== undefined && !caller().startsWith(`${mainFile()}:`)) {
    throw misuse("this starts a worker while a test imports the file: start the worker in a file of its own");
  }
}

function mainFile(): string {
  try {
    return realpathSync(process.argv[1] ?? "");
  } catch {
    return "";
  }
}
