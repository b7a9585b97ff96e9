// Spans, with the SDK of OpenTelemetry.
import assert from "node:assert/strict";
import { after, test } from "node:test";

import { context, trace } from "@opentelemetry/api";
import {
  InMemorySpanExporter,
  NodeTracerProvider,
  SimpleSpanProcessor,
  type ReadableSpan,
} from "@opentelemetry/sdk-trace-node";

import { execute } from "../src/agent.js";
import { lineLogger } from "../src/log.js";
import { Session } from "../src/session.js";
import type { Task } from "../src/task.js";
import { openTracing } from "../src/tracing.js";
import type { Run } from "../src/wire.js";

const exporter = new InMemorySpanExporter();
const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
provider.register();
after(() => provider.shutdown());

const traceId = "0af7651916cd43dd8448eb211c80319c";
const aRun: Run = {
  ...{ taskId: "t", contextId: "c", contextKey: "k", tenant: "", owner: "", agent: "trip", epoch: 3, attempt: 2 },
  ...{ messages: [{ messageId: "m", parts: [{ text: "x" }] }], leaseSeconds: 30 },
  traceparent: `00-${traceId}-b7ad6b7169203331-01`,
};

void test("a run continues the trace of the client, and steps and their work are below it", async () => {
  const session = new Session(aRun, { report: () => Promise.resolve(false) }, true);
  const work = async (task: Task) => {
    await task.step("model", async () => {
      trace.getTracer("model").startSpan("chat").end();
      await task.usage({ model: "gpt-5", inputTokens: 10, outputTokens: 2 });
      await task.usage({ model: "gpt-5", inputTokens: 5, cachedInputTokens: 4 });
    });
    await task.step("fails", () => {
      throw new Error("no stock");
    });
  };
  const span = (await openTracing())(session.run);
  const quiet = lineLogger(() => undefined);
  const ending = await execute({ name: "trip", run: work, concurrency: 1, replay: true }, session, quiet, span);
  span.end(ending.reason);
  assert.equal(trace.getSpan(context.active()), undefined);

  const spans = new Map(exporter.getFinishedSpans().map((s): [string, ReadableSpan] => [s.name, s]));
  const named = (name: string) => spans.get(name) ?? assert.fail(`no span ${name} in ${[...spans.keys()].join()}`);
  const run = named("invoke_agent trip");
  assert.equal(run.spanContext().traceId, traceId);
  assert.equal(run.parentSpanContext?.spanId, "b7ad6b7169203331");
  assert.equal(run.attributes["gen_ai.agent.name"], "trip");
  assert.deepEqual([run.attributes["a2a.task.id"], run.attributes["a2ad.attempt"]], ["t", 2]);
  assert.deepEqual([run.status.code, run.status.message], [2, "fails: Error: no stock"]);

  const model = named("step model");
  assert.equal(model.parentSpanContext?.spanId, run.spanContext().spanId);
  assert.equal(named("chat").parentSpanContext?.spanId, model.spanContext().spanId);
  const { attributes } = model;
  assert.deepEqual(
    [attributes["gen_ai.request.model"], attributes["gen_ai.usage.input_tokens"]],
    ["gpt-5", 15],
  );
  assert.deepEqual(
    [attributes["gen_ai.usage.output_tokens"], attributes["gen_ai.usage.cache_read.input_tokens"]],
    [2, 4],
  );
  assert.equal(named("step fails").status.message, "Error: no stock");
});
