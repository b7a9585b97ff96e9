import type * as OpenTelemetry from "@opentelemetry/api";

import type { Run, Usage } from "./wire.js";

/** A span of OpenTelemetry, or one that does nothing. */
export interface Span {
  /** Runs a function whose own spans are below this one. */
  within<T>(work: () => T): T;
  set(attributes: Record<string, string | number>): void;
  usage(u: Usage): void;
  /** Starts a span below this one. */
  child(name: string, attributes: Record<string, string | number>): Span;
  end(error?: string): void;
}

export const noSpan: Span = {
  within: (work) => work(),
  set: () => undefined,
  usage: () => undefined,
  child: () => noSpan,
  end: () => undefined,
};

/** Starts the span of a run. */
export type StartSpan = (run: Run) => Span;

export const noTracing: StartSpan = () => noSpan;

/** Returns what traces runs with OpenTelemetry, if its API is installed. What exports the spans is the agent's choice. */
export async function openTracing(): Promise<StartSpan> {
  let api: typeof OpenTelemetry;
  try {
    api = await import("@opentelemetry/api");
  } catch {
    return noTracing;
  }
  const tracer = api.trace.getTracer("@a2ad/worker");
  return (run) => {
    const carrier = run.traceparent === undefined ? {} : { traceparent: run.traceparent };
    const parent = api.propagation.extract(api.ROOT_CONTEXT, carrier);
    const attributes = {
      "gen_ai.operation.name": "invoke_agent",
      "gen_ai.agent.name": run.agent,
      "gen_ai.conversation.id": run.contextId,
      "a2a.task.id": run.taskId,
      "a2ad.attempt": run.attempt,
      "a2ad.epoch": run.epoch,
    };
    const kind = api.SpanKind.CONSUMER;
    const span = tracer.startSpan(`invoke_agent ${run.agent}`, { kind, attributes }, parent);
    return new OpenSpan(api, tracer, span, api.trace.setSpan(parent, span));
  };
}

/** The numbers of a usage that have a name in the conventions of OpenTelemetry for GenAI. */
const conventions = [
  ["inputTokens", "gen_ai.usage.input_tokens"],
  ["outputTokens", "gen_ai.usage.output_tokens"],
  ["cachedInputTokens", "gen_ai.usage.cache_read.input_tokens"],
  ["reasoningTokens", "gen_ai.usage.reasoning.output_tokens"],
] as const;

class OpenSpan implements Span {
  readonly #totals = new Map<string, number>();

  constructor(
    private readonly api: typeof OpenTelemetry,
    private readonly tracer: OpenTelemetry.Tracer,
    private readonly span: OpenTelemetry.Span,
    private readonly context: OpenTelemetry.Context,
  ) {}

  within<T>(work: () => T): T {
    return this.api.context.with(this.context, work);
  }

  set(attributes: Record<string, string | number>): void {
    this.span.setAttributes(attributes);
  }

  usage(u: Usage): void {
    if (u.model !== undefined) {
      this.span.setAttribute("gen_ai.request.model", u.model);
    }
    for (const [member, name] of conventions) {
      const n = u[member];
      if (n !== undefined) {
        const total = (this.#totals.get(name) ?? 0) + n;
        this.#totals.set(name, total);
        this.span.setAttribute(name, total);
      }
    }
  }

  child(name: string, attributes: Record<string, string | number>): Span {
    const span = this.tracer.startSpan(name, { attributes }, this.context);
    return new OpenSpan(this.api, this.tracer, span, this.api.trace.setSpan(this.context, span));
  }

  end(error?: string): void {
    if (error !== undefined) {
      this.span.setStatus({ code: this.api.SpanStatusCode.ERROR, message: error });
    }
    this.span.end();
  }
}
