// What a graph of LangGraph does, in order: what its models say and use, and what it saves.
import { BaseCallbackHandler } from "@langchain/core/callbacks/base";
import type { BaseMessage, UsageMetadata } from "@langchain/core/messages";
import type { ChatGeneration, LLMResult } from "@langchain/core/outputs";

import { tokens } from "./frameworks.js";
import type { Usage } from "./wire.js";

/** A checkpoint, or what one node has returned. */
export interface Save {
  readonly kind: "save";
  readonly record: readonly string[];
  readonly namespace: string;
  /** The id of the node that has returned; undefined for a checkpoint. */
  readonly writer: string | undefined;
  readonly question: boolean;
  /** Lets the graph go on. */
  readonly letGo: () => void;
}

export type GraphEvent =
  | Save
  | { readonly kind: "text"; readonly node: string; readonly text: string }
  | { readonly kind: "usage"; readonly usage: Usage }
  | { readonly kind: "end" };

export class Queue {
  readonly #events: GraphEvent[] = [];
  #wake: (() => void) | undefined;

  put(event: GraphEvent): void {
    this.#events.push(event);
    this.#wake?.();
  }

  async next(): Promise<GraphEvent> {
    for (;;) {
      const event = this.#events.shift();
      if (event !== undefined) {
        return event;
      }
      await new Promise<void>((done) => (this.#wake = done));
    }
  }
}

/** Hears what the chat models of a graph say and use. */
export class Listener extends BaseCallbackHandler {
  readonly name = "a2ad";
  readonly #nodes = new Map<string, string>();

  constructor(private readonly queue: Queue) {
    super();
    this.awaitHandlers = true; // in order, and before the node returns
  }

  override handleChatModelStart(
    ...[, , runId, , , tags = [], metadata = {}]: Parameters<NonNullable<BaseCallbackHandler["handleChatModelStart"]>>
  ): void {
    if (!tags.includes("nostream") && !tags.includes("langsmith:nostream")) {
      const node: unknown = metadata.langgraph_checkpoint_ns;
      this.#nodes.set(runId, typeof node === "string" ? node : "");
    }
  }

  override handleLLMNewToken(
    ...[token, , runId, , , fields]: Parameters<NonNullable<BaseCallbackHandler["handleLLMNewToken"]>>
  ): void {
    const node = this.#nodes.get(runId);
    const chunk = fields?.chunk;
    const text = chunk !== undefined && "message" in chunk ? (chunk.message as BaseMessage).text : token;
    if (node !== undefined && text !== "") {
      this.queue.put({ kind: "text", node, text });
    }
  }

  override handleLLMEnd(output: LLMResult, runId: string): void {
    this.#nodes.delete(runId);
    for (const [generation] of output.generations) {
      const message = (generation as Partial<ChatGeneration> | undefined)?.message;
      if (message?.type === "ai") {
        const { usage_metadata: used, response_metadata: response } = message as { usage_metadata?: UsageMetadata } & BaseMessage;
        const model: unknown = response.model_name;
        const usage = tokens({
          inputTokens: used?.input_tokens,
          outputTokens: used?.output_tokens,
          cachedInputTokens: used?.input_token_details?.cache_read,
          reasoningTokens: used?.output_token_details?.reasoning,
        });
        this.queue.put({
          kind: "usage",
          usage: { ...(typeof model === "string" && model !== "" && { model }), ...usage, requests: 1 },
        });
      }
    }
  }
}
