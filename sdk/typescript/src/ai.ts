/**
 * Durable agents of the AI SDK.
 *
 * ```ts
 * import { durable } from "@a2ad/worker/ai";
 *
 * worker.agent("support", async (task, message) => {
 *   const { model, tools } = durable(task);
 *   await generateText({ model: model(openai("gpt-5")), tools: tools(shop), prompt: message.text });
 * });
 * ```
 *
 * @packageDocumentation
 */
import { asSchema, wrapLanguageModel, type LanguageModelMiddleware, type Tool, type ToolSet } from "ai";

import { A2adError } from "./errors.js";
import { answerArtifact, describeCall, Gate, modelStep, tokens, toolStep } from "./frameworks.js";
import { forJson, generate, restore, streamOf, type GenerateResult } from "./modelcall.js";
import { inStep } from "./scope.js";
import type { Task } from "./task.js";
import type { Usage } from "./wire.js";

/** A model object of the AI SDK. For the name of a model, pass `gateway(name)`. */
export type WrappableModel = Parameters<typeof wrapLanguageModel>[0]["model"];

export interface DurableOptions {
  /**
   * The artifact to which the text of the models is written while it comes; default `answer`. With null, it is not
   * written, and the models are called without streaming.
   */
  artifact?: string | null;
}

/** What `toolApproval` of the AI SDK expects. */
export type Approval = "approved" | { type: "denied"; reason: string };

/** What makes a call of the AI SDK part of a task. */
export interface Durable {
  /** Returns a model whose calls are steps. */
  readonly model: (model: WrappableModel) => ReturnType<typeof wrapLanguageModel>;
  /**
   * Returns tools whose calls are steps. A tool without `execute` asks the client; the answer is its result. The client
   * reads its argument `question`, or a description of the call. With an `outputSchema`, the answer must fit it.
   *
   * What a tool throws is told to the model. An error of this library, such as `Fail`, ends the run of the agent at the
   * next model call.
   */
  readonly tools: <T extends ToolSet>(tools: T) => T;
  /** Returns a value for `toolApproval`: the client is asked before the tool runs, and answers yes or no. */
  readonly approve: <Input>(question: string | ((input: Input) => string)) => (input: Input) => Promise<Approval>;
}

/**
 * Makes calls of the AI SDK part of a task.
 *
 * Each model call and each tool call is a step. When the agent runs again, after a crash or a wait, the AI SDK gets what
 * is recorded; no model and no tool is called twice for it. Call `durable` once in the agent's function.
 */
export function durable(task: Task, { artifact = answerArtifact }: DurableOptions = {}): Durable {
  const calls = new ToolCalls(task);
  return {
    model: (model) => wrapLanguageModel({ model, middleware: recorded(task, artifact, calls) }),
    tools: <T extends ToolSet>(tools: T) => {
      const wrapped = Object.entries(tools).map(([name, tool]) => [name, calls.wrap(name, tool)]);
      return Object.fromEntries(wrapped) as T;
    },
    approve: (question) => async (input) => await calls.approve(typeof question === "string" ? question : question(input)),
  };
}

type Call = Parameters<NonNullable<LanguageModelMiddleware["wrapGenerate"]>>[0];

/** Makes each call of a model a step. */
function recorded(task: Task, artifact: string | null, calls: ToolCalls): LanguageModelMiddleware {
  /** Calls the model: in a step of its own, which has the signal, or as part of another one. */
  const call = async ({ model, params }: Pick<Call, "model" | "params">, abort?: AbortSignal) => {
    const given = { ...params, ...either(params.abortSignal, abort) };
    // With a schema, the text of the model is JSON for the program, not for the client.
    const streams = artifact !== null && abort !== undefined && params.responseFormat?.type !== "json";
    const write = async (text: string) => {
      await task.artifact(artifact ?? answerArtifact).write(text);
    };
    const result = streams ? await generate(model, given, write) : await model.doGenerate(given);
    await task.usage(usageOf(result, model.modelId));
    return forJson(result);
  };
  const step = async (one: Pick<Call, "model" | "params">) => {
    calls.check();
    if (inStep(task.id)) {
      return restore(await call(one)); // an agent that a tool runs is part of the step of that tool
    }
    const answer: unknown = await task.step(modelStep, async (abort): Promise<unknown> => await call(one, abort));
    return restore(answer as GenerateResult);
  };
  return {
    specificationVersion: "v4",
    wrapGenerate: step,
    wrapStream: async (one) => ({ stream: streamOf(await step(one)) }),
  };
}

/** Returns a signal that aborts when one of two does. */
function either(a?: AbortSignal, b?: AbortSignal): { abortSignal?: AbortSignal } {
  const signals = [a, b].filter((s) => s !== undefined);
  return signals.length === 0 ? {} : { abortSignal: AbortSignal.any(signals) };
}

function usageOf({ usage, response }: GenerateResult, modelId: string): Usage {
  return {
    model: response?.modelId ?? modelId,
    requests: 1,
    ...tokens({
      inputTokens: usage.inputTokens.total,
      outputTokens: usage.outputTokens.total,
      cachedInputTokens: usage.inputTokens.cacheRead,
      reasoningTokens: usage.outputTokens.reasoning,
    }),
  };
}

type Execute = NonNullable<Tool["execute"]>;
type Options = Parameters<Execute>[1];
type Outcome = { output?: unknown } | { error: { name: string; message: string } };

/** The tool calls of an agent, and its questions to the client. */
class ToolCalls {
  readonly #gate = new Gate();
  #failed: { reason: unknown } | undefined;

  constructor(private readonly task: Task) {}

  /** Throws what must end the agent. The AI SDK tells the model about whatever a tool throws, and goes on. */
  check(): void {
    if (this.#failed !== undefined) {
      throw this.#failed.reason;
    }
  }

  wrap(name: string, tool: ToolSet[string]): ToolSet[string] {
    if (tool.execute !== undefined) {
      const execute = tool.execute as Execute;
      return { ...tool, execute: async (input: unknown, o: Options) => await this.#execute(name, execute, input, o) };
    }
    if (tool.type === "provider") {
      return tool;
    }
    const schema = tool.outputSchema === undefined ? undefined : asSchema<unknown>(tool.outputSchema).jsonSchema;
    return {
      ...tool,
      execute: async (input: unknown) => {
        const { question = describeCall(name, input) } = (input ?? {}) as { question?: unknown };
        const ask = async (s: object | undefined): Promise<unknown> =>
          s === undefined ? await this.task.ask(String(question)) : await this.task.ask(String(question), { schema: s });
        return await this.#failing(() => this.#gate.alone(schema, ask));
      },
    } as ToolSet[string];
  }

  async approve(question: string): Promise<Approval> {
    const choices = ["yes", "no"] as const;
    const answer = await this.#failing(() => this.#gate.alone(undefined, () => this.task.ask(question, { choices })));
    return answer === "yes" ? "approved" : { type: "denied", reason: "The person said no." };
  }

  async #execute(name: string, execute: Execute, input: unknown, options: Options): Promise<unknown> {
    if (inStep(this.task.id)) {
      return await last(execute(input, options));
    }
    const step = async (abort: AbortSignal) =>
      await outcomeOf(() => last(execute(input, { ...options, ...either(options.abortSignal, abort) })));
    const key = toolStep(name, options.toolCallId);
    const outcome: Outcome = await this.#failing(() => this.#gate.together(() => this.task.step(key, step)));
    if ("error" in outcome) {
      throw Object.assign(new Error(outcome.error.message), { name: outcome.error.name });
    }
    return outcome.output;
  }

  async #failing<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (reason) {
      this.#failed ??= { reason };
      throw reason;
    }
  }
}

/** Returns what a tool did. What it tells the model by an error is a result, too. */
async function outcomeOf(work: () => Promise<unknown>): Promise<Outcome> {
  try {
    return { output: await work() };
  } catch (err) {
    if (err instanceof A2adError) {
      throw err;
    }
    const { name, message } = err instanceof Error ? err : new Error(String(err));
    return { error: { name, message } };
  }
}

/** Returns the result of a tool. Of several, the last one counts. */
async function last(returned: unknown): Promise<unknown> {
  if (typeof returned !== "object" || returned === null || !(Symbol.asyncIterator in returned)) {
    return await returned;
  }
  let output: unknown;
  for await (output of returned as AsyncIterable<unknown>);
  return output;
}
