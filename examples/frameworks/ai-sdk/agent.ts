// A support agent that looks up orders and, if the client agrees, pays them back.
import type { AgentFunction } from "@a2ad/worker";
import { durable, type WrappableModel } from "@a2ad/worker/ai";
import { generateText, isStepCount, tool } from "ai";
import { z } from "zod";

/** The API of a shop. */
export type Shop = (request: string) => Promise<string>;

export function support(gpt: WrappableModel, shop: Shop): AgentFunction {
  const shopTools = {
    findOrder: tool({
      description: "Look up an order.",
      inputSchema: z.object({ order: z.string() }),
      execute: ({ order }) => shop(`GET /orders/${order}`),
    }),
    refund: tool({
      description: "Pay an order back.",
      inputSchema: z.object({ order: z.string(), amount: z.number() }),
      execute: ({ order }) => shop(`POST /orders/${order}/refund`),
    }),
  };
  return async (task, message) => {
    const { model, tools, approve } = durable(task);
    await generateText({
      model: model(gpt),
      tools: tools(shopTools),
      toolApproval: { refund: approve(({ order, amount }) => `Pay ${amount} EUR of ${order} back?`) },
      stopWhen: isStepCount(10),
      prompt: message.text,
    });
  };
}
