import { UsageError } from "./errors.js";

const levels = ["debug", "info", "warn", "error"] as const;

type Write = (message: string, fields: Record<string, unknown>) => void;

/**
 * Writes what happens: a message, and fields such as `agent`, `task_id` and `err`. `console` fits, and so do the
 * loggers that take their arguments in this order.
 */
export interface Logger {
  debug: Write;
  info: Write;
  warn: Write;
  error: Write;
}

const nothing = () => undefined;
export const silent: Logger = { debug: nothing, info: nothing, warn: nothing, error: nothing };

/**
 * Returns a logger for people or programs that read stderr. `format` is `text` or `json`, and `level` the least level
 * that is written.
 */
export function stderrLogger(format = "text", level = "info"): Logger {
  if (format !== "text" && format !== "json") {
    throw new UsageError(`A2AD_LOG_FORMAT must be text or json, not '${format}'`);
  }
  const least = ["debug", "info", "warn", "error"].indexOf(level.toLowerCase().replace("warning", "warn"));
  if (least < 0) {
    throw new UsageError(`A2AD_LOG_LEVEL must be debug, info, warn or error, not '${level}'`);
  }
  process.stderr.off("error", nothing).on("error", nothing); // if its reader has ended, runs go on
  return lineLogger((line) => process.stderr.write(line), format === "json", least);
}

/** Returns a logger that never fails. A line that the given one cannot write goes to stderr. */
export function reliable(logger: Logger): Logger {
  const fallback = lineLogger((line) => process.stderr.write(line));
  const methods = logger as unknown as Record<string, (...line: Parameters<Write>) => unknown>; // may be async
  const line = (level: (typeof levels)[number]): [string, Write] => [
    level,
    (msg, fields) => {
      const write = async () => await methods[level]?.(msg, fields);
      write().catch(() => {
        fallback[level](msg, fields);
      });
    },
  ];
  return Object.fromEntries(levels.map(line)) as unknown as Logger;
}

/** Writes lines such as `2026-12-24T08:00:00.000Z INFO run ended: finished agent=trip`, or JSON objects. */
export function lineLogger(write: (line: string) => void, json = false, least = 0): Logger {
  const line = (level: (typeof levels)[number], i: number): [string, Write] => [
    level,
    i < least
      ? nothing
      : (msg, fields) => {
          write(`${(json ? jsonLine : textLine)(new Date().toISOString(), level.toUpperCase(), msg, fields)}\n`);
        },
  ];
  return Object.fromEntries(levels.map(line)) as unknown as Logger;
}

function jsonLine(time: string, level: string, msg: string, fields: Record<string, unknown>): string {
  return JSON.stringify({ time, level, msg, ...fields });
}

/** Returns a field as people read it. */
const shown = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

/** Returns one line: time, level, message, then key=value. A stack follows it. */
function textLine(time: string, level: string, msg: string, { err, ...fields }: Record<string, unknown>): string {
  const pairs = Object.entries(fields).map(([k, v]) => (v === undefined ? "" : ` ${k}=${shown(v)}`));
  return `${time} ${level} ${msg}${pairs.join("")}${typeof err === "string" ? `\n${err}` : ""}`;
}
