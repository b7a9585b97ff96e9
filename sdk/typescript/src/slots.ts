/** The slots of an agent, and how its last claim went. */
import type { Agent } from "./agent.js";

/** Seconds between two claims that fail. */
const maxPause = 10;

export class Slots {
  /** Seconds after which a claim without an answer waits for a task. Tests have a shorter time. */
  static waitsAfter = 1;
  running = 0;
  /** When the server last answered a claim. */
  claimedAt: Date | undefined;
  /** Whether the server answered the last claim, or lets it wait. */
  reachable = false;
  /** Why the last claim failed, and what to check. */
  error = "";
  #freed: () => void = () => undefined;

  constructor(readonly agent: Agent) {}

  /** Waits for a free slot, and returns how many are free, or 0 when the worker stops. */
  async some(stop: AbortSignal): Promise<number> {
    const free = () => this.agent.concurrency - this.running;
    while (!stop.aborted && free() <= 0) {
      await new Promise<void>((resolve) => {
        this.#freed = resolve;
        stop.addEventListener("abort", this.wake, { once: true });
      });
      stop.removeEventListener("abort", this.wake);
    }
    return stop.aborted ? 0 : free();
  }

  /** Looks again for a free slot. */
  readonly wake = (): void => {
    this.#freed();
  };

  /** Returns how many seconds to wait after a number of failed claims in a row. It differs by worker. */
  pause(failures: number): number {
    return (0.5 + Math.random() / 2) * Math.min(0.2 * 2 ** Math.min(failures, 10), maxPause);
  }

  /** Notes that the server accepts the claims of the agent. */
  ready(): void {
    this.reachable = true;
    this.error = "";
  }
}
