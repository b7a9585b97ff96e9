/** Waits: pauses, signals, questions, and calls to other agents. */
import { agent as checkAgent, flag, name as checkName, options as checkOptions, text as checkText } from "./check.js";
import { waitSeconds, type Duration } from "./check.js";
import { A2adError, CallError, Stopped, TimeoutError, UsageError } from "./errors.js";
import { compact, digest, fingerprint, withInput, type Json } from "./json.js";
import { currentBranch, nextKey, outsideSteps } from "./scope.js";
import type { Session } from "./session.js";
import { Artifact, encodeParts, isRecord, Message, type NewPart } from "./wire.js";

/** What the task waits for: calls, a time, or both. */
export interface Wait {
  /** Keys of calls. */
  readonly calls: readonly string[];
  /** Milliseconds since 1970. */
  readonly until?: number;
  /** The key of the wait that ends at that time. */
  readonly key?: string;
}

/** Why a wait is over. */
export interface WaitResult {
  readonly by: string;
  readonly value?: Json;
  readonly messageId?: string;
}

/** What the server is told of a wait. */
interface Condition {
  readonly for?: string;
  readonly until?: string;
  readonly [member: string]: unknown;
}

/** What a called agent has done. */
export interface CallResult {
  readonly taskId: string;
  /** `completed`: for any other, the call throws CallError. */
  readonly state: string;
  /** The text of the last message or, if it has none, of the artifacts, one a line. */
  readonly text: string;
  readonly message: Message | undefined;
  /** If the called task is larger than 16 KiB, these have ids but no parts. */
  readonly artifacts: readonly Artifact[];
}

/** @internal Returns the result of a wait that has ended. Otherwise it begins the wait, and throws Stopped. */
export async function wait(session: Session, key: string, condition: Condition, inGather = false): Promise<WaitResult> {
  outsideSteps(session, "a wait");
  if (!inGather && currentBranch(session) !== undefined) {
    throw new UsageError("gather can contain steps and calls, but no other waits");
  }
  const asked = Object.entries(condition).filter(([member]) => member !== "for" && member !== "until");
  const sent = fingerprint(Object.fromEntries(asked)); // a time may be computed anew each time
  const old = session.recorded(key, "wait", "", digest(sent));
  session.check();
  if (old?.ended === true) {
    session.segments.close();
    return { by: "time", ...(isRecord(old.result) && old.result) };
  }
  session.checkOpen();
  session.addRaw(`{"wait":${withInput({ key, ...condition }, sent)}}`);
  await session.flush();
  const stopped = new Stopped("waiting", "the task waits");
  stopped.place(session.calling.get("")?.toString() ?? "");
  session.stop(stopped);
  throw stopped;
}

/** @internal Lets the task wait, or a branch of `gather`. */
export async function beginWait(session: Session, what: Wait, key: string, any = false): Promise<never> {
  const branch = currentBranch(session);
  if (branch !== undefined) {
    await branch.group.block(branch.number, what);
  }
  await wait(
    session,
    key,
    {
      ...(what.calls.length > 0 && { tasks: what.calls, ...(any && { mode: "any" }) }),
      // A duration, because the clocks of worker and server may differ.
      ...(what.until !== undefined && {
        for: waitSeconds(Math.max((what.until - session.clock.now()) / 1000, 0), "the pause"),
      }),
    },
    true,
  );
  throw new UsageError(`the wait '${key}' ended before what it is for`);
}

/** @internal */
export async function waitForSignal(session: Session, name: string, options: { timeout?: Duration }): Promise<Json> {
  checkName(name, "the name of a signal");
  checkOptions(options, "signal", ["timeout"]);
  const condition = { signal: name, ...limit(options.timeout) };
  const result = await wait(session, nextKey(session, `signal:${name}`), condition);
  if (result.by !== "signal") {
    throw new TimeoutError(`the signal '${name}' did not come in time`);
  }
  return result.value ?? null;
}

/** @internal Asks the client, and returns the message with the answer. */
export async function question(
  session: Session,
  state: "TASK_STATE_INPUT_REQUIRED" | "TASK_STATE_AUTH_REQUIRED",
  text: string,
  expects: object | undefined,
  timeout: Duration | undefined,
): Promise<Message> {
  checkText(text, "the question");
  const condition = {
    message: true,
    status: { state, message: { parts: encodeParts([{ text }]) } },
    ...(expects !== undefined && { expects }),
    ...limit(timeout),
  };
  const result = await wait(session, nextKey(session, "ask"), condition);
  if (result.by !== "message") {
    throw new TimeoutError(`no answer in time to: ${text}`);
  }
  return answer(session, result.messageId);
}

/** Returns the message that answers a question: the next one with the id, which clients reuse. */
function answer(session: Session, id: string | undefined): Message {
  const { messages } = session.run;
  const at = messages.findIndex((m, i) => i > session.answered && m.id === id);
  const found = messages[at];
  if (found === undefined) {
    throw new A2adError(`the run has no message '${id ?? ""}', which answered a question`);
  }
  session.answered = at;
  return found;
}

/** @internal Gives a task to another agent, and waits until it has ended. */
export async function callAgent(
  session: Session,
  agent: string,
  message: string | Message | readonly NewPart[],
  options: { abandon?: boolean },
): Promise<CallResult> {
  checkAgent(agent);
  checkOptions(options, "call", ["abandon"]);
  const abandon = flag(options.abandon ?? false, "abandon");
  const said = typeof message === "string" ? [{ text: message }] : message instanceof Message ? message.parts : message;
  if (!Array.isArray(said)) {
    throw new UsageError(`the message must be a string, a Message or an array of parts, not ${typeof said}`);
  }
  const sent = compact({ parts: encodeParts(said as readonly NewPart[]) }, true);
  outsideSteps(session, "a call");
  const key = nextKey(session, `call:${agent}`);
  const old = session.recorded(key, "call", agent, digest(sent));
  if (old === undefined) {
    const end = abandon ? ',"onParentEnd":"abandon"' : "";
    session.addRaw(`{"call":${compact({ key, agent }).slice(0, -1)},"message":${sent}${end}}}`);
  }
  if (old?.ended !== true) {
    return await beginWait(session, { calls: [key] }, `${key}/wait`);
  }
  session.check();
  session.segments.close();
  return callResult(agent, old.result);
}

function callResult(agent: string, value: Json | undefined): CallResult {
  const v = isRecord(value) ? value : {};
  const state = typeof v.state === "string" ? v.state : "";
  const message = isRecord(v.message) ? Message.decode(v.message) : undefined;
  const artifacts = Array.isArray(v.artifacts) ? v.artifacts.map((a) => Artifact.decode(a)) : [];
  const last = message?.text ?? "";
  const result = {
    taskId: typeof v.taskId === "string" ? v.taskId : "",
    state: state
      .replace(/^TASK_STATE_/, "")
      .toLowerCase()
      .replaceAll("_", "-"),
    text: last === "" ? artifacts.flatMap((a) => (a.text === "" ? [] : [a.text])).join("\n") : last,
    message,
    artifacts,
  };
  if (result.state !== "completed") {
    throw new CallError(agent, result.state, result.text);
  }
  return result;
}

function limit(timeout: Duration | undefined): { for?: string } {
  return timeout === undefined ? {} : { for: waitSeconds(timeout, "timeout") };
}
