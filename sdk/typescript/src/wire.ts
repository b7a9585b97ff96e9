/** The JSON of the worker API: runs, messages and artifacts. */
import { exact, maxId, maxText, options as checkOptions, text as checkText } from "./check.js";
import { UsageError } from "./errors.js";
import { compact, plain, typeName, type Json } from "./json.js";

/** A part as the server reads it. */
export type WirePart = Record<string, Json>;

/** An `AbortSignal`, also in programs without the types of Node and of browsers. */
export type Abort = typeof globalThis extends { AbortSignal: { prototype: infer T } }
  ? T
  : { readonly aborted: boolean; readonly reason: unknown };

/** Bytes of a file in a part. In base64, it has 1 MiB, as a part may have. */
const maxRaw = 768 << 10;
const maxParts = 100;
/** Bytes of the parts of one message or artifact. A request has at most 4 MiB. */
const maxPartsBytes = 3 << 20;

/** One part of a message or an artifact. It has exactly one of `text`, `data`, `raw` and `url`. */
export interface Part {
  text?: string;
  data?: Json;
  /** The bytes of a file. */
  raw?: Uint8Array;
  /** Of a file. */
  url?: string;
  mediaType?: string;
  filename?: string;
  metadata?: Record<string, Json>;
}

/** A part to send. `data` and `metadata` must have a form in JSON. */
export type NewPart = Omit<Part, "data" | "metadata"> & { data?: unknown; metadata?: object };

const contents = ["text", "raw", "url", "data"] as const;

/** A message of the client or of an agent. If your agent sends one, only its parts count. */
export class Message {
  constructor(
    readonly id: string,
    readonly role: "user" | "agent",
    readonly parts: readonly Part[],
    readonly metadata: Readonly<Record<string, Json>> = {},
  ) {}

  /** The text parts, one a line. */
  get text(): string {
    return this.parts.flatMap((p) => (p.text === undefined ? [] : [p.text])).join("\n");
  }

  /** The value of the first data part. */
  get data(): Json | undefined {
    return this.parts.find((p) => p.data !== undefined)?.data;
  }

  /** Returns a message with these parts, for another agent or as the last one of the agent's function. */
  static of(...parts: NewPart[]): Message {
    return new Message("", "agent", parts as Part[]);
  }

  /** @internal */
  static decode(value: unknown): Message {
    const v = record(value);
    const role = v.role === "ROLE_AGENT" ? "agent" : "user";
    return new Message(text(v.messageId), role, list(v.parts).map(decodePart), recordOr(v.metadata));
  }
}

/** @internal Returns the text of an answer, as the server compares it with the choices of a question. */
export function saidIn(answer: Message): string {
  return answer.parts
    .flatMap((p) => p.text ?? [])
    .join(" ")
    .trim();
}

/** An artifact of a task. */
export class Artifact {
  constructor(
    readonly id: string,
    readonly name: string,
    readonly parts: readonly Part[],
  ) {}

  /** The text parts, joined without a separator: they are chunks of a stream. */
  get text(): string {
    return this.parts.map((p) => p.text ?? "").join("");
  }

  /** @internal */
  static decode(value: unknown): Artifact {
    const v = record(value);
    return new Artifact(text(v.artifactId), text(v.name), list(v.parts).map(decodePart));
  }
}

/** A recorded step. Calls and waits are steps, too. */
export class Recorded {
  readonly key: string;
  readonly kind: "step" | "wait" | "call";
  /** The name of the step or, for a call, of the agent. */
  readonly name: string;
  readonly inputSha: string;
  /** The artifact that the step writes, or empty. */
  readonly artifact: string;
  readonly result: Json | undefined;
  readonly error: Json | undefined;
  readonly attempts: number;
  readonly ended: boolean;
  /** When a failed step is tried again, or empty. */
  readonly nextAt: string;

  /** @internal */
  constructor(value: unknown) {
    const v = record(value);
    if (typeof v.key !== "string" || (v.kind !== "step" && v.kind !== "wait" && v.kind !== "call")) {
      throw new TypeError("a step has no key or kind");
    }
    this.key = v.key;
    this.kind = v.kind;
    this.name = text(v.agent) || text(v.name);
    this.inputSha = text(v.inputSha);
    this.artifact = text(v.artifact);
    this.result = v.result;
    this.error = v.error;
    this.attempts = typeof v.attempts === "number" ? v.attempts : 1;
    this.ended = "endedAt" in v;
    this.nextAt = text(v.nextAt);
  }

  /** What has ended a wait, such as `time`, or empty. */
  get by(): string {
    return isRecord(this.result) ? text(this.result.by) : "";
  }
}

/** One run: what a claim returns for a task. */
export interface Run {
  readonly taskId: string;
  readonly contextId: string;
  readonly contextKey: string;
  readonly tenant: string;
  readonly owner: string;
  readonly agent: string;
  readonly epoch: number;
  readonly attempt: number;
  readonly deadline: Date | undefined;
  readonly messages: readonly Message[];
  readonly history: readonly Message[];
  readonly artifacts: readonly Artifact[];
  readonly requestMetadata: readonly Json[];
  readonly extensions: readonly string[];
  readonly checkpoint: Json | undefined;
  readonly steps: Recorded[];
  readonly stepCount: number;
  readonly traceparent: string;
  readonly leaseSeconds: number;
  /** When the claim was answered, or when the request that last renewed the lease was sent; see `monotonic`. */
  renewed: number;
}

/** Reads a run, or throws TypeError. `now` is when the claim was answered. */
export function decodeRun(value: unknown, now: number): Run {
  const v = record(value);
  if (typeof v.taskId !== "string" || typeof v.epoch !== "number") {
    throw new TypeError("a run has no taskId or epoch");
  }
  const task = recordOr(v.task);
  const messages = list(v.messages).map((m) => Message.decode(m));
  if (messages.length === 0) {
    throw new TypeError("a run has no messages");
  }
  return {
    taskId: v.taskId,
    contextId: text(v.contextId),
    contextKey: text(v.contextKey),
    tenant: text(v.tenant),
    owner: text(v.owner),
    agent: text(v.agent),
    epoch: v.epoch,
    attempt: typeof v.attempt === "number" ? v.attempt : 1,
    deadline: typeof v.deadline === "string" ? new Date(v.deadline) : undefined,
    messages,
    history: list(task.history).map((m) => Message.decode(m)),
    artifacts: list(task.artifacts).map((a) => Artifact.decode(a)),
    requestMetadata: v.requestMetadata === undefined ? messages.map(() => null) : list(v.requestMetadata),
    extensions: list(v.extensions).map(text),
    checkpoint: v.checkpoint,
    steps: list(v.steps).map((s) => new Recorded(s)),
    stepCount: typeof v.stepCount === "number" ? v.stepCount : 0,
    traceparent: text(v.traceparent),
    leaseSeconds: typeof v.leaseSeconds === "number" ? v.leaseSeconds : 30,
    renewed: now,
  };
}

/**
 * Returns which message of the client `messages[index]` is in the task, from 1. Clients reuse ids. The history ends
 * with the messages of the run.
 */
export function numberOf(run: Run, index: number): number {
  const said = run.history.filter((m) => m.role === "user").length;
  return Math.max(said - run.messages.length, 0) + index + 1;
}

export function isRecord(value: unknown): value is Record<string, Json> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function record(value: unknown): Record<string, Json> {
  if (!isRecord(value)) {
    throw new TypeError(`${typeName(value)} is not an object`);
  }
  return value;
}

const recordOr = (value: unknown): Record<string, Json> => (isRecord(value) ? value : {});

const text = (value: unknown): string => (typeof value === "string" ? value : "");

function list(value: unknown): Json[] {
  if (value !== undefined && value !== null && !Array.isArray(value)) {
    throw new TypeError(`${typeName(value)} is not an array`);
  }
  return (value ?? []) as Json[];
}

function decodePart(value: unknown): Part {
  const { raw, ...rest } = record(value);
  return raw === undefined ? rest : { ...rest, raw: new Uint8Array(Buffer.from(text(raw), "base64")) };
}

/** Returns the JSON of the parts of a message or an artifact, or throws UsageError. */
export function encodeParts(parts: readonly NewPart[]): WirePart[] {
  if (parts.length < 1 || parts.length > maxParts) {
    throw new UsageError(`a message must have 1 to ${maxParts} parts, not ${parts.length}`);
  }
  let size = 0;
  const encoded = parts.map((part, i) => {
    const what = `part ${i + 1}`;
    const [json, value] = plain(encodePart(part, what), what, maxPartsBytes);
    checkSize(value as WirePart, what);
    size += Buffer.byteLength(json);
    return value as WirePart;
  });
  if (size > maxPartsBytes) {
    throw new UsageError(`the parts have ${size} bytes; at most ${maxPartsBytes} can be sent`);
  }
  return encoded;
}

/** Returns a part as A2A 1.0 has it in JSON. */
function encodePart(part: NewPart, what: string): object {
  if (!isRecord(part)) {
    throw new UsageError(`${what} must be a part such as { text: "…" }, not ${typeName(part)}`);
  }
  checkOptions(part, what, [...contents, "mediaType", "filename", "metadata"]);
  const [content, ...others] = contents.filter((c) => part[c] !== undefined);
  if (content === undefined || others.length > 0) {
    throw new UsageError(`${what} must have exactly one of text, data, raw and url`);
  }
  if (part.text !== undefined) {
    checkText(part.text, `${what}: the text`);
  }
  if (part.url !== undefined) {
    exact(part.url, `${what}: the url`);
  }
  const { mediaType = "", filename = "", metadata = {} } = part;
  exact(mediaType, `${what}: the media type`, maxId);
  exact(filename, `${what}: the filename`, 4096);
  if (!isRecord(metadata)) {
    throw new UsageError(`${what}: metadata must be an object, not ${typeName(metadata)}`);
  }
  return {
    [content]: content === "raw" ? base64(part.raw, what) : part[content],
    ...(mediaType !== "" && { mediaType }),
    ...(filename !== "" && { filename }),
    ...(Object.keys(metadata).length > 0 && { metadata }),
  };
}

function base64(raw: unknown, what: string): string {
  if (!(raw instanceof Uint8Array)) {
    throw new UsageError(`${what}: a file must be a Uint8Array, not ${typeName(raw)}`);
  }
  if (raw.length > maxRaw) {
    throw new UsageError(
      `${what}: the file has ${raw.length} bytes; at most ${maxRaw} can be sent. Store it elsewhere and send a link`,
    );
  }
  return Buffer.from(raw.buffer, raw.byteOffset, raw.byteLength).toString("base64");
}

/** Checks the size of a part as the server counts it: its content, and the JSON of metadata. */
function checkSize(part: WirePart, what: string): void {
  const texts = [part.text ?? part.raw ?? part.url ?? compact(part.data)] as string[];
  if (part.metadata !== undefined) {
    texts.push(compact(part.metadata));
  }
  const size = texts.reduce((sum, t) => sum + Buffer.byteLength(t), 0);
  if (size > maxText) {
    throw new UsageError(`${what} has ${size} bytes; at most ${maxText} can be sent`);
  }
}
