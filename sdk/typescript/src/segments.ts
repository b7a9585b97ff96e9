/** Segments: what is written to an artifact between two other calls, recorded as one step. */
import { compact } from "./json.js";
import { turnOf } from "./keys.js";
import type { Pairs } from "./pairs.js";
import type { Recorded } from "./wire.js";

/** Successive writes to an artifact, which are recorded as one step. */
export interface Segment {
  readonly key: string;
  readonly replayed: boolean;
  readonly pairs: Pairs;
}

/** Returns the event that begins a segment. If it began before, the artifact is restored. */
export const beginSegment = (key: string, artifact: string): string =>
  compact({ step: { key, name: "write", artifact } });

export const endSegment = (key: string): string => compact({ step: { key, name: "write", result: null } });

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
