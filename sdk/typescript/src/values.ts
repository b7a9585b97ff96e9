import { createHash } from "node:crypto";
import { types } from "node:util";

import { UsageError } from "./errors.js";
import type { Json } from "./wire.js";

/** Bytes of one recorded value. */
const maxResult = 1 << 20;
/** The server accepts 64 levels in an event; the event itself takes a few. */
const maxLevels = 56;

/**
 * What a value becomes when it is recorded as JSON: a `Date` becomes a string, and `undefined` becomes null. A member
 * that is `undefined` is left out.
 */
export type Recordable<T> = unknown extends T
  ? T
  : T extends undefined
    ? null
    : T extends { toJSON(): infer J }
      ? Recordable<J>
      : T extends readonly unknown[]
        ? { [K in keyof T]: Recordable<T[K]> }
        : T extends object
          ? { [K in keyof T]: RecordableMember<T[K]> }
          : T;

type RecordableMember<T> = T extends undefined ? T : Recordable<T>;

/** Returns a value as JSON. `what` names it in the error. A value that would come back as another one is refused. */
export function encode(value: unknown, what: string): string {
  checkValue(value, "", what, 0);
  const text = (JSON.stringify(value) as string | undefined) ?? "null";
  const size = Buffer.byteLength(text);
  if (size > maxResult) {
    throw new UsageError(`${what} is ${size} bytes of JSON; at most ${maxResult} can be recorded`);
  }
  return text;
}

function checkValue(v: unknown, path: string, what: string, level: number): void {
  const refuse = (found: string): never => {
    throw new UsageError(`${what} cannot be recorded as JSON: ${found}${path === "" ? "" : ` at ${path}`}`);
  };
  switch (typeof v) {
    case "string":
      if (!v.isWellFormed()) {
        refuse("text with half a surrogate pair");
      }
      return;
    case "number":
      if (!Number.isFinite(v)) {
        refuse(String(v));
      }
      return;
    case "bigint":
    case "symbol":
    case "function":
      refuse(`a ${typeof v}`);
      return;
    case "object":
      if (v !== null) {
        checkObject(v, path, what, level, refuse);
      }
  }
}

function checkObject(v: object, path: string, what: string, level: number, refuse: (found: string) => void): void {
  if (level === maxLevels) {
    refuse(`more than ${maxLevels} levels, or an object that contains itself,`);
  }
  if ("toJSON" in v && typeof v.toJSON === "function") {
    checkValue((v.toJSON as () => unknown)(), path, what, level + 1);
  } else if (Array.isArray(v)) {
    v.forEach((e, i) => {
      checkValue(e, `${path}[${i}]`, what, level + 1);
    });
  } else if (losesContent(v)) {
    refuse(`a ${v.constructor.name}`);
  } else {
    for (const [k, e] of Object.entries(v)) {
      checkValue(k, path, what, level + 1);
      checkValue(e, path === "" ? k : `${path}.${k}`, what, level + 1);
    }
  }
}

/** Reports whether JSON has no form for an object: most often a promise that the agent did not await. */
function losesContent(v: object): boolean {
  return (
    types.isPromise(v) ||
    types.isMap(v) ||
    types.isSet(v) ||
    types.isRegExp(v) ||
    types.isNativeError(v) ||
    types.isAnyArrayBuffer(v) ||
    ArrayBuffer.isView(v)
  );
}

/** Returns the SHA-256 of JSON, as the server computes it. */
export function digest(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

export function decode(text: string): Json {
  return JSON.parse(text) as Json;
}

/** Returns a text that the server accepts, for what other code wrote. */
export function clean(text: string, length: number): string {
  return text.slice(0, length).toWellFormed();
}

/** Refuses what is no text, is too long, or cannot be sent. An empty text is refused if `least` is 1. */
export function checkText(text: unknown, what: string, least = 0, most = maxResult): asserts text is string {
  if (typeof text !== "string") {
    throw new UsageError(`${what} takes a string, not ${text === null ? "null" : typeof text}`);
  }
  if (!text.isWellFormed()) {
    throw new UsageError(`${what} has half a surrogate pair; cut texts between characters`);
  }
  // Each UTF-16 unit is at most three bytes, so most texts need not be counted.
  if (text.length < least || (text.length * 3 > most && Buffer.byteLength(text) > most)) {
    throw new UsageError(`${what} must have ${least} to ${most} bytes, not ${Buffer.byteLength(text)}`);
  }
}

/** Refuses a name that cannot be the key of a step, or the id of an artifact. */
export function checkName(name: unknown, what: string): asserts name is string {
  checkText(name, what, 1, 200);
  if (name.includes("\0")) {
    throw new UsageError(`${what} must not contain a NUL`);
  }
}

/** Refuses options that do not exist, so that a misspelled one is not lost. */
export function checkOptions(options: unknown, what: string, known: readonly string[]): void {
  if (typeof options !== "object" || options === null) {
    throw new UsageError(`the options of ${what} are an object, not ${options === null ? "null" : typeof options}`);
  }
  const unknown = Object.keys(options).find((k) => !known.includes(k));
  if (unknown !== undefined) {
    throw new UsageError(`${what} has no option "${unknown}"; it has ${known.join(", ")}`);
  }
}

/** A duration: seconds, or a text such as "90s", "1h30m" or "7d". */
export type Duration = number | string;

const units: Record<string, number> = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86400 };

/** Returns a duration in seconds. */
export function seconds(duration: Duration, what: string): number {
  let total = Number.NaN;
  if (typeof duration === "number") {
    total = duration;
  } else {
    if (typeof duration !== "string" || !/^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(duration)) {
      throw new UsageError(`${what} must be seconds, or a text such as "90s", "24h" or "7d", not ${shown(duration)}`);
    }
    total = 0;
    for (const [, n, unit] of duration.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)) {
      total += Number(n) * (units[unit ?? ""] ?? 0);
    }
  }
  if (!(total >= 0 && total <= 10 * 365 * 86400)) {
    throw new UsageError(`${what} must be between 0 and ten years, not ${duration}`);
  }
  return total;
}

/** Returns a duration in the form in which the server reads it. To the server, zero means no end. */
export function wireDuration(duration: Duration, what: string): string {
  return `${Math.max(seconds(duration, what), 0.001).toFixed(3)}s`;
}

/** Returns a value as an error message shows it. */
export function shown(value: unknown): string {
  return typeof value === "string" ? JSON.stringify(value.slice(0, 60)) : String(value).slice(0, 60);
}
