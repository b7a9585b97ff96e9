// What the adapters of frameworks have in common.
import { createHash } from "node:crypto";

import type { Usage } from "./wire.js";

/** The name of the steps that are model calls. */
export const modelStep = "model";
/** The artifact to which the text of models is written. */
export const answerArtifact = "answer";

/**
 * Returns the name of the step that is a tool call.
 *
 * It contains the id that the model gave to the call. Tools of one answer run at once and in any order, so a number would
 * give the record of one call to another.
 */
export function toolStep(tool: string, callId: string): string {
  const name = `${tool}:${callId}`;
  if (Buffer.byteLength(name) <= 190) {
    return name;
  }
  return `${tool.slice(0, 40)}:${createHash("sha256").update(name).digest("hex")}`;
}

/** Returns a tool call as a person reads it: `refund(order: "A7")`. */
export function describeCall(tool: string, input: unknown): string {
  if (typeof input !== "object" || input === null || Array.isArray(input)) {
    return `${tool}(${input === undefined ? "" : JSON.stringify(input)})`;
  }
  const values = Object.entries(input).map(([k, v]) => `${k}: ${JSON.stringify(v)}`);
  return `${tool}(${values.join(", ")})`;
}

/** Returns the numbers of tokens that a model has reported. Some report none, or wrong ones. */
export function tokens(reported: { [K in keyof Usage]?: number | undefined }): Usage {
  return Object.fromEntries(Object.entries(reported).filter(([, n]) => Number.isSafeInteger(n) && Number(n) >= 0));
}

/** Lets steps overlap, but not with questions: a question ends the run, and steps that run then would be repeated. */
export class Gate {
  readonly #running = new Set<Promise<unknown>>();
  #asked: Promise<unknown> = Promise.resolve();

  /** Does work that other work may overlap. */
  async together<T>(work: () => Promise<T>): Promise<T> {
    const running = work();
    this.#running.add(running);
    try {
      return await running;
    } finally {
      this.#running.delete(running);
    }
  }

  /** Asks when the questions before have their answers, and no work runs. Questions keep the order of these calls. */
  async alone<X, T>(argument: X | PromiseLike<X>, ask: (argument: X) => Promise<T>): Promise<T> {
    const before = this.#asked;
    const asked = (async () => {
      await before;
      const x = await argument;
      while (this.#running.size > 0) {
        await Promise.allSettled(this.#running);
      }
      return await ask(x);
    })();
    this.#asked = asked.catch(() => undefined);
    return await asked;
  }
}
