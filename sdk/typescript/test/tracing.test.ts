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

import type { Task } from "../src/index.js";
import { openTracing } from "../src/tracing.js";
import { decodeRun } from "../src/wire.js";
import { claimed } from "./fake.js";
import { attempt } from "./kit.js";

let broken = false;
const fail = () => {
  if (broken) {
    throw new Error("no exporter");
  }
};
const nothing = () => Promise.resolve();
const failing = { onStart: fail, onEnd: fail, forceFlush: nothing, shutdown: nothing };
const exporter = new InMemorySpanExporter();
const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter), failing] });
provider.register();
after(() => provider.shutdown());

const traceId = "0af7651916cd43dd8448eb211c80319c";
const run = claimed("t", { traceparent: `00-${traceId}-b7ad6b7169203331-01`, agent: "trip" });

void test("a run continues the trace of the client, and steps and their work are below it", async () => {
  const work = async (task: Task) => {
    const model = async () => {
      trace.getTracer("model").startSpan("chat").end();
      await task.usage({ model: "m", inputTokens: 5, outputTokens: 2 });
      await task.usage({ model: "m", inputTokens: 1, reasoningTokens: 1 });
    };
    await task.step("ask", model);
    await task.usage({ model: "n", cachedInputTokens: 3 });
    await task
      .step("fails", () => {
        throw new RangeError("no stock");
      })
      .catch(() => undefined);
  };
  const span = (await openTracing())(decodeRun(run, 0));
  await attempt(work, run, { span });
  span.end();
  assert.equal(trace.getSpan(context.active()), undefined);

  const spans = new Map(exporter.getFinishedSpans().map((s): [string, ReadableSpan] => [s.name, s]));
  const named = (name: string) => spans.get(name) ?? assert.fail(`no span ${name} in ${[...spans.keys()].join()}`);
  const top = named("invoke_agent trip");
  const step = named("step ask");
  assert.equal(top.spanContext().traceId, traceId);
  assert.equal(top.parentSpanContext?.spanId, "b7ad6b7169203331");
  assert.equal(step.parentSpanContext?.spanId, top.spanContext().spanId);
  assert.equal(named("chat").parentSpanContext?.spanId, step.spanContext().spanId);
  assert.equal(named("step fails").status.message, "StepError: fails: RangeError: no stock");
  assert.deepEqual(step.attributes, {
    "a2ad.step": "ask#1",
    "gen_ai.request.model": "m",
    "gen_ai.usage.input_tokens": 6,
    "gen_ai.usage.output_tokens": 2,
    "gen_ai.usage.reasoning.output_tokens": 1,
  });
  assert.deepEqual(top.attributes, {
    "gen_ai.operation.name": "invoke_agent",
    "gen_ai.agent.name": "trip",
    "gen_ai.conversation.id": "c",
    "a2a.task.id": "t",
    "a2ad.attempt": 1,
    "a2ad.epoch": 1,
    "a2ad.outcome": "finished",
    "gen_ai.request.model": "n",
    "gen_ai.usage.cache_read.input_tokens": 3,
  });
});

void test("what fails in the processing of spans is no matter of the task", async (t) => {
  const startSpan = await openTracing();
  broken = true;
  t.after(() => (broken = false));
  const refuses = startSpan(decodeRun(run, 0));
  refuses.end();
  broken = false;
  const span = startSpan(decodeRun(run, 0));
  const work = async (task: Task) => {
    broken = true;
    return await task.step("x", () => 1);
  };
  assert.equal((await attempt(work, run, { span })).ending.outcome, "finished");
  span.end();
  t.mock.method(context, "with", fail);
  assert.equal((await attempt(work, run, { span })).ending.outcome, "finished");
});
