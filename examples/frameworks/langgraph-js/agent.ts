// A support agent that looks up orders and, if the client agrees, pays them back.
import type { AgentFunction } from "@a2ad/worker";
import { run } from "@a2ad/worker/langgraph";
import type { BaseChatModel } from "@langchain/core/language_models/chat_models";
import { tool } from "@langchain/core/tools";
import { interrupt, MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import { ToolNode, toolsCondition } from "@langchain/langgraph/prebuilt";
import { z } from "zod";

/** The API of a shop. */
export type Shop = (request: string) => Promise<string>;

export function support(gpt: BaseChatModel, shop: Shop): AgentFunction {
  const findOrder = tool(async ({ order }) => await shop(`GET /orders/${order}`), {
    name: "findOrder",
    description: "Look up an order.",
    schema: z.object({ order: z.string() }),
  });
  const refund = tool(
    async ({ order, amount }) => {
      const question = `Pay ${amount} EUR of ${order} back?`;
      if (interrupt({ question, choices: ["yes", "no"] }) === "no") {
        return "The person said no.";
      }
      return await shop(`POST /orders/${order}/refund`);
    },
    {
      name: "refund",
      description: "Pay an order back.",
      schema: z.object({ order: z.string(), amount: z.number() }),
    },
  );
  const tools = [findOrder, refund];
  const model = gpt.bindTools?.(tools) ?? gpt;
  const workflow = new StateGraph(MessagesAnnotation)
    .addNode("think", async ({ messages }) => ({ messages: [await model.invoke(messages)] }))
    .addNode("tools", new ToolNode(tools))
    .addEdge(START, "think")
    .addConditionalEdges("think", toolsCondition)
    .addEdge("tools", "think");

  return async (task, message) => {
    const input = { messages: [{ role: "user", content: message.text }] };
    await run(task, (checkpointer) => workflow.compile({ checkpointer }), input);
  };
}
