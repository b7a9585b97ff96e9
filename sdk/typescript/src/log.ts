import { UsageError } from "./errors.js";
import { shown } from "./values.js";

/**
 * Writes what happens: a constant message, and fields such as `agent`, `task_id` and `err`. `console` fits, and so do
 * the loggers that take their arguments in this order.
 */
export interface Logger {
  info(message: string, fields: Record<string, unknown>): void;
  warn(message: string, fields: Record<string, unknown>): void;
  error(message: string, fields: Record<string, unknown>): void;
}

const levels = ["debug", "info", "warn", "error"];

/** Returns a logger for people or programs that read stderr. */
export function stderrLogger(format = "text", level = "info"): Logger {
  if (format !== "text" && format !== "json") {
    throw new UsageError(`A2AD_LOG_FORMAT must be text or json, not ${shown(format)}`);
  }
  const least = levels.indexOf(level.toLowerCase());
  if (least < 0) {
    throw new UsageError(`A2AD_LOG_LEVEL must be debug, info, warn or error, not ${shown(level)}`);
  }
  return lineLogger((line) => process.stderr.write(line), format === "json", least);
}

/** Writes lines such as `2026-12-24T08:00:00.000Z INFO attempt ended agent=trip`, or JSON objects. */
export function lineLogger(write: (line: string) => void, json = false, least = 0): Logger {
  const line = (level: string) => (msg: string, fields: Record<string, unknown>) => {
    if (levels.indexOf(level) < least) {
      return;
    }
    const time = new Date().toISOString();
    const shownLevel = level.toUpperCase();
    const named = Object.entries(fields).map(([k, v]): [string, unknown] => [k, v instanceof Error ? v.stack : v]);
    if (json) {
      write(`${JSON.stringify({ time, level: shownLevel, msg, ...Object.fromEntries(named) })}\n`);
      return;
    }
    const pairs = named.filter(([, v]) => v !== undefined).map(([k, v]) => ` ${k}=${quoted(String(v))}`);
    write(`${time} ${shownLevel} ${msg}${pairs.join("")}\n`);
  };
  return { info: line("info"), warn: line("warn"), error: line("error") };
}

function quoted(text: string): string {
  return text === "" || /[\s"=]/.test(text) ? JSON.stringify(text) : text;
}
