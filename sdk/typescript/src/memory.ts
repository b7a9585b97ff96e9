/** A task in memory, which behaves like one on the server. For tests of agents. */
import { Refused } from "./errors.js";
import { compact, digest, inOrder, parseExactly, type Json } from "./json.js";
import type { Usage } from "./usage.js";
import type { WirePart } from "./wire.js";

export interface StatusUpdate {
  status: { state: string; message?: { role?: string; parts: WirePart[] } };
}

interface ArtifactUpdate {
  artifact: { artifactId: string; name?: string; parts: WirePart[] };
  append?: boolean;
}

/** An event that a client sees. */
export interface Event {
  statusUpdate?: StatusUpdate;
  artifactUpdate?: ArtifactUpdate;
}

export interface WaitEvent {
  key: string;
  input?: Json;
  for?: string;
  until?: string;
  message?: boolean;
  signal?: string;
  tasks?: string[];
  mode?: string;
  status?: StatusUpdate["status"];
  expects?: Expects;
}

/** What the answer to a question must look like. */
export interface Expects {
  choices?: string[];
  schema?: Record<string, Json>;
}

export interface CallEvent {
  key: string;
  agent: string;
  message: { parts: WirePart[] };
}

/** A recorded step, as the server sends it. */
export interface StoredStep {
  key: string;
  kind: "step" | "wait" | "call";
  name?: string;
  agent?: string;
  inputSha: string;
  artifact?: string;
  result?: Json;
  error?: Json;
  attempts?: number;
  nextAt?: string;
  endedAt?: string;
}

type StepEvent = Omit<StoredStep, "kind" | "inputSha"> & { input?: unknown };

/** What an agent reports. It has one member. */
export interface Reported extends Event {
  step?: StepEvent;
  wait?: WaitEvent;
  call?: CallEvent;
  checkpoint?: Json;
  usage?: Usage;
}

const finalStates = ["TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_REJECTED"];
const shaOf = (input: unknown) => (input === undefined ? "" : digest(inOrder(input)));

/** Reads an event. The hash of an input counts, so none of its digits may be lost. */
export function decodeEvent(text: string): Reported {
  const event = JSON.parse(text) as Reported;
  if (event.step?.input !== undefined) {
    event.step.input = (parseExactly(text) as { step: StepEvent }).step.input;
  }
  return event;
}

/** A task as the server keeps it. */
export class StoredTask {
  readonly steps = new Map<string, StoredStep>();
  readonly calls = new Map<string, CallEvent>();
  readonly log: Event[] = [];
  /** Sums by model. */
  readonly usage: Record<string, Omit<Usage, "model">> = {};
  checkpoint: Json | undefined;
  ended: StatusUpdate["status"] | undefined;
  wait: WaitEvent | undefined;
  /** By key of a streamed step: the length of the log when it first began. */
  readonly #after = new Map<string, number>();

  apply(e: Reported): void {
    if (this.ended !== undefined || this.wait !== undefined) {
      throw new Refused("nothing may follow the event that ends the run");
    }
    if (e.step !== undefined) {
      this.#applyStep(e.step);
    } else if (e.wait !== undefined) {
      this.#applyWait(e.wait);
    } else if (e.call !== undefined) {
      this.#applyCall(e.call);
    } else if (e.usage !== undefined) {
      this.#applyUsage(e.usage);
    } else if (e.checkpoint !== undefined) {
      this.checkpoint = e.checkpoint;
    } else {
      this.log.push(e);
      if (e.statusUpdate !== undefined && finalStates.includes(e.statusUpdate.status.state)) {
        this.ended = e.statusUpdate.status;
      }
    }
  }

  #applyStep({ input, ...v }: StepEvent): void {
    const old = this.steps.get(v.key);
    const begins = v.artifact !== undefined;
    const step: StoredStep = { attempts: 1, ...v, kind: "step", inputSha: shaOf(input) };
    if (!begins && v.error === undefined) {
      step.result ??= null;
    }
    if (old !== undefined) {
      if (old.kind !== "step" || old.name !== v.name || old.inputSha !== step.inputSha) {
        throw new Refused(`nondeterministic step '${v.key}'`);
      }
      if (old.endedAt !== undefined) {
        if (begins || compact(old.result) !== compact(step.result)) {
          throw new Refused(`a step has the key '${v.key}' already`);
        }
        return;
      }
      const after = this.#after.get(v.key);
      if (v.artifact !== undefined && after !== undefined) {
        this.#restore(v.artifact, after);
      }
      if (old.artifact !== undefined) {
        step.artifact = old.artifact;
      }
    }
    if (begins && !this.#after.has(v.key)) {
      this.#after.set(v.key, this.log.length);
    }
    if (begins || v.nextAt !== undefined) {
      delete step.endedAt;
    } else {
      step.endedAt ??= "now";
    }
    this.steps.set(v.key, step);
  }

  #restore(artifactId: string, after: number): void {
    if (this.log.slice(after).some((e) => e.artifactUpdate?.artifact.artifactId === artifactId)) {
      const parts = fold(this.log.slice(0, after)).get(artifactId) ?? [{ text: "" }];
      this.log.push({ artifactUpdate: { artifact: { artifactId, parts } } });
    }
  }

  #applyWait(wait: WaitEvent): void {
    const old = this.steps.get(wait.key);
    const inputSha = shaOf(wait.input);
    const differs = old !== undefined && old.inputSha !== "" && old.inputSha !== inputSha;
    if (old !== undefined && (old.endedAt !== undefined || old.kind !== "wait" || differs)) {
      throw new Refused(`nondeterministic step '${wait.key}'`);
    }
    if (wait.for !== undefined && !(Number.parseFloat(wait.for) > 0)) {
      throw new Refused("a wait needs until, for, message, signal or tasks");
    }
    this.steps.set(wait.key, { kind: "wait", key: wait.key, inputSha });
    this.wait = wait;
    if (wait.status !== undefined) {
      this.log.push({ statusUpdate: { status: withExpects(wait.status, wait.expects) } });
    }
  }

  #applyCall(call: CallEvent): void {
    const { key, agent, message } = call;
    const inputSha = shaOf(message);
    const old = this.steps.get(key);
    if (old === undefined) {
      this.steps.set(key, { kind: "call", key, agent, inputSha });
      this.calls.set(key, call);
    } else if (old.kind !== "call" || old.agent !== agent || old.inputSha !== inputSha) {
      throw new Refused(`nondeterministic step '${key}'`);
    }
  }

  #applyUsage({ model = "", ...numbers }: Usage): void {
    const sums: Record<string, number> = (this.usage[model] ??= {});
    for (const [name, n] of Object.entries(numbers)) {
      sums[name] = (sums[name] ?? 0) + n;
    }
  }
}

/** Adds what a question expects to its message, where clients find it. */
function withExpects(status: StatusUpdate["status"], expects: Expects | undefined): StatusUpdate["status"] {
  if (expects === undefined) {
    return status;
  }
  const part = { data: expects as Json, metadata: { "a2ad/expects": true } };
  return { ...status, message: { ...status.message, parts: [...(status.message?.parts ?? []), part] } };
}

/** Puts artifacts together from a log. */
export function fold(log: readonly Event[]): Map<string, WirePart[]> {
  const artifacts = new Map<string, WirePart[]>();
  for (const { artifactUpdate: update } of log) {
    if (update !== undefined) {
      const { artifactId, parts } = update.artifact;
      const old = update.append === true ? (artifacts.get(artifactId) ?? []) : [];
      artifacts.set(artifactId, [...old, ...parts]);
    }
  }
  return artifacts;
}
