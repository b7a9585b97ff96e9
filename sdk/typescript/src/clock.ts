/** Milliseconds of the longest timer. Node takes a longer one for one of a millisecond. */
const maxTimer = 2 ** 31 - 1;
/** Seconds between two requests with streamed text. */
export const flushEvery = 0.05;

/** The time of a session. Tests have a faster one. */
export interface Clock {
  /** Milliseconds since 1970. */
  now(): number;
  /** Seconds since some moment. They never go back. */
  monotonic(): number;
  /** Waits, unless the signal aborts first. It never throws. */
  sleep(seconds: number, signal?: AbortSignal): Promise<void>;
  /** Calls `send` after a pause, in which the agent may write more. Returns how to cancel that. */
  sendLater(seconds: number, send: () => void): () => void;
}

/** Returns seconds since the process began. They never go back, and go on while the process is suspended. */
export const monotonic = (): number => performance.now() / 1000;

/** Waits, unless the signal aborts first. It never throws. */
export function sleep(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) {
      resolve();
      return;
    }
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, Math.min(seconds * 1000, maxTimer));
    signal?.addEventListener("abort", end);
  });
}

export const realClock: Clock = {
  now: Date.now,
  monotonic,
  sleep,
  sendLater(seconds, send) {
    const timer = setTimeout(send, Math.ceil(seconds * 1000));
    return () => {
      clearTimeout(timer);
    };
  },
};

/**
 * Returns when a run that sent streamed text at `sentAt` sends more. All runs of a process send at the same ticks, so
 * that the server, the database and the worker wake up once for many requests.
 */
export function nextTick(sentAt: number): number {
  return (Math.floor((sentAt + flushEvery / 2) / flushEvery) + 1) * flushEvery;
}
