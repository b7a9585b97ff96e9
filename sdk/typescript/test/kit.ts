// What several tests need: attempts without a server, and the lines of a log and of a file.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { execute, type AgentFunction, type Ending } from "../src/agent.js";
import type { Logger } from "../src/log.js";
import type { Reported } from "../src/memory.js";
import { Session, type SessionOptions } from "../src/session.js";
import { decodeRun } from "../src/wire.js";

/** Something that TypeScript would refuse too. JavaScript would not. */
// eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters -- the caller says what it is
export const any = <T = never>(value: unknown): T => value as T;

export const never = (): Promise<never> => new Promise(() => undefined);

/** Something that a test waits for. */
export class Gate {
  #open: () => void = () => undefined;
  readonly opened = new Promise<void>((resolve) => (this.#open = resolve));

  open(): void {
    this.#open();
  }
}

export interface Line extends Record<string, unknown> {
  level: string;
  msg: string;
}

/** Keeps what is logged. */
export class Log implements Logger {
  readonly lines: Line[] = [];
  readonly debug = this.#at("debug");
  readonly info = this.#at("info");
  readonly warn = this.#at("warn");
  readonly error = this.#at("error");

  #at(level: string) {
    return (msg: string, fields: Record<string, unknown>) => {
      this.lines.push({ level, msg, ...fields });
    };
  }

  /** Returns the messages of warnings and errors. */
  get problems(): string[] {
    return this.lines.flatMap(({ level, msg }) => (level === "warn" || level === "error" ? [msg] : []));
  }
}

/** Returns FILE:LINE of the first occurrence of some code in a compiled test, as errors name it. */
export function lineOf(file: string, code: string): string {
  const path = fileURLToPath(file);
  const [before = "", ...rest] = readFileSync(path, "utf8").split(code);
  if (rest.length === 0) {
    throw new Error(`${path} does not contain ${code}`);
  }
  return `${path}:${before.split("\n").length}`;
}

export const said = (messageId: string, text: string): object => ({ messageId, role: "ROLE_USER", parts: [{ text }] });

export interface Attempted {
  readonly ending: Ending;
  /** What reached the server. */
  readonly events: Reported[];
  readonly raw: string[];
  readonly log: Log;
}

/** Runs one attempt at a task. `run` are members of the run as the server sends it. */
export async function attempt(
  agent: AgentFunction,
  run: Record<string, unknown> = {},
  options: SessionOptions = {},
): Promise<Attempted> {
  const raw: string[] = [];
  const log = new Log();
  const report = (_: unknown, events: readonly string[]) => {
    raw.push(...events);
    return Promise.resolve(false);
  };
  const decoded = decodeRun({ taskId: "t", epoch: 1, messages: [said("m", "x")], ...run }, 0);
  const session = new Session(decoded, { report }, { logger: log, ...options });
  const replay = options.replay ?? true;
  const ending = await execute({ name: "a", run: agent, concurrency: 1, replay, where: "" }, session);
  session.close();
  return { ending, events: raw.map((e) => JSON.parse(e) as Reported), raw, log };
}
