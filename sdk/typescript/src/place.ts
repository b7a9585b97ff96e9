import { fileURLToPath } from "node:url";

const library = fileURLToPath(new URL(".", import.meta.url));
const frame = /^ +at (?:async )?(?:.*\()?((?:file:\/\/)?(?:\/|[A-Za-z]:[\\/]).*:\d+):\d+\)?$/;
/** Frames of a call site. Those of the library are few, because the agent calls it directly. */
const callDepth = 12;
/** Frames of the error of a mistake, which may be thrown deep in the library. */
const mistakeDepth = 50;

/** Where the agent's code called the library: FILE:LINE, or an empty text if that is not known. */
export class Place {
  readonly #trace: { stack?: string } = {};
  #text: string | undefined;

  /** Notes the place of the caller. It is cheap: the text is made only when it is needed. */
  constructor(depth = callDepth) {
    const limit = Error.stackTraceLimit;
    Error.stackTraceLimit = depth;
    Error.captureStackTrace(this.#trace);
    Error.stackTraceLimit = limit;
  }

  toString(): string {
    return (this.#text ??= innermost(this.#trace.stack ?? "", () => true));
  }
}

/** Returns FILE:LINE of the agent's code that called this library. */
export const caller = (): string => new Place(mistakeDepth).toString();

/**
 * Returns FILE:LINE of the innermost frame of the agent's code in an error. If all frames are those of installed
 * packages, it is the innermost one that is not ours.
 */
export function placeOf(err: unknown): string {
  const stack = traceOf(err);
  const own = innermost(stack, (file) => !file.includes("/node_modules/"));
  return own === "" ? innermost(stack, () => true) : own;
}

/** Returns the stack of an error, or an empty text. What was thrown may be anything, and have any members. */
export function traceOf(err: unknown): string {
  try {
    const stack: unknown = err instanceof Error ? err.stack : undefined;
    return typeof stack === "string" ? stack : "";
  } catch {
    return "";
  }
}

/** Returns the stack of an error from the innermost frame that is not the library's. */
export function stackOf(err: unknown): string {
  const lines = traceOf(err).split("\n");
  const isFrame = (line: string) => /^ +at /.test(line);
  const first = lines.findIndex(isFrame);
  return lines.filter((line, i) => i < first || !isFrame(line) || fileOf(line) !== undefined).join("\n");
}

function innermost(stack: string, fits: (file: string) => boolean): string {
  for (const line of stack.split("\n")) {
    const file = fileOf(line);
    if (file !== undefined && fits(file)) {
      return file;
    }
  }
  return "";
}

/** Returns the FILE:LINE of a line of a stack, unless it is Node's or this library's. */
function fileOf(line: string): string | undefined {
  const at = frame.exec(line)?.[1];
  if (at === undefined) {
    return undefined;
  }
  const file = pathOf(at);
  return file.startsWith(library) ? undefined : file;
}

function pathOf(at: string): string {
  try {
    return at.startsWith("file:") ? fileURLToPath(at) : at;
  } catch {
    return at; // the name of a script may be a URL that no file has
  }
}
