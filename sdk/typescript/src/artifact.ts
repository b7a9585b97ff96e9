/** What an agent sends to the client: text that streams, artifacts, statuses. */
import type { Caller } from "./call.js";
import { flag, options as checkOptions, text as checkText } from "./check.js";
import { UsageError } from "./errors.js";
import { bindMethods, explained } from "./explained.js";
import { compact, digest, fingerprint, withInput } from "./json.js";
import { currentStep, nextKey, outsideGather, outsideSteps } from "./scope.js";
import { changeOf } from "./segments.js";
import type { Session } from "./session.js";
import { beginStream } from "./step.js";
import { addUsage, usageEvent, type Usage } from "./usage.js";
import { encodeParts, type NewPart } from "./wire.js";

/** About a file or a link. */
export interface FileOptions {
  filename?: string;
  mediaType?: string;
}

export interface AppendOptions {
  /** Whether the part is added to the artifact. Otherwise it replaces it. Default false. */
  append?: boolean;
}

/**
 * An artifact that the agent writes. `Task.artifact` returns it. Await its methods. They throw UsageError for content
 * that the server would refuse.
 */
export class ArtifactWriter {
  readonly #caller: Caller;

  /** @internal */
  constructor(
    caller: Caller,
    readonly id: string,
    readonly name: string,
  ) {
    this.#caller = caller.of("task.artifact(…)");
    bindMethods(this);
  }

  /** Appends text, like `Task.write`. */
  write(text: string): Promise<void> {
    return this.#caller.start("write", () => write(this.#caller.session, this.id, this.name, text));
  }

  /** Sends a value of up to 1 MiB of JSON. */
  data(value: unknown, options: AppendOptions = {}): Promise<void> {
    return this.#send("data", () => {
      checkOptions(options, "data", ["append"]);
      return [{ data: value === undefined ? null : value }, options.append];
    });
  }

  /** Sends a file of up to 768 KiB. */
  file(content: Uint8Array, options: FileOptions & AppendOptions = {}): Promise<void> {
    return this.#send("file", () => {
      checkOptions(options, "file", ["filename", "mediaType", "append"]);
      const { append, ...about } = options;
      return [{ raw: present(content), ...about }, append];
    });
  }

  /** Sends a link to a file. */
  link(url: string, options: FileOptions & AppendOptions = {}): Promise<void> {
    return this.#send("link", () => {
      checkOptions(options, "link", ["filename", "mediaType", "append"]);
      const { append, ...about } = options;
      return [{ url: present(url), ...about }, append];
    });
  }

  /** Replaces the artifact with text of up to 1 MiB. */
  replace(text: string): Promise<void> {
    return this.#send("replace", () => [{ text: present(text) }, false]);
  }

  #send(method: string, make: () => [NewPart, boolean | undefined]): Promise<void> {
    return this.#caller.start(method, async () => {
      const { session } = this.#caller;
      const [part, append = false] = make();
      flag(append, "append");
      outsideGather(session, "an artifact");
      const parts = encodeParts([part]);
      const artifact = { artifactId: this.id, parts, ...(this.name !== "" && { name: this.name }) };
      await once(session, `artifact:${this.id}`, "artifact", {
        artifactUpdate: { artifact, ...(append && { append }) },
      });
    });
  }
}

explained(ArtifactWriter);

function present<T>(content: T): T {
  if (content === undefined || content === null) {
    throw new UsageError("the content of an artifact must not be undefined or null");
  }
  return content;
}

/** @internal Appends text to an artifact, from the running step or from the agent's function. */
export async function write(session: Session, id: string, name: string, text: string): Promise<void> {
  checkText(text, "the text", Number.POSITIVE_INFINITY);
  const step = currentStep(session);
  if (step === undefined) {
    outsideGather(session, "write");
    await session.segments.write(id, name, text);
    return;
  }
  if (step.begun !== id) {
    if (step.begun !== "") {
      throw new UsageError(
        `step '${step.name}' writes to '${step.begun}' and '${id}'; a step can write to only one artifact`,
      );
    }
    session.segments.continue(id); // what is written before the step does not belong to it
    beginStream(step, id);
  }
  await session.chunk(id, name, step.pairs.add(text));
}

/** @internal */
export async function sendStatus(session: Session, text: string): Promise<void> {
  checkText(text, "the status");
  const status = { state: "TASK_STATE_WORKING", message: { parts: [{ text }] } };
  await once(session, "status", "status", { statusUpdate: { status } });
}

/** @internal Reports what a model used: with the record of the running step, or by itself. */
export async function reportUsage(session: Session, usage: Usage): Promise<void> {
  const event = usageEvent(usage);
  const step = currentStep(session);
  if (step !== undefined) {
    addUsage(step.usage, event);
    step.span.usage(event);
  } else if (await once(session, "usage", "usage", { usage: event })) {
    session.span.usage(event);
  }
}

interface Output {
  readonly artifactUpdate?: { readonly artifact: { readonly artifactId: string } };
  readonly statusUpdate?: object;
  readonly usage?: Usage;
}

/**
 * Sends an event, and records in the same transaction that it was sent. Returns whether this attempt sent it.
 */
async function once(session: Session, name: string, kind: string, event: Output): Promise<boolean> {
  outsideSteps(session, kind);
  if (!session.replay) {
    if (event.artifactUpdate !== undefined) {
      if (session.segments.changed(event.artifactUpdate.artifact.artifactId, changeOf(event))) {
        return false;
      }
    }
    session.add(event);
  } else {
    const key = nextKey(session, name);
    // Work that is done again may use another number of tokens.
    const sent = kind === "usage" ? undefined : fingerprint(event);
    if (session.recorded(key, "step", kind, digest(sent)) !== undefined) {
      session.check();
      session.segments.close();
      return false;
    }
    session.addRaw(compact(event), `{"step":${withInput({ key, name: kind }, sent)}}`);
  }
  await session.flush();
  return true;
}
