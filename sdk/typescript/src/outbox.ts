/** Seconds between two requests with streamed text. */
const flushEvery = 0.05;
/** Streamed text that is sent without waiting for more. */
const flushBytes = 32 << 10;
/** Streamed text that may wait to be sent before `write` waits. */
const blockBytes = 256 << 10;
const maxEvents = 1000;
const maxBatch = 1 << 20;
/** The longest text of one event, in UTF-16 units. */
const maxChunk = 256 << 10;

/** The time of a run. Tests have a faster one. */
export interface Clock {
  /** Milliseconds since 1970. */
  now(): number;
  /** Seconds since some time; it never goes back. */
  monotonic(): number;
  sleep(seconds: number): Promise<void>;
  /** Lets the agent write more before what it has written is sent. */
  gatherText(seconds: number): Promise<void>;
}

const pause = (seconds: number) => new Promise<void>((done) => setTimeout(done, seconds * 1000));

export const realClock: Clock = {
  now: Date.now,
  monotonic: () => performance.now() / 1000,
  sleep: pause,
  gatherText: pause,
};

/**
 * Returns when a run sends streamed text again that has sent some at that time. All runs of a process do so at the same
 * ticks. Then the server, the database and the worker wake up for many requests instead of each.
 */
export function nextTick(sentAt: number): number {
  return (Math.floor((sentAt + flushEvery / 2) / flushEvery) + 1) * flushEvery;
}

/** Streamed text that waits to be sent. */
class Chunk {
  text = "";

  constructor(
    readonly artifact: string,
    readonly name: string,
  ) {}

  encode(): string {
    const artifact = { artifactId: this.artifact, ...(this.name && { name: this.name }), parts: [{ text: this.text }] };
    return JSON.stringify({ artifactUpdate: { artifact, append: true } });
  }
}

/** The events of one run that wait to be sent. It sends them in order, one request at a time. */
export class Outbox {
  readonly #send: (events: readonly string[]) => Promise<void>;
  readonly #clock: Clock;
  #pending: (string | Chunk)[] = [];
  #bytes = 0;
  #added = 0;
  #sent = 0;
  #sentAt = Number.NEGATIVE_INFINITY;
  #sending: Promise<void> | undefined;
  #failed: Error | undefined;
  #pacing = false;
  #hurry: (() => void) | undefined;

  constructor(send: (events: readonly string[]) => Promise<void>, clock: Clock) {
    this.#send = send;
    this.#clock = clock;
  }

  /** Adds an event, which is JSON already. */
  put(event: string): void {
    this.#pending.push(event);
    this.#bytes += event.length;
    this.#added++;
  }

  /** Adds text to an artifact, and sends it soon: at once, then about every 50 ms or 32 KiB. */
  async write(artifact: string, name: string, text: string): Promise<void> {
    for (let from = 0; from < text.length; ) {
      const to = cut(text, from + maxChunk);
      this.#addText(artifact, name, text.slice(from, to));
      from = to;
    }
    if (this.#bytes >= blockBytes) {
      await this.flush();
    } else if (!this.#pacing) {
      void this.#pace();
    } else if (this.#bytes >= flushBytes) {
      this.#hurry?.();
    }
  }

  #addText(artifact: string, name: string, text: string): void {
    let last = this.#pending.at(-1);
    if (!(last instanceof Chunk) || last.artifact !== artifact || last.text.length + text.length > maxChunk) {
      last = new Chunk(artifact, name);
      this.#pending.push(last);
      this.#added++;
    }
    last.text += text;
    this.#bytes += text.length;
  }

  async #pace(): Promise<void> {
    this.#pacing = true;
    try {
      while (this.#pending.length > 0) {
        const wait = nextTick(this.#sentAt) - this.#clock.monotonic();
        if (wait > 0 && this.#bytes < flushBytes) {
          await new Promise<void>((done) => {
            this.#hurry = done;
            void this.#clock.gatherText(wait).then(done);
          });
        }
        await this.flush();
      }
    } catch {
      // the session has stopped, and the agent's next call notices it
    } finally {
      this.#pacing = false;
    }
  }

  /** Sends what waits now, and returns when the server has stored it. */
  async flush(): Promise<void> {
    const target = this.#added;
    while (this.#sent < target) {
      if (this.#failed !== undefined) {
        throw this.#failed; // what follows a lost request must not be sent
      }
      this.#sending ??= this.#sendBatch().finally(() => (this.#sending = undefined));
      await this.#sending;
    }
  }

  async #sendBatch(): Promise<void> {
    const events = this.#take();
    this.#sentAt = this.#clock.monotonic();
    try {
      await this.#send(events);
    } catch (err) {
      this.#failed = err as Error;
      throw err;
    }
    this.#sent += events.length;
  }

  /** Removes the events of one request from those that wait. */
  #take(): string[] {
    const events: string[] = [];
    let size = 0;
    for (const next of this.#pending) {
      const text = typeof next === "string" ? next : next.encode();
      size += Buffer.byteLength(text);
      if (events.length === maxEvents || (events.length > 0 && size > maxBatch)) {
        break;
      }
      events.push(text);
      this.#bytes -= typeof next === "string" ? next.length : next.text.length;
    }
    this.#pending = this.#pending.slice(events.length);
    return events;
  }

  /** Forgets what was not sent. */
  drop(): void {
    this.#sent += this.#pending.length;
    this.#pending = [];
    this.#bytes = 0;
  }
}

/** Returns the place at or before `at` that does not cut a character in half. */
function cut(text: string, at: number): number {
  const before = at < text.length ? text.charCodeAt(at - 1) : 0;
  return before >= 0xd800 && before <= 0xdbff ? at - 1 : Math.min(at, text.length);
}
