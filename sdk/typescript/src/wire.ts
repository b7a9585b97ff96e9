import { UsageError } from "./errors.js";
import { checkOptions, checkText, encode } from "./values.js";

/** A value that has a form in JSON. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** One part of a message or an artifact. Exactly one of text, data, raw and url is set. */
export interface Part {
  text?: string;
  data?: Json;
  /** The bytes of a file. */
  raw?: Uint8Array;
  url?: string;
  mediaType?: string;
  filename?: string;
  metadata?: Record<string, Json>;
}

/** A part on the wire: its bytes are base64. */
export type WirePart = Omit<Part, "raw"> & { raw?: string };

export interface WireMessage {
  messageId?: string;
  role?: string;
  parts?: WirePart[];
  metadata?: Record<string, Json>;
}

export interface WireArtifact {
  artifactId: string;
  name?: string;
  parts?: WirePart[];
}

/** A message of the client, or of an agent. */
export class Message {
  constructor(
    readonly id: string,
    readonly role: "user" | "agent",
    readonly parts: readonly Part[],
    readonly metadata: Readonly<Record<string, Json>> = {},
  ) {}

  /** The text parts, joined by line breaks. */
  get text(): string {
    return this.parts.flatMap((p) => (p.text === undefined ? [] : [p.text])).join("\n");
  }

  /** The value of the first data part. */
  get data(): Json | undefined {
    return this.parts.find((p) => p.data !== undefined)?.data;
  }

  /** Returns a message with these parts, for another agent or as the last one of the agent's function. */
  static of(...parts: Part[]): Message {
    return new Message("", "agent", parts);
  }

  /** @internal */
  static decode(v: WireMessage): Message {
    const role = v.role === "ROLE_AGENT" ? "agent" : "user";
    return new Message(v.messageId ?? "", role, (v.parts ?? []).map(decodePart), v.metadata ?? {});
  }
}

/** An artifact of a task. */
export class Artifact {
  constructor(
    readonly id: string,
    readonly name: string,
    readonly parts: readonly Part[],
  ) {}

  /** The text parts, joined without a separator: the chunks of a stream. */
  get text(): string {
    return this.parts.map((p) => p.text ?? "").join("");
  }

  /** @internal */
  static decode(v: WireArtifact): Artifact {
    return new Artifact(v.artifactId, v.name ?? "", (v.parts ?? []).map(decodePart));
  }
}

export function decodePart(v: WirePart): Part {
  const { raw, ...rest } = v;
  return raw === undefined ? rest : { ...rest, raw: Buffer.from(raw, "base64") };
}

/** The bytes of a file that fit into one part, in base64. */
const maxFile = 768 << 10;
const maxParts = 100;

/** Returns parts as the server reads them. Refuses what it would refuse. */
export function encodeParts(parts: readonly Part[], what: string): WirePart[] {
  if (!Array.isArray(parts) || parts.length === 0 || parts.length > maxParts) {
    throw new UsageError(`${what} takes a text, a Message, or 1 to ${maxParts} parts`);
  }
  return parts.map((p, i) => encodePart(p as Part, parts.length === 1 ? what : `part ${i + 1} of ${what}`));
}

/** Returns a message as the server reads it. */
export function partsOf(message: string | Message | readonly Part[], what: string): object[] {
  if (typeof message === "string") {
    checkText(message, what, 1);
    return [{ text: message }];
  }
  return encodeParts(message instanceof Message ? message.parts : message, what);
}

function encodePart(p: Part, what: string): WirePart {
  checkOptions(p, what, ["text", "data", "raw", "url", "mediaType", "filename", "metadata"]);
  if ([p.text, p.data, p.raw, p.url].filter((v) => v !== undefined).length !== 1) {
    throw new UsageError(`${what} must have exactly one of text, data, raw and url`);
  }
  for (const key of ["text", "url", "mediaType", "filename"] as const) {
    if (p[key] !== undefined) {
      checkText(p[key], `${key} in ${what}`);
    }
  }
  const { raw, ...rest } = p;
  encode({ data: p.data, metadata: p.metadata }, what);
  if (raw === undefined) {
    return rest;
  }
  if (!(raw instanceof Uint8Array)) {
    throw new UsageError(`raw in ${what} must be a Uint8Array`);
  }
  if (raw.length > maxFile) {
    throw new UsageError(`${what} is a file of ${raw.length} bytes; store it elsewhere and send a link`);
  }
  return { ...rest, raw: Buffer.from(raw).toString("base64") };
}

/** What a task has cost: the tokens and requests of model calls. */
export interface Usage {
  /** Such as `gpt-5`. */
  model?: string;
  inputTokens?: number;
  outputTokens?: number;
  /** Of the input tokens, those that the provider had cached. */
  cachedInputTokens?: number;
  /** Of the output tokens, those that the model used to think. */
  reasoningTokens?: number;
  requests?: number;
}

/** A step that is recorded, as the server sends it. */
export interface Recorded {
  seq: number;
  kind: "step" | "wait" | "call";
  key: string;
  name?: string;
  agent?: string;
  taskId?: string;
  inputSha?: string;
  artifact?: string;
  result?: Json;
  error?: Json;
  attempts?: number;
  nextAt?: string;
  endedAt?: string;
}

/** One attempt at a task, as the server sends it. */
export interface Run {
  taskId: string;
  contextId: string;
  contextKey: string;
  tenant: string;
  owner: string;
  agent: string;
  epoch: number;
  attempt: number;
  deadline?: string;
  task?: { history?: WireMessage[]; artifacts?: WireArtifact[] };
  messages: WireMessage[];
  checkpoint?: Json;
  steps?: Recorded[];
  stepCount?: number;
  traceparent?: string;
  leaseSeconds: number;
}
