// A fake chat model of LangChain.
import { AIMessageChunk, type BaseMessage } from "@langchain/core/messages";
import { ChatGenerationChunk } from "@langchain/core/outputs";
import { FakeListChatModel } from "@langchain/core/utils/testing";

import { effect } from "./effects.js";
import { final, lookup, ordersIn } from "./scenario.js";

type Stream = ReturnType<FakeListChatModel["_streamResponseChunks"]>;

const call = (id: string, name: string, args: object, index: number) =>
  new AIMessageChunk({
    content: "",
    tool_call_chunks: [{ id, name, args: JSON.stringify(args), index, type: "tool_call_chunk" }],
  });

async function* answer(messages: readonly BaseMessage[]): AsyncGenerator<AIMessageChunk> {
  const orders = ordersIn(messages.find((m) => m.type === "human")?.text ?? "");
  const results = messages.filter((m) => m.type === "tool").map((m) => m.name);
  const n = 1 + (results.length > 0 ? 1 : 0) + (results.includes("refund") ? 1 : 0);
  await effect(`model ${n}`);
  if (n === 2) {
    yield call("call-refund", "refund", { order: orders[0], amount: 30 }, 0);
  } else {
    const [first, second] = n === 1 ? lookup : final;
    yield new AIMessageChunk(first);
    await effect(`model ${n} in the middle`);
    yield new AIMessageChunk(second);
  }
  if (n === 1) {
    yield* orders.map((order, i) => call(`call-${i}`, "findOrder", { order }, i));
  }
  const end = new AIMessageChunk({ content: "", response_metadata: { model_name: "fake" } });
  const usage = { input_tokens: 10, output_tokens: 5, total_tokens: 15, input_token_details: { cache_read: 4 } };
  yield Object.assign(end, { usage_metadata: usage });
}

type Options = Parameters<FakeListChatModel["_streamResponseChunks"]>[1];

/** A chat model that says what a function does. */
export class Speaker extends FakeListChatModel {
  constructor(private readonly speak: (messages: readonly BaseMessage[], options: Options) => AsyncIterable<AIMessageChunk>) {
    super({ responses: [] });
  }

  override async *_streamResponseChunks(
    ...[messages, options, runManager]: Parameters<FakeListChatModel["_streamResponseChunks"]>
  ): Stream {
    for await (const message of this.speak(messages, options)) {
      const chunk = new ChatGenerationChunk({ message, text: message.text });
      await runManager?.handleLLMNewToken(message.text, undefined, undefined, undefined, undefined, { chunk });
      yield chunk;
    }
  }

  override bindTools(): ReturnType<FakeListChatModel["bindTools"]> {
    return this;
  }
}

/** It answers what the conversation wants. */
export const model = () => new Speaker(answer);
