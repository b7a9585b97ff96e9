import type { Logger } from "./log.js";

/** Seconds after which the event loop counts as blocked. */
const blocked = 1;
const every = 0.5;

/**
 * Warns if the agent's code has blocked the event loop: meanwhile no lease was renewed, so all runs of the worker may
 * be lost. Returns what ends the watch.
 */
export function watchEventLoop(logger: Logger): () => void {
  let last = performance.now();
  let before = performance.eventLoopUtilization();
  const timer = setInterval(() => {
    const late = (performance.now() - last) / 1000 - every;
    const { active } = performance.eventLoopUtilization(before);
    // The process may also have been suspended while it was idle.
    if (late > blocked && active > blocked * 1000) {
      logger.warn(
        `the event loop was blocked for ${late.toFixed(1)} s: no lease was renewed meanwhile. ` +
          "Do such work in a worker thread or a child process",
        {},
      );
    }
    last = performance.now();
    before = performance.eventLoopUtilization();
  }, every * 1000).unref();
  return () => {
    clearInterval(timer);
  };
}
