/** Segments: what is written to an artifact between two other calls, recorded as one step. */
import { compact, digest, fingerprint } from "./json.js";
import { turnOf } from "./keys.js";
import { Pairs } from "./pairs.js";
import type { Outbox } from "./outbox.js";
import { isRecord, type Recorded } from "./wire.js";

/** Characters of what a handler may have said. What comes after them is not recorded, so it is sent again. */
const maxSaid = 128 << 10;

/** Successive changes of an artifact, which are recorded as one step. */
export class Segment {
  readonly #said: string[] = [];
  #size = 0;
  #at = 0;

  constructor(
    readonly key: string,
    readonly replayed: boolean,
    /** What a replayed segment of a handler has said. Without it, everything is replayed. */
    private readonly recorded?: string,
    readonly pairs = new Pairs(),
  ) {}

  /** Notes what a handler has written, or the hash of another change. */
  say(text: string): void {
    this.#size += text.length;
    if (this.#size <= maxSaid) {
      this.#said.push(text);
    }
  }

  /** The result of the segment of a handler that a step continues. */
  get result(): Continued {
    return { continued: this.#said.join("") };
  }

  /** Returns what of a text is not recorded: all from the first difference on. */
  skip(text: string): string {
    const { recorded } = this;
    if (recorded === undefined || recorded.startsWith(text, this.#at)) {
      this.#at += text.length;
      return "";
    }
    let same = 0;
    for (const character of text) {
      if (!recorded.startsWith(character, this.#at + same)) {
        break;
      }
      same += character.length;
    }
    return text.slice(same);
  }
}

/** The result of a segment of a handler that a step has continued: what it has said. */
interface Continued {
  readonly continued: string;
}

/** Returns what a segment has said that a step has continued, or undefined for another one. */
export function continued(old: Recorded | undefined): string | undefined {
  const result = old?.result;
  return isRecord(result) && typeof result.continued === "string" ? result.continued : undefined;
}

/** Returns how a change other than text is noted. */
export const changeOf = (event: object): string => `\ufffc${digest(fingerprint(event))}`;

/** Returns the event that begins a segment. If it began before, the artifact is restored. */
export const beginSegment = (key: string, artifact: string): string =>
  compact({ step: { key, name: "write", artifact } });

export const endSegment = (key: string, result: Continued | null = null): string =>
  compact({ step: { key, name: "write", result } });

/**
 * Returns events that remove what a handler wrote after its last checkpoint. If it has asked the client, and the client
 * has answered, that text remains.
 */
export function takeBack(steps: readonly Recorded[]): string[] {
  const answered = new Set(steps.filter((s) => s.kind === "wait" && s.by === "message").map((s) => turnOf(s.key)));
  return steps
    .filter((s) => isSegment(s) && !s.ended)
    .flatMap((s) => {
      const end = endSegment(s.key);
      return answered.has(turnOf(s.key)) ? [end] : [beginSegment(s.key, s.artifact), end];
    });
}

export const isSegment = (s: Recorded): boolean => s.name === "write" && s.key.includes(`write:${s.artifact}#`);

/** What the segments need of their run. */
interface Host {
  readonly replay: boolean;
  /** The prefix of keys. */
  readonly scope: string;
  readonly known: ReadonlyMap<string, Recorded>;
  check(): void;
  nextKey(name: string): string;
  recorded(key: string, kind: "step", name: string): Recorded | undefined;
  releaseHeld(): void;
}

/** The current segments of a run, by artifact. */
export class Segments {
  readonly #open = new Map<string, Segment>();
  /** The places of the recorded steps among all. */
  readonly #places: ReadonlyMap<string, number>;
  /** By artifact: the place where the handler is at least. */
  readonly #passed = new Map<string, number>();

  constructor(
    private readonly run: Host,
    private readonly outbox: Outbox,
  ) {
    this.#places = new Map([...run.known.keys()].map((key, place) => [key, place]));
  }

  /** Appends text to an artifact, as part of its current segment. */
  async write(artifact: string, name: string, text: string): Promise<void> {
    this.run.check();
    let segment = this.#current(artifact);
    let whole = segment.pairs.add(text).toWellFormed();
    while (segment.replayed) {
      whole = segment.skip(whole);
      if (whole === "") {
        return;
      }
      segment = this.#next(artifact, segment.pairs);
    }
    if (!this.run.replay) {
      segment.say(whole);
    }
    await this.outbox.write(artifact, name, whole);
  }

  /** Notes a change of an artifact by a handler, other than text. Returns whether it is recorded already. */
  changed(artifact: string, change: string): boolean {
    this.run.check();
    let segment = this.#current(artifact);
    while (segment.replayed) {
      if (segment.skip(change) === "") {
        return true;
      }
      segment = this.#next(artifact, segment.pairs);
    }
    segment.say(change);
    return false;
  }

  #current(artifact: string): Segment {
    return this.#open.get(artifact) ?? this.#next(artifact);
  }

  /** Begins the next segment of an artifact. */
  #next(artifact: string, pairs?: Pairs): Segment {
    const { run } = this;
    const next = () => run.nextKey(`${run.scope}write:${artifact}`);
    let key = next();
    while (!run.replay && run.known.has(key) && !this.#follows(key, artifact)) {
      key = next();
    }
    const old = run.recorded(key, "step", "write");
    const segment = new Segment(key, old?.ended === true, continued(old), pairs);
    this.#open.set(artifact, segment);
    run.releaseHeld();
    if (!segment.replayed) {
      this.outbox.put([beginSegment(key, artifact)]);
    }
    return segment;
  }

  /** Returns whether the handler can come to a recorded segment, which was not taken back. */
  #follows(key: string, artifact: string): boolean {
    const place = this.#places.get(key) ?? 0;
    return continued(this.run.known.get(key)) !== undefined && place >= (this.#passed.get(artifact) ?? 0);
  }

  /**
   * Records that the writes until now are complete. Those of a handler are complete when it saves a checkpoint or ends:
   * see `end`.
   */
  close(): void {
    if (this.run.replay) {
      this.end();
    }
  }

  /**
   * Records that a step continues an artifact, so that what it has is not taken back. `recorded` is the key of a step
   * that is replayed. What follows another one is new.
   */
  continue(artifact: string, recorded = ""): void {
    const place = this.#places.get(recorded) ?? this.#places.size;
    this.#passed.set(artifact, Math.max(place, this.#passed.get(artifact) ?? 0));
    this.#end(artifact, !this.run.replay);
    this.outbox.hurry();
  }

  /** Ends the segments of all artifacts. */
  end(): void {
    [...this.#open.keys()].forEach((artifact) => {
      this.#end(artifact, false);
    });
    this.outbox.hurry();
  }

  #end(artifact: string, continues: boolean): void {
    const segment = this.#open.get(artifact);
    this.#open.delete(artifact);
    if (segment?.replayed === false) {
      const rest = segment.pairs.rest();
      segment.say(rest);
      this.outbox.add(artifact, "", rest);
      this.outbox.put([endSegment(segment.key, continues ? segment.result : null)]);
    }
  }

  /** Drops what is open, because the next attempt does it again. */
  clear(): void {
    this.#open.clear();
  }
}
