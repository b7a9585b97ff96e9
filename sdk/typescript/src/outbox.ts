import { nextTick, type Clock } from "./clock.js";
import { compact } from "./json.js";

/** Characters of unsent text that are sent without waiting for more. */
const flushSize = 32 << 10;
/** Characters of unsent text from which on `write` waits. */
const blockSize = 256 << 10;
/** UTF-16 units of one piece of streamed text. Encoded in UTF-8, they fit into a part. */
const chunkSize = 128 << 10;
export const maxEvents = 1000;
/** Bytes of a request with several units. One unit may have more: the server takes 4 MiB. */
const maxBatch = 1 << 20;

/** Events, as JSON, that are stored together: all or none. */
export type Unit = readonly string[];

/** Streamed text that waits to be sent. */
interface Chunk {
  readonly artifact: string;
  readonly name: string;
  text: string;
}

/** Sends events, and throws what ends the run. */
type Send = (events: readonly string[]) => Promise<void>;

/** What one run has not sent yet. It sends it in order, one request at a time. */
export class Outbox {
  #pending: (Unit | Chunk)[] = [];
  #size = 0;
  #textSentAt = Number.NEGATIVE_INFINITY;
  #flushing = 0;
  /** The request in progress. It never rejects: what ends the run goes to `#ended`. */
  #sending: Promise<void> | undefined;
  #cancelTimer: (() => void) | undefined;

  constructor(
    private readonly send: Send,
    /** Throws if the run has ended. */
    private readonly check: () => void,
    private readonly isOver: () => boolean,
    private readonly clock: Clock,
  ) {}

  put(unit: Unit | Chunk): void {
    this.#pending.push(unit);
    this.#size += sizeOf(unit);
  }

  /** Adds text to an artifact, and sends it soon. It waits if too much waits to be sent. */
  async write(artifact: string, name: string, text: string): Promise<void> {
    for (let from = 0; from < text.length;) {
      const to = cut(text, from + chunkSize);
      this.add(artifact, name, text.slice(from, to));
      from = to;
    }
    if (this.#size >= blockSize) {
      await this.flush();
    } else if (this.#size >= flushSize) {
      this.#sendText();
    } else if (this.#cancelTimer === undefined && this.#sending === undefined) {
      this.#sendTextLater();
    }
  }

  /** Adds text of at most `chunkSize` to what is sent next. */
  add(artifact: string, name: string, text: string): void {
    if (text === "") {
      return;
    }
    let last = this.#pending.at(-1);
    if (
      last === undefined ||
      isUnit(last) ||
      last.artifact !== artifact ||
      last.text.length + text.length > chunkSize
    ) {
      last = { artifact, name, text: "" };
      this.put(last);
    }
    last.text += text;
    this.#size += text.length;
  }

  /** Lets the next text be sent at once. */
  hurry(): void {
    this.#textSentAt = Number.NEGATIVE_INFINITY;
  }

  /** Sends the first text at once, and later text at a tick. */
  #sendTextLater(): void {
    const delay = nextTick(this.#textSentAt) - this.clock.monotonic();
    if (delay > 0) {
      this.#cancelTimer = this.clock.sendLater(delay, () => {
        this.#sendText();
      });
    } else {
      this.#sendText();
    }
  }

  #sendText(): void {
    this.#stopTimer();
    if (this.#sending === undefined && this.#pending.length > 0 && !this.isOver()) {
      this.#sending = this.#sendPending();
    }
  }

  /** Sends what waits, and returns when the server has stored it. */
  async flush(): Promise<void> {
    this.#flushing++;
    try {
      for (;;) {
        if (this.#sending === undefined) {
          this.check();
          if (this.#pending.length === 0) {
            return;
          }
          this.#sending = this.#sendPending();
        }
        await this.#sending;
      }
    } finally {
      this.#flushing--;
    }
  }

  /** Sends what waits. Text that is added meanwhile is sent later, unless `flush` waits. */
  async #sendPending(): Promise<void> {
    try {
      do {
        await this.send(this.#take());
      } while (this.#pending.length > 0 && !this.isOver() && (this.#flushing > 0 || this.#size >= flushSize));
    } catch {
      // The run has ended: the next call of the agent notices it.
    } finally {
      this.#sending = undefined;
    }
    if (this.#pending.length > 0 && this.#cancelTimer === undefined && !this.isOver()) {
      this.#sendTextLater();
    }
  }

  /** Removes and returns the events of one request. */
  #take(): string[] {
    const events: string[] = [];
    let size = 0;
    let taken = 0;
    for (const next of this.#pending) {
      const more = isUnit(next) ? next : [encodeChunk(next)];
      size += more.reduce((sum, e) => sum + Buffer.byteLength(e), 0);
      if (events.length > 0 && (size > maxBatch || events.length + more.length > maxEvents)) {
        break;
      }
      events.push(...more);
      this.#size -= sizeOf(next);
      taken++;
      if (!isUnit(next)) {
        this.#textSentAt = this.clock.monotonic();
      }
    }
    this.#pending.splice(0, taken);
    return events;
  }

  /** Forgets what was not sent, and returns its events, without text. */
  drop(): string[] {
    const events = this.#pending.flatMap((p) => (isUnit(p) ? p : []));
    this.#pending = [];
    this.#size = 0;
    return events;
  }

  /** Sends no more text by itself. */
  close(): void {
    this.#stopTimer();
  }

  #stopTimer(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }
}

function isUnit(p: Unit | Chunk): p is Unit {
  return Array.isArray(p);
}

function sizeOf(p: Unit | Chunk): number {
  return isUnit(p) ? p.reduce((sum, e) => sum + e.length, 0) : p.text.length;
}

function encodeChunk({ artifact, name, text }: Chunk): string {
  const about = { artifactId: artifact, parts: [{ text }], ...(name !== "" && { name }) };
  return compact({ artifactUpdate: { artifact: about, append: true } });
}

/** Returns the place at or before `at` that does not cut a character in half. */
function cut(text: string, at: number): number {
  const before = at < text.length ? text.charCodeAt(at - 1) : 0;
  return before >= 0xd800 && before <= 0xdbff ? at - 1 : Math.min(at, text.length);
}
