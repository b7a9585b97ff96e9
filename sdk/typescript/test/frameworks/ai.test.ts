// The AI SDK: what is recorded is not done again.
import assert from "node:assert/strict";
import { test } from "node:test";

import type { AgentFunction } from "../../src/index.js";
import type { WrappableModel } from "../../src/ai.js";
import { run } from "../../src/testing.js";
import { shop } from "./effects.js";
import { model } from "./fakeai.js";
import { crashesRepeatLittle, exampleProject, importAgent, killsRepeatLittle, pageShowsExample, textIn } from "./scenario.js";

const directory = exampleProject("ai-sdk", ["ai", "zod"]);
interface Example {
  support: (model: WrappableModel, to: typeof shop) => AgentFunction;
}
const { support } = await importAgent<Example>(directory);

void test("crashes repeat only what is not recorded", async () => {
  const result = await crashesRepeatLittle(support(model(), shop));
  assert.deepEqual(result.questions, ["Pay 30 EUR of A7 back?"]);
  const used = { inputTokens: 30, outputTokens: 15, cachedInputTokens: 12, reasoningTokens: 6, requests: 3 };
  assert.deepEqual(result.usage, { fake: used });
});

void test("a refusal is told to the model", async () => {
  const result = await run(support(model(), shop), "Pay A7 back", { answers: ["no"] });
  assert.deepEqual([result.state, textIn(result)], ["completed", "Looking up orders. Paid back."]);
  assert.deepEqual(Object.keys(result.steps).filter((key) => key.startsWith("refund")), []);
});

void test("kills repeat only what is not recorded", async (t) => {
  await killsRepeatLittle(t, directory, "fakeai.js");
});

void test("the page shows the example", () => {
  pageShowsExample("ai-sdk", "AI SDK");
});
