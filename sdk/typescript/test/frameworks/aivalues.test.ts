// The AI SDK: which answers, results, errors and questions are recorded, and how they come back.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

import { APICallError, generateText, isStepCount, jsonSchema, Output, streamText, ToolLoopAgent, type ToolSet } from "ai";
import { MockLanguageModelV4 } from "ai/test";
import { z } from "zod";

import { durable } from "../../src/ai.js";
import { Fail, type AgentFunction } from "../../src/index.js";
import { crashEverywhere, run } from "../../src/testing.js";
import { tokens } from "./fakeai.js";
import { cancelReaches } from "./scenario.js";

type Answer = Awaited<ReturnType<MockLanguageModelV4["doGenerate"]>>;
type Content = Answer["content"][number];

const call = (toolName: string, input: object): Content => ({
  ...{ type: "tool-call", toolName, toolCallId: `call-${toolName}`, input: JSON.stringify(input) },
});

/** A model that gives these answers one after the other, and notes what it was asked. */
function answers(...contents: Content[][]): MockLanguageModelV4 {
  return new MockLanguageModelV4({
    modelId: "fake",
    doGenerate: ({ prompt }) => {
      const content = contents[prompt.filter((m) => m.role === "assistant").length] ?? [];
      const unified = content.some((c) => c.type === "tool-call") ? "tool-calls" : "stop";
      const response = { id: "r", modelId: "fake-1", timestamp: new Date(1000), body: { secret: true } };
      return Promise.resolve({ content, finishReason: { unified, raw: undefined }, usage: tokens, warnings: [], response });
    },
  });
}

const askedOf = (model: MockLanguageModelV4) => JSON.stringify(model.doGenerateCalls.at(-1)?.prompt);

void test("tools fail, ask the client, and run at once", async () => {
  const fake = answers(
    [call("works", {}), call("picks", { of: 2 }), call("fails", {}), call("person", { question: "Which?" }), call("works2", {})],
    [{ type: "text", text: "done" }],
  );
  const used: string[] = [];
  const inputSchema = z.object({});
  const works = (name: string) => () => {
    used.push(name);
    return { at: new Date(0) };
  };
  // A schema that comes late must not change the order of the questions.
  const slowSchema = async () => {
    await turn();
    return { type: "object" as const, properties: { n: { type: "number" as const } }, required: ["n"] };
  };
  const shop: ToolSet = {
    works: { inputSchema, execute: works("works") },
    works2: { inputSchema, execute: works("works2") },
    fails: {
      inputSchema,
      execute: () => {
        used.push("fails");
        throw new RangeError("too far");
      },
    },
    person: { inputSchema: z.object({ question: z.string() }) },
    picks: { inputSchema: z.object({ of: z.number() }), outputSchema: jsonSchema(slowSchema) },
  };
  const agent: AgentFunction = async (task) => {
    const { model, tools } = durable(task, { artifact: null });
    const { text } = await generateText({ model: model(fake), tools: tools(shop), stopWhen: isStepCount(5), prompt: "x" });
    return text;
  };
  const options = { answers: (question: string) => (question === "Which?" ? "the red one" : { n: 7 }) };
  const result = await run(agent, "x", options);
  assert.deepEqual([result.text, result.questions], ["done", ["picks(of: 2)", "Which?"]]);
  assert.deepEqual(used.sort(), ["fails", "works", "works2"]);
  for (const told of ['"the red one"', "too far", "1970-01-01T00:00:00.000Z", '"value":{"n":7}']) {
    assert.ok(askedOf(fake).includes(told), `the model is not told ${told}: ${askedOf(fake)}`);
  }
  const compare = (r: { text: string; questions: string[]; steps: object }) => [r.text, r.questions, Object.keys(r.steps).sort()];
  await crashEverywhere(agent, "x", { ...options, compare });
});

void test("an error of the library ends the agent, although the AI SDK tells the model", async () => {
  const fake = answers([call("gives_up", {})], [{ type: "text", text: "done" }]);
  const shop: ToolSet = {
    gives_up: {
      inputSchema: z.object({}),
      execute: () => {
        throw new Fail("no such customer");
      },
    },
  };
  const result = await run(async (task) => {
    const { model, tools } = durable(task, { artifact: null });
    await generateText({ model: model(fake), tools: tools(shop), stopWhen: isStepCount(5), prompt: "x" });
  }, "x");
  assert.deepEqual([result.state, result.text], ["failed", "no such customer"]);
});

void test("streamText, objects and files get what is recorded", async () => {
  const picture: Content = { type: "file", mediaType: "image/png", data: { type: "data", data: new Uint8Array([1, 2]) } };
  const fake = answers([{ type: "reasoning", text: "hm" }, { type: "text", text: '{"n":7}' }, picture]);
  const seen: unknown[] = [];
  const agent: AgentFunction = async (task) => {
    const { model } = durable(task);
    const output = Output.object({ schema: z.object({ n: z.number() }) });
    const stream = streamText({ model: model(fake), output, prompt: "x" });
    const { n } = await stream.output;
    const [file] = await stream.files;
    const { reasoningText, response, usage } = await stream.finalStep;
    seen.push([n, reasoningText, file?.base64, response.timestamp, usage.inputTokens]);
    await task.sleep("1h");
    return String(n);
  };
  const result = await crashEverywhere(agent, "x");
  assert.deepEqual([result.text, result.artifacts], ["7", {}]); // the JSON is for the program
  for (const one of seen) {
    assert.deepEqual(one, [7, "hm", "AQI=", new Date(1000), 10]);
  }
  assert.ok(!JSON.stringify(result.steps).includes("secret"));
});

void test("an agent in a tool is part of its step", async () => {
  const inner = answers([{ type: "text", text: "a poem" }]);
  const outer = answers([call("poet", {})], [{ type: "text", text: "done" }]);
  const result = await run(async (task) => {
    const { model, tools } = durable(task, { artifact: null });
    const execute = async () => (await generateText({ model: model(inner), prompt: "write" })).text;
    const staff: ToolSet = { poet: { inputSchema: z.object({}), execute } };
    await new ToolLoopAgent({ model: model(outer), tools: tools(staff) }).generate({ prompt: "x" });
    await task.sleep("1h");
  }, "x");
  assert.deepEqual([inner.doGenerateCalls.length, outer.doGenerateCalls.length], [1, 2]);
  assert.deepEqual(Object.keys(result.steps), ["model#1", "poet:call-poet#1", "model#2", "sleep#1"]);
  assert.equal(result.usage["fake-1"]?.requests, 3);
});

void test("a stream that breaks off is not recorded", async () => {
  let calls = 0;
  const fake = new MockLanguageModelV4({
    doStream: () => {
      calls++;
      const broken = { type: "error", error: new Error("reset") } as const;
      const end = { type: "finish", finishReason: { unified: "stop", raw: undefined }, usage: tokens } as const;
      const text = { type: "text-delta", id: "1", delta: "Hello" } as const;
      const rest = [[broken, end], [], [end]][calls - 1] ?? [];
      const parts = [{ type: "text-start", id: "1" } as const, text, ...rest];
      return Promise.resolve({ stream: ReadableStream.from(parts) });
    },
  });
  const result = await run(async (task) => {
    return (await generateText({ model: durable(task).model(fake), prompt: "x" })).text;
  }, "x");
  assert.deepEqual([result.text, result.artifacts.answer?.text, result.attempts, calls], ["Hello", "Hello", 3, 3]);
});

void test("a model call that fails is made again by the next attempt, not by the AI SDK", async () => {
  const attempts: number[] = [];
  const busy = new APICallError({ message: "busy", url: "", requestBodyValues: {}, statusCode: 429, isRetryable: true });
  const result = await run(async (task) => {
    const doGenerate: MockLanguageModelV4["doGenerate"] = async (options) => {
      attempts.push(task.attempt);
      return attempts.length === 1 ? await Promise.reject(busy) : await answers([{ type: "text", text: "done" }]).doGenerate(options);
    };
    const { model } = durable(task, { artifact: null });
    return (await generateText({ model: model(new MockLanguageModelV4({ doGenerate })), prompt: "x" })).text;
  }, "x");
  assert.deepEqual([result.text, attempts], ["done", [1, 2]]);
});

void test("a cancel reaches the model", async (t) => {
  await cancelReaches(t, (work) => async (task) => {
    const fake = new MockLanguageModelV4({ doStream: async ({ abortSignal }) => await work(abortSignal) });
    await generateText({ model: durable(task).model(fake), prompt: "x" });
  });
});

void test("a cancel reaches a tool", async (t) => {
  await cancelReaches(t, (work) => async (task) => {
    const { model, tools } = durable(task, { artifact: null });
    const execute = async (_: object, { abortSignal }: { abortSignal?: AbortSignal | undefined }) => await work(abortSignal);
    const slow: ToolSet = { slow: { inputSchema: z.object({}), execute } };
    await generateText({ model: model(answers([call("slow", {})])), tools: tools(slow), prompt: "x" });
  });
});
