/**
 * Run an agent without a server: in memory, with fake time, and with crashes at any request.
 *
 * ```ts
 * import { crashEverywhere, run } from "@a2ad/worker/testing";
 *
 * const result = await run(trip, "Lyon", { answers: ["yes"] });
 * assert.equal(result.state, "completed");
 * await crashEverywhere(trip, "Lyon", { answers: ["yes"] });
 * ```
 *
 * @packageDocumentation
 */
import type { AgentFunction } from "./agent.js";
import { options as checkOptions } from "./check.js";
import { A2adError, misuse, UsageError } from "./errors.js";
import { isFunction, type Json, typeName } from "./json.js";
import type { Logger } from "./log.js";
import type { Event } from "./memory.js";
import { difference, equal, outcome } from "./outcome.js";
import { caller } from "./place.js";
import { TestServer, type Crashes } from "./testserver.js";
import type { Usage } from "./usage.js";
import type { Artifact, Recorded } from "./wire.js";

export type { Event } from "./memory.js";
export { Stuck, WrongAnswer } from "./testserver.js";
export type { Recorded } from "./wire.js";

/** What a client or another agent says: a text, a `Message`, or a value that becomes a data part. */
export type Said = string | number | boolean | object | null;

export interface TestOptions {
  /** The client's answers to questions, in order, or a function of the question. */
  answers?: readonly Said[] | ((question: string) => Said | undefined);
  /** The values of signals, by name. */
  signals?: Record<string, unknown>;
  /** What other agents answer, by name: a text, data, or a function of the text that they get. */
  calls?: Record<string, Said | ((text: string) => Said)>;
  /** How many attempts the agent gets at most; default 5. */
  maxAttempts?: number;
  /** Whether the function is one for `Worker.handler`. */
  handler?: boolean;
  /** Gets the log of the library; default: nothing is logged. */
  logger?: Logger;
}

/** The outcome of a task. */
export interface Result {
  /** `completed`, `failed` or `rejected`. */
  state: string;
  /** The text of the last message, or empty. */
  text: string;
  /** The data of the last message. */
  data: Json | undefined;
  artifacts: Record<string, Artifact>;
  /** By key, in the order in which they were recorded. Calls and waits are steps, too. */
  steps: Record<string, Recorded>;
  questions: string[];
  /** How often the agent ran, including after waits. */
  attempts: number;
  /** Seconds of fake time that the task took. */
  elapsed: number;
  /** Sums by model. Usage without a model is under "". */
  usage: Record<string, Omit<Usage, "model">>;
  /** The events that a client sees, in order. */
  events: Event[];
}

/** A crash changed the outcome. The text says which, and what differs. */
export class Difference extends A2adError {
  override name = "Difference";
}

const cause = `Likely cause: code outside steps ran again and did something else than before.
Read the time, random numbers, files and other services inside a step.`;
const testOptions = ["answers", "signals", "calls", "maxAttempts", "handler", "logger"];

/**
 * Gives an agent's function a task, and returns the outcome.
 *
 * The waits of the library take no time: the fake clock advances. Others do, such as a timer or a request in a step. It
 * throws UsageError for a mistake in the agent, Stuck if the task cannot continue, and WrongAnswer for an answer that
 * the server would refuse.
 */
export async function run(agent: AgentFunction, message: Said, options: TestOptions = {}): Promise<Result> {
  check(agent, options, "run", testOptions);
  return await new TestServer(agent, message, options, caller(), crashAt(0, false)).run();
}

/**
 * Checks that a crash at any request to the server does not change the outcome.
 *
 * It runs the agent once without a crash, and returns that result. It also runs the agent twice for each request: with
 * a crash before the server has stored it, and after. It throws Difference if the state, the last message, the
 * artifacts, the usage or the keys of the steps differ. The order of the steps counts within each branch of `gather`,
 * not between branches. `compare` returns what to compare instead. The errors are also those of `run`.
 */
export async function crashEverywhere(
  agent: AgentFunction,
  message: Said,
  options: TestOptions & { compare?: (result: Result) => unknown } = {},
): Promise<Result> {
  check(agent, options, "crashEverywhere", [...testOptions, "compare"]);
  const { compare: look = outcome } = options;
  const where = caller();
  const once = (crashes: Crashes) => new TestServer(agent, message, options, where, crashes).run();
  const first = crashAt(0, false);
  const expected = await once(first);
  for (let at = 1; at <= first.requests; at++) {
    for (const stored of [false, true]) {
      const crashes = crashAt(at, stored);
      const got = await once(crashes);
      if (!equal(look(got), look(expected))) {
        throw new Difference(
          `a crash ${stored ? "after" : "before"} the server stored request ${at} changed the outcome.\n` +
            `The request: ${crashes.what}\n${difference(look(expected), look(got))}\n${cause}`,
        );
      }
    }
  }
  return expected;
}

const crashAt = (at: number, stored: boolean): Crashes => ({ at, stored, requests: 0, what: "" });

function check(agent: unknown, options: TestOptions, what: string, known: readonly string[]): void {
  if (!isFunction(agent)) {
    throw misuse(`the agent must be a function, not ${typeName(agent)}`);
  }
  try {
    checkOptions(options, what, known);
  } catch (err) {
    throw err instanceof UsageError ? err.place(caller()) : err;
  }
}
