/** OpenTelemetry spans, if its API is installed. Attributes follow its semantic conventions. */
import { Stopped } from "./errors.js";
import type { Usage } from "./usage.js";
import type { Run } from "./wire.js";

type Attributes = Record<string, string | number>;

/** A span of OpenTelemetry, or one that does nothing. */
export interface Span {
  /** Calls a function whose own spans are below this one. */
  within<T>(work: () => T): T;
  usage(u: Usage): void;
  /** Notes how the attempt ended. */
  outcome(outcome: string): void;
  /** Starts a span below this one. */
  child(name: string, attributes: Attributes): Span;
  end(error?: unknown): void;
}

export const noSpan: Span = {
  within: (work) => work(),
  usage: () => undefined,
  outcome: () => undefined,
  child: () => noSpan,
  end: () => undefined,
};

/** Starts the span of a run. */
export type StartSpan = (run: Run) => Span;

const noTracing: StartSpan = () => noSpan;

/** The part of `@opentelemetry/api` that the library uses. */
interface Api {
  readonly ROOT_CONTEXT: object;
  readonly trace: {
    getTracer(name: string): Tracer;
    setSpan(context: object, span: OtelSpan): object;
  };
  readonly context: { with<T>(context: object, work: () => T): T };
  readonly propagation: { extract(context: object, carrier: object): object };
}

interface Tracer {
  startSpan(name: string, options: { attributes: Attributes }, context: object): OtelSpan;
}

interface OtelSpan {
  setAttributes(attributes: Attributes): void;
  setStatus(status: { code: number; message: string }): void;
  recordException(error: Error): void;
  end(): void;
}

const errorCode = 2;

/** Returns what traces runs with OpenTelemetry. What exports the spans is the program's choice. */
export async function openTracing(): Promise<StartSpan> {
  const name = "@opentelemetry/api"; // not a literal, so that the package needs no types of it
  let api: Api;
  try {
    api = (await import(name)) as Api;
  } catch {
    return noTracing;
  }
  const tracer = api.trace.getTracer("a2ad");
  return (run) => {
    const attributes = {
      "gen_ai.operation.name": "invoke_agent",
      "gen_ai.agent.name": run.agent,
      "gen_ai.conversation.id": run.contextId,
      "a2a.task.id": run.taskId,
      "a2ad.attempt": run.attempt,
      "a2ad.epoch": run.epoch,
    };
    return harmless((): Span => {
      const parent = api.propagation.extract(api.ROOT_CONTEXT, { traceparent: run.traceparent });
      return new OpenSpan(api, tracer, `invoke_agent ${run.agent}`, attributes, parent);
    }, noSpan);
  };
}

/** Calls OpenTelemetry. If it throws, or what processes the spans does, the tasks go on without. */
function harmless<T>(call: () => T, otherwise: T): T {
  try {
    return call();
  } catch {
    return otherwise;
  }
}

/** The numbers of a usage that have a name in the conventions of OpenTelemetry for GenAI. */
const conventions = [
  ["inputTokens", "gen_ai.usage.input_tokens"],
  ["outputTokens", "gen_ai.usage.output_tokens"],
  ["cachedInputTokens", "gen_ai.usage.cache_read.input_tokens"],
  ["reasoningTokens", "gen_ai.usage.reasoning.output_tokens"],
] as const;

class OpenSpan implements Span {
  readonly #span: OtelSpan;
  readonly #context: object;
  readonly #sums: Attributes = {};

  constructor(
    private readonly api: Api,
    private readonly tracer: Tracer,
    name: string,
    attributes: Attributes,
    parent: object,
  ) {
    this.#span = tracer.startSpan(name, { attributes }, parent);
    this.#context = api.trace.setSpan(parent, this.#span);
  }

  within<T>(work: () => T): T {
    const state = { begun: false };
    const begin = () => {
      state.begun = true;
      return work();
    };
    try {
      return this.api.context.with(this.#context, begin);
    } catch (err) {
      if (state.begun) {
        throw err; // of the work
      }
      return work();
    }
  }

  usage(u: Usage): void {
    for (const [member, attribute] of conventions) {
      const n = u[member];
      if (n !== undefined) {
        this.#sums[attribute] = Number(this.#sums[attribute] ?? 0) + n;
      }
    }
    this.#set({ ...this.#sums, ...(u.model !== undefined && { "gen_ai.request.model": u.model }) });
  }

  outcome(outcome: string): void {
    this.#set({ "a2ad.outcome": outcome });
  }

  #set(attributes: Attributes): void {
    harmless(() => {
      this.#span.setAttributes(attributes);
    }, undefined);
  }

  child(name: string, attributes: Attributes): Span {
    return harmless((): Span => new OpenSpan(this.api, this.tracer, name, attributes, this.#context), noSpan);
  }

  end(error?: unknown): void {
    harmless(() => {
      if (error instanceof Error && !(error instanceof Stopped)) {
        this.#span.recordException(error);
        this.#span.setStatus({ code: errorCode, message: `${error.name}: ${error.message}` });
      }
    }, undefined);
    harmless(() => {
      this.#span.end();
    }, undefined);
  }
}
