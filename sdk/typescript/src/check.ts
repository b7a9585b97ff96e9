/** Checks of the arguments of an agent. They refuse what the server would refuse. */
import { refuseCalls } from "./call.js";
import { UsageError } from "./errors.js";
import { shown, typeName } from "./json.js";
import { similar } from "./similar.js";

/** Seconds, or a text such as "90s", "1h30m" or "7d". At most ten years. For a wait, a negative one counts as 0. */
export type Duration = number | string;

/** Bytes of a name. A key is a name with a number, and has at most 256. */
const maxName = 200;
export const maxId = 256;
/** Bytes of a text, or of another part of a message. */
export const maxText = 1 << 20;
const maxChoices = 100;
const years = 10 * 365 * 86_400;
const units: Record<string, number> = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86_400 };

/** Returns the value if it is a string. When it is sent, U+FFFD replaces half a surrogate pair. */
export function text(value: unknown, what: string, most = maxText): string {
  if (typeof value !== "string") {
    refuseCalls(value);
    throw new UsageError(`${what} must be a string, not ${typeName(value)}`);
  }
  // Each UTF-16 unit is at most three bytes, so most texts need not be counted.
  if (value.length * 3 > most) {
    const size = Buffer.byteLength(value);
    if (size > most) {
      throw new UsageError(`${what} has ${size} bytes; at most ${most} are allowed`);
    }
  }
  return value;
}

/** Returns the value if it is a string that is sent as it is. */
export function exact(value: unknown, what: string, most = maxText): string {
  const checked = text(value, what, most);
  if (!checked.isWellFormed()) {
    throw new UsageError(`${what} is not valid Unicode: it has half a surrogate pair`);
  }
  return checked;
}

/** Returns the value if it can be a name or an id. */
export function name(value: unknown, what: string, most = maxName): string {
  const checked = exact(value, what, most);
  if (checked === "" || checked.includes("\0")) {
    throw new UsageError(`${what} must have 1 to ${most} bytes and no NUL: ${shown(value)}`);
  }
  return checked;
}

export function agent(value: unknown): string {
  if (typeof value !== "string" || !/^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/.test(value)) {
    throw new UsageError(
      "the name of an agent must have 1 to 64 letters, digits, - and _, and begin with a letter or a digit: " +
        shown(value),
    );
  }
  return value;
}

/** Returns the value if it is a whole number within bounds. */
export function count(value: unknown, what: string, least: number, most: number): number {
  if (typeof value !== "number" || !Number.isInteger(value)) {
    throw new UsageError(`${what} must be a whole number, not ${shown(value)}`);
  }
  if (value < least || value > most) {
    throw new UsageError(`${what} must be between ${least} and ${most}, not ${value}`);
  }
  return value;
}

export function flag(value: unknown, what: string): boolean {
  if (typeof value !== "boolean") {
    throw new UsageError(`${what} must be true or false, not ${shown(value)}`);
  }
  return value;
}

/** Reads a duration: seconds, or a text such as "90s", "1h30m" or "7d". */
export function seconds(duration: unknown, what: string): number {
  let total: number;
  if (typeof duration === "number") {
    total = duration;
  } else if (typeof duration === "string") {
    if (!/^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(duration)) {
      throw new UsageError(`${what} must be a duration such as "90s", "24h" or "7d", not ${shown(duration)}`);
    }
    const parts = duration.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g);
    total = [...parts].reduce((sum, [, n, unit]) => sum + Number(n) * (units[unit ?? ""] ?? 0), 0);
  } else {
    throw new UsageError(`${what} must be seconds or a string, not ${typeName(duration)}`);
  }
  if (!(total >= 0 && total <= years)) {
    throw new UsageError(`${what} must be between 0 and ten years, not ${shown(duration)}`);
  }
  return total;
}

/**
 * Reads a duration that may be over: a negative one counts as 0. Such is the time until a recorded moment when the
 * function runs again.
 */
export const secondsLeft = (duration: unknown, what: string): number =>
  seconds(typeof duration === "number" && duration < 0 ? 0 : duration, what);

/** Returns a duration for the server, which refuses a wait of zero. */
export const waitSeconds = (duration: unknown, what: string): string =>
  `${Math.max(secondsLeft(duration, what), 0.001).toFixed(3)}s`;

/** Returns the milliseconds since 1970 of a `Date`. */
export function moment(value: unknown, what: string): number {
  if (!(value instanceof Date)) {
    throw new UsageError(`${what} must be a Date, not ${typeName(value)}`);
  }
  const at = value.getTime();
  if (!(at >= 0 && at < Date.UTC(9999, 0))) {
    throw new UsageError(`${what} must be between the years 1970 and 9998, not ${String(value)}`);
  }
  return at;
}

export function choices(value: unknown): string[] {
  if (!Array.isArray(value)) {
    throw new UsageError(`choices must be an array of strings, not ${shown(value)}`);
  }
  if (value.length < 1 || value.length > maxChoices) {
    throw new UsageError(`choices must have 1 to ${maxChoices} items, not ${value.length}`);
  }
  return value.map((one: unknown, i) => {
    const choice = exact(one, `choices[${i}]`);
    if (choice === "" || choice !== choice.trim()) {
      throw new UsageError(`choices[${i}] must not be empty or have spaces around it: ${shown(choice)}`);
    }
    return choice;
  });
}

/** Refuses options that do not exist, so that a misspelled one is not lost. */
export function options(value: unknown, what: string, known: readonly string[]): void {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new UsageError(`the options of ${what} must be an object, not ${shown(value)}`);
  }
  const unknown = Object.keys(value).find((k) => !known.includes(k));
  if (unknown !== undefined) {
    throw new UsageError(`${what} takes no '${unknown}'${similar(unknown, known)}`);
  }
}
