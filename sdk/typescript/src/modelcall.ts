// Answers of models of the AI SDK: from a stream, as a stream, and as JSON.
import type { LanguageModelMiddleware } from "ai";

type Middleware = Required<LanguageModelMiddleware>;
type Model = Parameters<Middleware["wrapGenerate"]>[0]["model"];
type Params = Parameters<Model["doStream"]>[0];
type StreamResult = Awaited<ReturnType<Model["doStream"]>>;
type StreamPart = StreamResult["stream"] extends ReadableStream<infer Part> ? Part : never;
type Content = GenerateResult["content"][number];
type Text = Extract<Content, { type: "text" | "reasoning" }>;

export type GenerateResult = Awaited<ReturnType<Model["doGenerate"]>>;

/** Calls a model with streaming, and returns its whole answer. Each piece of text is passed to `write` when it comes. */
export async function generate(
  model: Model,
  params: Params,
  write: (text: string) => Promise<void>,
): Promise<GenerateResult> {
  const { stream } = await model.doStream(params);
  const answer = new Answer();
  const reader = stream.getReader();
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      answer.add(next.value);
      if (next.value.type === "text-delta" && next.value.delta !== "") {
        await write(next.value.delta);
      }
    }
  } catch (err) {
    await reader.cancel(err).catch(() => undefined);
    throw err;
  }
  return answer.result();
}

/** Puts an answer together from the parts of its stream. */
class Answer {
  readonly #content: Content[] = [];
  readonly #open = new Map<string, Text>();
  readonly #rest: Partial<GenerateResult> = {};

  add(part: StreamPart): void {
    switch (part.type) {
      case "text-start":
      case "reasoning-start":
        this.#begin(part.type === "text-start" ? "text" : "reasoning", part);
        break;
      case "text-delta":
      case "reasoning-delta":
        this.#change(part).text += part.delta;
        break;
      case "text-end":
        Object.assign(this.#change(part), part.citations && { citations: part.citations });
        break;
      case "reasoning-end":
        this.#change(part);
        break;
      case "stream-start":
        this.#rest.warnings = part.warnings;
        break;
      case "response-metadata": {
        const { type, ...response } = part;
        this.#rest.response = { ...this.#rest.response, ...response };
        break;
      }
      case "finish": {
        const { type, ...finish } = part;
        Object.assign(this.#rest, finish);
        break;
      }
      case "error":
        throw part.error;
      case "tool-input-start":
      case "tool-input-delta":
      case "tool-input-end":
      case "ping":
      case "raw":
        break; // the whole call follows, or it is not part of the answer
      default:
        this.#content.push(part);
    }
  }

  #begin(type: Text["type"], { id, providerMetadata }: Pick<Extract<StreamPart, { id: string }>, "id" | "providerMetadata">) {
    const text: Text = { type, text: "", ...(providerMetadata && { providerMetadata }) };
    this.#open.set(id, text);
    this.#content.push(text);
  }

  #change({ type, id, providerMetadata }: Pick<Extract<StreamPart, { id: string }>, "type" | "id" | "providerMetadata">): Text {
    const text = this.#open.get(id);
    if (text === undefined) {
      throw new Error(`the model sent ${type} for "${id}", which has not begun`);
    }
    return Object.assign(text, providerMetadata && { providerMetadata });
  }

  result(): GenerateResult {
    const { finishReason, usage, warnings = [] } = this.#rest;
    if (finishReason === undefined || usage === undefined) {
      throw new Error("the stream of the model ended too early");
    }
    return { ...this.#rest, content: this.#content, finishReason, usage, warnings };
  }
}

/** Returns an answer as a stream, as if the model sent each of its parts as a whole. */
export function streamOf(result: GenerateResult): ReadableStream<StreamPart> {
  const parts: StreamPart[] = [{ type: "stream-start", warnings: result.warnings }];
  if (result.response !== undefined) {
    parts.push({ type: "response-metadata", ...result.response });
  }
  for (const [i, part] of result.content.entries()) {
    parts.push(...partsOf(part, String(i)));
  }
  const { finishReason, usage, providerMetadata } = result;
  parts.push({ type: "finish", finishReason, usage, ...(providerMetadata && { providerMetadata }) });
  return new ReadableStream({
    start: (controller) => {
      for (const part of parts) {
        controller.enqueue(part);
      }
      controller.close();
    },
  });
}

function partsOf(part: Content, id: string): StreamPart[] {
  if (part.type !== "text" && part.type !== "reasoning") {
    return [part];
  }
  const more = { id, ...(part.providerMetadata && { providerMetadata: part.providerMetadata }) };
  if (part.type === "reasoning") {
    return [
      { type: "reasoning-start", ...more },
      { type: "reasoning-delta", id, delta: part.text },
      { type: "reasoning-end", id },
    ];
  }
  return [
    { type: "text-start", ...more },
    { type: "text-delta", id, delta: part.text },
    { type: "text-end", id, ...(part.citations && { citations: part.citations }) },
  ];
}

/** Returns an answer without what is not for the program, and with files in a form that JSON has. */
export function forJson({ request, response, ...result }: GenerateResult): GenerateResult {
  const content = result.content.map((part) => {
    if ((part.type !== "file" && part.type !== "reasoning-file") || part.data.type !== "data") {
      return part;
    }
    const { data } = part.data;
    const text = typeof data === "string" ? data : Buffer.from(data).toString("base64");
    return { ...part, data: { type: "data" as const, data: text } };
  });
  if (response === undefined) {
    return { ...result, content };
  }
  const { headers, body, ...metadata } = response;
  return { ...result, content, response: metadata };
}

/** Returns a recorded answer as the AI SDK expects it. In JSON, the time is a string. */
export function restore(recorded: GenerateResult): GenerateResult {
  const { response } = recorded;
  if (response?.timestamp === undefined) {
    return recorded;
  }
  return { ...recorded, response: { ...response, timestamp: new Date(response.timestamp) } };
}
