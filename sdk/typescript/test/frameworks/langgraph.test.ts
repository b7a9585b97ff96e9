// LangGraph: what is recorded is not done again.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

import type { BaseChatModel } from "@langchain/core/language_models/chat_models";
import { AIMessageChunk } from "@langchain/core/messages";
import { Annotation, interrupt, START, StateGraph, type BaseCheckpointSaver } from "@langchain/langgraph";

import { execute } from "../../src/agent.js";
import type { AgentFunction } from "../../src/index.js";
import { run as runGraph, type CompiledGraph } from "../../src/langgraph.js";
import { Session } from "../../src/session.js";
import { crashEverywhere, run } from "../../src/testing.js";
import { noSpan } from "../../src/tracing.js";
import { claimed } from "../fake.js";
import { shop } from "./effects.js";
import { model, Speaker } from "./fakelanggraph.js";
import { cancelReaches, crashesRepeatLittle, exampleProject, importAgent, killsRepeatLittle, pageShowsExample, textIn } from "./scenario.js";

const directory = exampleProject("langgraph-js", ["@langchain/langgraph", "@langchain/core", "zod"]);
interface Example {
  support: (model: BaseChatModel, to: typeof shop) => AgentFunction;
}
const { support } = await importAgent<Example>(directory);

void test("crashes repeat only what is not recorded", async () => {
  const result = await crashesRepeatLittle(support(model(), shop));
  assert.deepEqual(result.questions, ["Pay 30 EUR of A7 back?"]);
  assert.deepEqual(result.usage, { fake: { inputTokens: 30, outputTokens: 15, cachedInputTokens: 12, requests: 3 } });
});

void test("kills repeat only what is not recorded", async (t) => {
  await killsRepeatLittle(t, directory, "fakelanggraph.js");
});

void test("a refusal is told to the model", async () => {
  const result = await run(support(model(), shop), "Pay A7 back", { answers: ["no"] });
  assert.deepEqual([result.state, textIn(result)], ["completed", "Looking up orders. Paid back."]);
});

const Notes = Annotation.Root({
  notes: Annotation<string[]>({ reducer: (a, b) => [...a, ...b].sort(), default: () => [] }),
});

/** Returns an agent that runs a graph and returns its notes. */
function notesOf(graph: { compile: (options: { checkpointer: BaseCheckpointSaver }) => CompiledGraph }): AgentFunction {
  return async (task) => {
    const state = await runGraph<{ notes: string[] }>(task, (checkpointer) => graph.compile({ checkpointer }), { notes: [] });
    return state.notes.join(", ");
  };
}

void test("nodes ask twice and at once", async () => {
  const asksTwice = () => {
    const first = interrupt<unknown, string>("First?");
    const second = interrupt<unknown, string>({ question: "Second?", choices: ["left", "right"] });
    return { notes: [`first ${first}`, `second ${second}`] };
  };
  const inner = new StateGraph(Notes).addNode("asksTwice", asksTwice).addEdge(START, "asksTwice").compile();
  const graph = new StateGraph(Notes)
    .addNode("inner", inner)
    .addNode("asksOnce", () => ({ notes: [`other ${interrupt<unknown, string>("Other?")}`] }))
    .addNode("works", () => ({ notes: ["work"] }))
    .addEdge(START, "inner")
    .addEdge(START, "asksOnce")
    .addEdge(START, "works");
  const said: Record<string, string> = { "First?": "one", "Second?": "left", "Other?": "three" };
  const compare = (r: { state: string; text: string }) => [r.state, r.text];
  const result = await crashEverywhere(notesOf(graph), "x", { answers: (question) => said[question], compare });
  assert.deepEqual([result.state, result.text], ["completed", "first one, other three, second left, work"]);
  assert.deepEqual(result.questions.toSorted(), ["First?", "Other?", "Second?"]);
});

void test("a node that asks and returns nothing does not ask or run again while another one asks", async () => {
  const returned: string[] = [];
  const graph = new StateGraph(Notes)
    .addNode("returnsNothing", () => {
      returned.push(`nothing after ${interrupt<unknown, string>("Once?")}`);
      return {};
    })
    .addNode("asksTwice", () => ({ notes: [interrupt<unknown, string>("First?"), interrupt<unknown, string>("Second?")] }))
    .addEdge(START, "returnsNothing")
    .addEdge(START, "asksTwice");
  const options = { answers: (question: string) => `to ${question}` };
  const result = await run(notesOf(graph), "x", options);
  assert.deepEqual([result.text, result.questions.toSorted()], ["to First?, to Second?", ["First?", "Once?", "Second?"]]);
  assert.deepEqual(returned, ["nothing after to Once?"]);
  const compare = (r: { text: string; questions: string[] }) => [r.text, r.questions.toSorted()];
  await crashEverywhere(notesOf(graph), "x", { ...options, compare });
});

void test("a node that fails between its questions gets each answer once", async () => {
  let fails = true;
  const graph = new StateGraph(Notes)
    .addNode("asks", () => {
      const first = interrupt<unknown, string>("First?");
      if (fails) {
        fails = false;
        throw new Error("reset");
      }
      return { notes: [first, interrupt<unknown, string>("Second?")] };
    })
    .addEdge(START, "asks");
  const result = await run(notesOf(graph), "x", { answers: (question) => `to ${question}` });
  assert.deepEqual([result.text, result.questions], ["to First?, to Second?", ["First?", "Second?"]]);
  assert.equal(result.attempts, 4); // it fails once, and two answers begin an attempt
});

void test("a node that fails runs again, and the node before it does not", async () => {
  const tries: string[] = [];
  const graph = new StateGraph(Notes)
    .addNode("ok", () => {
      tries.push("ok");
      return { notes: ["ok"] };
    })
    .addNode("fails", () => {
      tries.push("fails");
      if (tries.length === 2) {
        throw new Error("reset");
      }
      return { notes: ["done"] };
    })
    .addEdge(START, "ok")
    .addEdge("ok", "fails");
  const result = await run(notesOf(graph), "x");
  assert.deepEqual([result.text, result.attempts, tries], ["done, ok", 2, ["ok", "fails", "fails"]]);
});

void test("the text of a node is kept whole while another node is recorded", async () => {
  const speaker = new Speaker(async function* () {
    yield new AIMessageChunk("Hello ");
    for (let i = 0; i < 20; i++) {
      await turn(); // the other node returns
    }
    yield new AIMessageChunk("Ann.");
  });
  const returned: string[] = [];
  const graph = new StateGraph(Notes)
    .addNode("speaks", async () => ({ notes: [(await speaker.invoke("x")).text] }))
    .addNode("works", () => {
      returned.push("work");
      return { notes: ["work"] };
    })
    .addEdge(START, "speaks")
    .addEdge(START, "works");
  const result = await crashEverywhere(notesOf(graph), "x", { compare: (r) => [r.text, textIn(r)] });
  assert.deepEqual([result.text, textIn(result)], ["Hello Ann., work", "Hello Ann."]);
});

void test("a node begins once the node before it is recorded", async () => {
  const begun: string[] = [];
  let store: () => void = () => undefined;
  const stored = new Promise<void>((done) => (store = done));
  const node = (name: string) => () => {
    begun.push(name);
    return { notes: [name] };
  };
  const graph = new StateGraph(Notes)
    .addNode("one", node("one"))
    .addNode("two", node("two"))
    .addEdge(START, "one")
    .addEdge("one", "two");
  const report = async () => {
    if (begun.length > 0) {
      await stored;
    }
    return false;
  };
  const agent = { name: "a", run: notesOf(graph), concurrency: 1, replay: true };
  const silent = { info: () => undefined, warn: () => undefined, error: () => undefined };
  const ended = execute(agent, new Session(claimed(), { report }, true), silent, noSpan);
  for (let i = 0; i < 100; i++) {
    await turn();
  }
  assert.deepEqual(begun, ["one"]);
  store();
  assert.equal((await ended).outcome, "finished");
  assert.deepEqual(begun, ["one", "two"]);
});

void test("a value that a later node does not change is kept", async () => {
  const State = Annotation.Root({ first: Annotation<string>(), second: Annotation<string>() });
  const graph = new StateGraph(State)
    .addNode("one", () => ({ first: "a" }))
    .addNode("two", () => ({ second: interrupt<unknown, string>("Second?") }))
    .addEdge(START, "one")
    .addEdge("one", "two");
  const agent: AgentFunction = async (task) =>
    JSON.stringify(await runGraph(task, (checkpointer) => graph.compile({ checkpointer }), { second: "none" }));
  const result = await run(agent, "x", { answers: ["b"] });
  assert.equal(result.text, '{"first":"a","second":"b"}');
  await crashEverywhere(agent, "x", { answers: ["b"], compare: (r) => r.text });
});

void test("a model with the tag nostream says nothing to the client", async () => {
  const speaker = new Speaker(async function* () {
    yield await Promise.resolve(new AIMessageChunk("secret"));
  });
  const think = async () => ({ notes: [(await speaker.invoke("x", { tags: ["nostream"] })).text] });
  const graph = new StateGraph(Notes).addNode("thinks", think).addEdge(START, "thinks");
  const result = await run(notesOf(graph), "x");
  assert.deepEqual([result.text, result.artifacts], ["secret", {}]);
});

void test("a question has choices, a schema or neither", async () => {
  const schema = { type: "object", properties: { n: { type: "number" } } };
  const questions = [{ question: "Which?", choices: ["left", "right"] }, { question: "How many?", schema }, "Why?", { why: 1 }];
  const asks = () => ({ notes: questions.map((q) => JSON.stringify(interrupt(q))) });
  const graph = new StateGraph(Notes).addNode("asks", asks).addEdge(START, "asks");
  const given: Record<string, string | { n: number }> = { "Which?": "left", "How many?": { n: 3 } };
  const result = await run(notesOf(graph), "x", { answers: (question) => given[question] ?? "so" });
  assert.deepEqual(result.text, '"left", "so", "so", {"n":3}');
  assert.deepEqual(result.questions, ["Which?", "How many?", "Why?", '{"why":1}']);
  const wrong = run(notesOf(graph), "x", { answers: ["up"] });
  await assert.rejects(wrong, /left|choice/);
});

void test("a cancel reaches the model of a node", async (t) => {
  await cancelReaches(t, (work) => {
    const speaker = new Speaker(async function* (_, { signal }) {
      yield await work(signal);
    });
    const graph = new StateGraph(Notes).addNode("thinks", () => speaker.invoke("x")).addEdge(START, "thinks");
    return notesOf(graph);
  });
});

void test("a graph does not go on after its run has failed", async () => {
  let stopped: () => void;
  const aborted = new Promise<void>((done) => (stopped = done));
  const speaker = new Speaker(async function* (_, { signal }) {
    yield new AIMessageChunk("Hello");
    await new Promise<void>((done) => {
      signal?.addEventListener("abort", () => {
        done();
      });
    });
    stopped();
  });
  const graph = new StateGraph(Notes).addNode("thinks", () => speaker.invoke("x")).addEdge(START, "thinks");
  const result = await run(async (task) => {
    const running = runGraph(task, (checkpointer) => graph.compile({ checkpointer }), {}, { artifact: "" });
    await assert.rejects(running, /artifact/);
    await aborted;
  }, "x");
  assert.equal(result.state, "completed");
});

void test("the page shows the example", () => {
  pageShowsExample("langgraph-js", "LangGraph.js");
});
