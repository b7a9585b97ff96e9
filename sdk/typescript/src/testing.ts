/**
 * Run an agent without a server: in memory, with fake time, and with crashes anywhere.
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
import { A2adError } from "./errors.js";
import type { Event } from "./stored.js";
import { TestServer, type Crashes } from "./testserver.js";
import { checkOptions } from "./values.js";
import type { Artifact, Json, Message, Part, Recorded, Usage } from "./wire.js";

export type { Event } from "./stored.js";
export { Stuck } from "./testserver.js";
export type { Recorded } from "./wire.js";

/** What a client or another agent says: a text, a `Message`, or a value that becomes a data part. */
export type Said = string | Message | Exclude<Json, string>;

export interface TestOptions {
  /** The client's answers to questions, in order, or a function of the question. */
  answers?: readonly Said[] | ((question: string) => Said | undefined);
  /** The values of signals, by name. */
  signals?: Record<string, Json>;
  /** What other agents answer: a text, data, or a function of the text that they get. */
  calls?: Record<string, Said | ((text: string) => Said)>;
  /** How often the agent is tried; default 5. */
  maxAttempts?: number;
  /** The function is for messages: see `Worker.handler`. */
  handler?: boolean;
}

/** What became of a task. */
export interface Result {
  /** `completed`, `failed` or `rejected`. */
  state: string;
  /** The text of the last status. */
  text: string;
  /** The data of the last status. */
  data: Json | undefined;
  artifacts: Record<string, Artifact>;
  /** By key, in the order in which they were recorded. */
  steps: Record<string, Recorded>;
  questions: string[];
  attempts: number;
  /** Seconds of fake time that the task took. */
  elapsed: number;
  /** What `usage` has reported, by model. A usage without a model is under "". */
  usage: Record<string, Omit<Usage, "model">>;
  /** The log, as a client sees it. */
  events: Event[];
}

/** A crash changed what the agent did. */
export class Difference extends A2adError {
  override name = "Difference";
}

const testOptions = ["answers", "signals", "calls", "maxAttempts", "handler"];

/**
 * Gives an agent's function a task, and returns what became of it. Waits take no time; the fake clock moves on. It throws
 * UsageError, with the line, if the agent calls the library in a way that cannot work.
 */
export async function run(agent: AgentFunction, message: Said, options: TestOptions = {}): Promise<Result> {
  checkOptions(options, "run", testOptions);
  return await new TestServer(agent, message, options, { at: 0, stored: false, requests: 0 }).run();
}

/**
 * Shows that the agent survives a crash at each point at which something is recorded.
 *
 * It runs the agent once without a crash. Then it runs it again and again; each time the worker dies at another request
 * to the server, once before the server has stored it and once after. It throws Difference if the state, the last
 * message, the artifacts, the usage or the keys of the steps are not those of the first run. `compare` returns what to compare in
 * their place.
 *
 * @returns the result of the first run
 */
export async function crashEverywhere(
  agent: AgentFunction,
  message: Said,
  options: TestOptions & { compare?: (result: Result) => unknown } = {},
): Promise<Result> {
  checkOptions(options, "crashEverywhere", [...testOptions, "compare"]);
  const look = (r: Result) => JSON.stringify((options.compare ?? outcome)(r));
  const first: Crashes = { at: 0, stored: false, requests: 0 };
  const expected = await new TestServer(agent, message, options, first).run();
  for (let at = 1; at <= first.requests; at++) {
    for (const stored of [false, true]) {
      const got = await new TestServer(agent, message, options, { at, stored, requests: 0 }).run();
      if (look(got) !== look(expected)) {
        throw new Difference(
          `a crash ${stored ? "after" : "before"} request ${at} of ${first.requests} was stored changed the outcome:\n` +
            `  without: ${look(expected)}\n  with:    ${look(got)}`,
        );
      }
    }
  }
  return expected;
}

function outcome(r: Result): unknown {
  const artifacts = Object.values(r.artifacts).map((a) => [a.id, a.text || (a.parts as Part[])]);
  return [r.state, r.text, r.data, artifacts, r.usage, Object.keys(r.steps)];
}
