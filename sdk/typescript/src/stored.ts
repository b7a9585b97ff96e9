import { Refused } from "./errors.js";
import { digest } from "./values.js";
import type { Json, Recorded, Usage, WireArtifact, WireMessage, WirePart } from "./wire.js";

export interface StatusUpdate {
  status: { state: string; message?: WireMessage };
}

interface ArtifactUpdate {
  artifact: WireArtifact;
  append?: boolean;
}

/** An event of the log. */
export interface Event {
  statusUpdate?: StatusUpdate;
  artifactUpdate?: ArtifactUpdate;
}

export interface Wait {
  key: string;
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
interface Expects {
  choices?: string[];
  schema?: Json;
}

export interface Call {
  key: string;
  agent: string;
  message: { parts: WirePart[] };
}

interface StepEvent extends Omit<Recorded, "seq" | "kind"> {
  input?: Json;
}

export interface Reported extends Event {
  step?: StepEvent;
  wait?: Wait;
  call?: Call;
  checkpoint?: Json;
  usage?: Usage;
}

const finalStates = new Set(["TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_REJECTED"]);

/** A task as the server keeps it. */
export class StoredTask {
  readonly steps = new Map<string, Recorded>();
  readonly called = new Map<string, Call>();
  readonly log: Event[] = [];
  readonly usage: Record<string, Omit<Usage, "model">> = {};
  checkpoint: Json | undefined;
  ended: StatusUpdate["status"] | undefined;
  wait: Wait | undefined;
  /** How long the log was when a step that streams began. */
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
      if (e.statusUpdate !== undefined && finalStates.has(e.statusUpdate.status.state)) {
        this.ended = e.statusUpdate.status;
      }
    }
  }

  #applyStep({ input, ...v }: StepEvent): void {
    const old = this.steps.get(v.key);
    const inputSha = input === undefined ? "" : digest(JSON.stringify(input));
    const begins = v.artifact !== undefined;
    const step: Recorded = { attempts: 1, ...v, seq: old?.seq ?? this.steps.size + 1, kind: "step", inputSha };
    if (!begins && v.error === undefined) {
      step.result ??= null;
    }
    if (old !== undefined) {
      if (old.kind !== "step" || old.name !== v.name || old.inputSha !== inputSha) {
        throw new Refused(`nondeterministic step "${v.key}"`);
      }
      if (old.endedAt !== undefined) {
        if (begins || JSON.stringify(old.result) !== JSON.stringify(step.result)) {
          throw new Refused(`a step has the key "${v.key}" already`);
        }
        return;
      }
      if (begins) {
        this.#restore(v.artifact ?? "", this.#after.get(v.key) ?? 0);
      }
      if (old.artifact !== undefined) {
        step.artifact = old.artifact;
      }
    } else if (begins) {
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

  #applyWait(wait: Wait): void {
    const old = this.steps.get(wait.key);
    if (old !== undefined && (old.endedAt !== undefined || old.kind !== "wait")) {
      throw new Refused(`nondeterministic step "${wait.key}"`);
    }
    this.steps.set(wait.key, { seq: old?.seq ?? this.steps.size + 1, kind: "wait", key: wait.key });
    this.wait = wait;
    if (wait.status !== undefined) {
      this.log.push({ statusUpdate: { status: withExpects(wait.status, wait.expects) } });
    }
  }

  #applyCall(call: Call): void {
    if (!this.steps.has(call.key)) {
      this.steps.set(call.key, { seq: this.steps.size + 1, kind: "call", key: call.key, agent: call.agent });
      this.called.set(call.key, call);
    }
  }

  #applyUsage({ model = "", ...numbers }: Usage): void {
    const total: Record<string, number> = (this.usage[model] ??= {});
    for (const [name, n] of Object.entries(numbers)) {
      total[name] = (total[name] ?? 0) + n;
    }
  }
}

/** Adds what a question expects to its message, where clients find it. */
function withExpects(status: StatusUpdate["status"], expects: Expects | undefined): StatusUpdate["status"] {
  if (expects === undefined) {
    return status;
  }
  const part = { data: expects as Json, metadata: { "a2ad/expects": true } };
  return { ...status, message: { parts: [...(status.message?.parts ?? []), part] } };
}

/** Puts artifacts together from a log. */
export function fold(log: readonly Event[]): Map<string, WirePart[]> {
  const artifacts = new Map<string, WirePart[]>();
  for (const { artifactUpdate: u } of log) {
    if (u !== undefined) {
      const old = u.append === true ? (artifacts.get(u.artifact.artifactId) ?? []) : [];
      artifacts.set(u.artifact.artifactId, [...old, ...(u.artifact.parts ?? [])]);
    }
  }
  return artifacts;
}
