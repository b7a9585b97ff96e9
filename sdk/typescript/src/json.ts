import { createHash } from "node:crypto";
import { types } from "node:util";

import { UsageError } from "./errors.js";

/** A value that has a form in JSON. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/**
 * What a value becomes when it is recorded as JSON: a `Date` becomes a string, and `undefined` becomes null. A member
 * that is `undefined` is left out.
 */
export type Recordable<T> = unknown extends T
  ? T
  : [T] extends [Json]
    ? T
    : T extends string | number | boolean | null // also with a brand
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

/** Bytes of one recorded value. */
const maxResult = 1 << 20;
/** Levels of nesting of a value. An event has at most 64, and contains the value. */
const maxDepth = 56;
/** Characters of an input that is sent itself. Of a larger one, only the hash is sent. */
const maxInput = 16 << 10;

/** A value has no form in JSON. */
class Unfit extends Error {}

/** Returns the value as JSON, and that JSON decoded. `what` names it in the error. */
export function plain(value: unknown, what: string, most = maxResult): [text: string, value: Json] {
  let text;
  try {
    text = new Encoder().encode(value, 0);
  } catch (err) {
    if (err instanceof UsageError) {
      throw err; // a call that was not awaited
    }
    if (err instanceof TooDeep) {
      throw new UsageError(`${what} is nested deeper than ${maxDepth} levels, or contains itself`);
    }
    const own = err instanceof Unfit ? {} : { cause: err }; // thrown by a method of the value
    throw new UsageError(
      `${what} cannot be recorded as JSON: ${err instanceof Error ? err.message : String(err)}`,
      own,
    );
  }
  const size = Buffer.byteLength(text);
  if (size > most) {
    throw new UsageError(`${what} is ${size} bytes of JSON; at most ${most} can be recorded`);
  }
  return [text, JSON.parse(text) as Json];
}

/**
 * Returns the JSON of a value that was checked before. In order, it is that of the other libraries, byte for byte, so a
 * worker in another language finds the same hash and can continue a task.
 */
export function compact(value: unknown, inOrder = false): string {
  return new Encoder(Number.POSITIVE_INFINITY, inOrder).encode(value, 0);
}

/** Returns the SHA-256 of JSON, as the server computes it. Without JSON it is empty. */
export function digest(text: string | undefined): string {
  return text === undefined ? "" : createHash("sha256").update(text).digest("hex");
}

/** Returns what to send as the input of a step or a wait, so that another one is detected. */
export function fingerprint(value: unknown): string {
  return limited((inOrder) => compact(value, inOrder));
}

/** Returns JSON in order, or its hash if it is large. If it is too deep to be sent, no library puts it in order. */
function limited(encoded: (inOrder: boolean) => string): string {
  const text = encoded(true);
  if (depth(text) > maxDepth) {
    return compact({ sha256: digest(encoded(false)) });
  }
  return characters(text) <= maxInput ? text : compact({ sha256: digest(text) });
}

/** Returns the JSON of members and of an input that is JSON already. */
export function withInput(members: Record<string, unknown>, sent: string | undefined): string {
  const text = compact(members);
  return sent === undefined ? text : `${text.slice(0, -1)},"input":${sent}}`;
}

/** Returns the input to send for the arguments of a step, or undefined if it has none. */
export function inputs(args: readonly unknown[]): string | undefined {
  return args.length === 0
    ? undefined
    : limited((inOrder) => `{"args":[${args.map((value) => argument(value, inOrder)).join()}]}`);
}

/** Returns the JSON of a value that is only compared. What has no JSON form is compared by the name of its type. */
function argument(value: unknown, inOrder: boolean): string {
  try {
    return new Comparer(Number.POSITIVE_INFINITY, inOrder).encode(value, 0);
  } catch {
    return compact({ type: typeName(value) });
  }
}

/** Returns decoded JSON in order, with the digits of each `bigint`. */
export const inOrder = (value: unknown): string => new Comparer(Number.POSITIVE_INFINITY, true).encode(value, 0);

/** Reads JSON. Integers that may be beyond 2⁵³, which `JSON.parse` rounds, become a `bigint`. */
export function parseExactly(text: string): unknown {
  const literals = /"(?:[^"\\]|\\.)*"|-?\d{16,}(?![\d.e])/g;
  const marked = text.replace(literals, (t) => (t.startsWith('"') ? t : `"\\u0000${t}"`));
  const isMarked = (v: unknown): v is string => typeof v === "string" && /^\0-?\d+$/.test(v);
  return JSON.parse(marked, (_, v: unknown) => (isMarked(v) ? BigInt(v.slice(1)) : v));
}

/** Returns the first `most` characters of a text, with those replaced that cannot be sent. */
export function clean(text: string, most: number): string {
  return text.slice(0, most).toWellFormed().replaceAll("\0", "\ufffd");
}

/** Reports whether a value can be called and then does its work. The call of a generator function does nothing. */
export function isFunction(value: unknown): value is (...args: never[]) => unknown {
  return typeof value === "function" && !types.isGeneratorFunction(value);
}

/** Returns the name of the type of a value, for people. */
export function typeName(value: unknown): string {
  if (types.isGeneratorFunction(value)) {
    return "a generator function";
  }
  if (typeof value === "function") {
    return value.name === "" ? "function" : value.name;
  }
  if (typeof value !== "object" || value === null) {
    return value === null ? "null" : typeof value;
  }
  const { constructor } = value as { constructor?: unknown };
  return typeof constructor === "function" ? constructor.name : "object";
}

/** Returns the first characters of a value, as an error message shows it. */
export function shown(value: unknown): string {
  if (typeof value === "string") {
    return `'${value.slice(0, 60)}'`;
  }
  return typeof value === "object" && value !== null ? typeName(value) : String(value).slice(0, 60);
}

class TooDeep extends Error {}

/**
 * Writes values as `JSON.stringify` does, but for the numbers, which have the form of Python, and for what it loses.
 */
class Encoder {
  readonly #path: (string | number)[] = [];

  /** In order, the members of each object are sorted by the Unicode characters of their names. */
  constructor(
    private readonly most = maxDepth,
    private readonly inOrder = false,
  ) {}

  encode(value: unknown, level: number): string {
    switch (typeof value) {
      case "string":
        return JSON.stringify(value.toWellFormed());
      case "number":
        return this.#number(value);
      case "boolean":
        return String(value);
      case "undefined":
        return "null";
      case "object":
        return value === null ? "null" : this.object(value, level);
      default:
        return this.other(value);
    }
  }

  #number(n: number): string {
    if (!Number.isFinite(n)) {
      this.refuse(`${n} is not a JSON number; use null, for example`);
    }
    const size = Math.abs(n);
    if (size >= 2 ** 53 && size < 1e21) {
      return BigInt(n).toString();
    }
    if (size < 1e-4 && size > 0) {
      return n.toExponential().replace(/e-(\d)$/, "e-0$1");
    }
    return JSON.stringify(n);
  }

  protected object(value: object, level: number): string {
    if (level >= this.most) {
      throw new TooDeep();
    }
    if (types.isBoxedPrimitive(value)) {
      return this.encode(value.valueOf(), level);
    }
    if (losesContent(value)) {
      return this.other(value);
    }
    if ("toJSON" in value && typeof value.toJSON === "function") {
      return this.encode((value.toJSON as (key: string) => unknown)(""), level);
    }
    if (Array.isArray(value)) {
      return `[${Array.from(value, (v: unknown, i) => this.#within(i, v, level)).join()}]`;
    }
    const members = Object.entries(value).filter(([, v]) => v !== undefined);
    if (this.inOrder) {
      members.sort(([a], [b]) => compareCharacters(a, b));
    }
    return `{${members.map(([k, v]) => `${this.encode(k, level)}:${this.#within(k, v, level)}`).join()}}`;
  }

  #within(name: string | number, value: unknown, level: number): string {
    this.#path.push(name);
    const text = this.encode(value, level + 1);
    this.#path.pop();
    return text;
  }

  /** Returns the JSON of a value that `JSON.stringify` would leave out or reduce to nothing. */
  protected other(value: unknown): string {
    const kind = typeof value === "function" ? `the function ${value.name || "here"}` : typeName(value);
    return this.refuse(`${kind} has no JSON form; convert it to a string, number, array or object`);
  }

  protected refuse(why: string): never {
    const path = this.#path.map((p) => `[${JSON.stringify(p)}]`).join("");
    throw new Unfit(path === "" ? why : `at ${path}, ${why}`);
  }
}

/** Also writes what has no JSON form: at least the name of its type. */
class Comparer extends Encoder {
  protected override object(value: object, level: number): string {
    if (level > 1000) {
      throw new TooDeep();
    }
    return super.object(value, level);
  }

  protected override other(value: unknown): string {
    if (typeof value === "bigint") {
      return value.toString();
    }
    if (value instanceof Uint8Array) {
      return compact({ sha256: createHash("sha256").update(value).digest("hex") });
    }
    return compact({ type: typeName(value) });
  }
}

/**
 * Reports whether `JSON.stringify` loses what an object has: a promise that the agent did not await, a map, or an
 * object without visible members, such as a `Response` of `fetch` or a generator.
 */
function losesContent(v: object): boolean {
  return (
    types.isPromise(v) ||
    types.isMap(v) ||
    types.isSet(v) ||
    types.isRegExp(v) ||
    types.isNativeError(v) ||
    types.isAnyArrayBuffer(v) ||
    ArrayBuffer.isView(v) ||
    hidesMembers(v)
  );
}

/** Reports whether an object is of a class and has no members of its own. */
function hidesMembers(v: object): boolean {
  const prototype = Object.getPrototypeOf(v) as object | null;
  const isPlain = prototype === null || Object.getPrototypeOf(prototype) === null; // also of another realm
  return !isPlain && !Array.isArray(v) && !("toJSON" in v) && Object.keys(v).length === 0;
}

/** Compares texts by their Unicode characters. `<` compares UTF-16 units: there 🚆 comes before U+FFFD. */
function compareCharacters(a: string, b: string): number {
  let same = 0;
  while (same < a.length && a[same] === b[same]) {
    same++;
  }
  return (a.codePointAt(same) ?? -1) - (b.codePointAt(same) ?? -1);
}

/** Counts Unicode characters, as the other libraries do. */
function characters(text: string): number {
  if (text.length <= maxInput) {
    return text.length;
  }
  return text.length - (text.match(/[\ud800-\udbff][\udc00-\udfff]/g)?.length ?? 0);
}

/** Returns the depth of JSON, or 0 if it has too few brackets to be too deep. */
function depth(text: string): number {
  if ((text.match(/[[{]/g)?.length ?? 0) <= maxDepth) {
    return 0;
  }
  let now = 0;
  let most = 0;
  let quoted = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (quoted) {
      i += c === "\\" ? 1 : 0;
      quoted = c !== '"';
    } else if (c === '"') {
      quoted = true;
    } else if (c === "[" || c === "{") {
      most = Math.max(most, ++now);
    } else if (c === "]" || c === "}") {
      now--;
    }
  }
  return most;
}
