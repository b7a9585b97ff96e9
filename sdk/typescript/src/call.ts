import { CallError } from "./errors.js";
import { Artifact, Message, type Recorded, type WireArtifact, type WireMessage } from "./wire.js";

/** What a called agent has done. */
export interface CallResult {
  taskId: string;
  /** Such as `completed`. */
  state: string;
  /** The text of the last message, or of the artifacts if that has none. */
  text: string;
  message: Message | undefined;
  /** If they are larger than 16 KiB together, they have ids but no parts. */
  artifacts: readonly Artifact[];
}

/** Reads the result of a call that is recorded. */
export function callResult(agent: string, step: Recorded): CallResult {
  const v = (step.result ?? {}) as { taskId?: string; state?: string; message?: unknown; artifacts?: unknown[] };
  const state = (v.state ?? "").replace(/^TASK_STATE_/, "").toLowerCase().replaceAll("_", "-");
  const message = v.message === undefined ? undefined : Message.decode(v.message as WireMessage);
  const artifacts = (v.artifacts ?? []).map((a) => Artifact.decode(a as WireArtifact));
  const text =
    message !== undefined && message.text !== ""
      ? message.text
      : artifacts.flatMap((a) => (a.text === "" ? [] : [a.text])).join("\n");
  if (state !== "completed") {
    throw new CallError(agent, state, text);
  }
  return { taskId: v.taskId ?? "", state, text, message, artifacts };
}
