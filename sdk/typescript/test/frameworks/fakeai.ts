// A fake model of the AI SDK.
import { MockLanguageModelV4 } from "ai/test";

import { effect } from "./effects.js";
import { final, lookup, ordersIn } from "./scenario.js";

type Stream = Awaited<ReturnType<MockLanguageModelV4["doStream"]>>["stream"];
type StreamPart = Stream extends ReadableStream<infer Part> ? Part : never;
type Prompt = Parameters<MockLanguageModelV4["doStream"]>[0]["prompt"];
type PromptPart = Exclude<Prompt[number]["content"], string>[number];

export const tokens = {
  inputTokens: { total: 10, noCache: 6, cacheRead: 4, cacheWrite: undefined },
  outputTokens: { total: 5, text: 3, reasoning: 2 },
};

const call = (toolCallId: string, toolName: string, input: object): StreamPart => ({
  ...{ type: "tool-call", toolCallId, toolName, input: JSON.stringify(input) },
});

async function* answer(prompt: Prompt): AsyncGenerator<StreamPart> {
  const parts = prompt.flatMap((m): PromptPart[] => (m.role === "system" ? [] : m.content));
  const said = parts.find((p) => p.type === "text")?.text ?? "";
  const results = parts.flatMap((p) => (p.type === "tool-result" ? [p.toolName] : []));
  const orders = ordersIn(said);
  const n = 1 + (results.length > 0 ? 1 : 0) + (results.includes("refund") ? 1 : 0);
  yield { type: "stream-start", warnings: [] };
  yield { type: "response-metadata", id: `answer-${n}`, modelId: "fake", timestamp: new Date(n) };
  await effect(`model ${n}`);
  if (n === 2) {
    yield call("call-refund", "refund", { order: orders[0], amount: 30 });
  } else {
    const [first, second] = n === 1 ? lookup : final;
    yield { type: "text-start", id: "t" };
    yield { type: "text-delta", id: "t", delta: first };
    await effect(`model ${n} in the middle`);
    yield { type: "text-delta", id: "t", delta: second };
    yield { type: "text-end", id: "t" };
  }
  if (n === 1) {
    yield* orders.map((order, i) => call(`call-${i}`, "findOrder", { order }));
  }
  yield { type: "finish", finishReason: { unified: n < 3 ? "tool-calls" : "stop", raw: undefined }, usage: tokens };
}

/** It answers what the conversation wants. */
export const model = () =>
  new MockLanguageModelV4({
    modelId: "fake",
    doStream: ({ prompt }) => Promise.resolve({ stream: ReadableStream.from(answer(prompt)) }),
  });
