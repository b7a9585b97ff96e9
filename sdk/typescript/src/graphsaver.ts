// The checkpointer of a graph of LangGraph: it keeps everything in memory, and hands it over to be recorded.
import { INTERRUPT, MemorySaver, type Interrupt } from "@langchain/langgraph";

import type { Queue } from "./graphevents.js";

type Put = Parameters<MemorySaver["put"]>;
type PutWrites = Parameters<MemorySaver["putWrites"]>;
type Config = Put[0];
type NewVersions = Record<string, number | string>;

// What LangGraph saves for a node beside the values that the node returns. It does not export these names.
const answered = "__resume__";
const nothing = "__no_writes__";
const failed = "__error__";
const failureHandled = "__error_source_node__";
/** The id under which LangGraph saves what is of no node. */
const nobody = "00000000-0000-0000-0000-000000000000";

export class Saver extends MemorySaver {
  constructor(private readonly queue: Queue) {
    super();
  }

  override async put(config: Config, checkpoint: Put[1], metadata: Put[2], changed: NewVersions = {}): Promise<Config> {
    const place = placeOf(config);
    const names = Object.keys(checkpoint.channel_values);
    // The other values are those of the checkpoint before.
    const values = Object.entries(checkpoint.channel_values).filter(([name]) => name in changed);
    const saved = { ...checkpoint, channel_values: Object.fromEntries(values) };
    const record = await this.#encode("checkpoint", [place, saved, metadata, names]);
    await new Promise<void>((letGo) => {
      const namespace = place.checkpoint_ns;
      this.queue.put({ kind: "save", record, namespace, writer: undefined, question: false, letGo });
    });
    return await super.put(config, checkpoint, metadata);
  }

  override async putWrites(...[config, given, taskId, taskPath = ""]: PutWrites): Promise<void> {
    const writes = [...given];
    // LangGraph marks a node that has returned nothing, but not if it also has an answer. Without the mark, the node
    // would run and ask again when the graph continues because of another node.
    if (taskId !== nobody && writes.length > 0 && writes.every(([channel]) => channel === answered)) {
      writes.push([nothing, null]);
    }
    await super.putWrites(config, writes, taskId, taskPath);
    const channels = new Set(writes.map(([channel]) => channel));
    // A node that has failed runs again in the next attempt. If its answers were recorded, LangGraph would then add the
    // last one a second time, as the answer to the next question.
    if (channels.has(failed) && !channels.has(failureHandled)) {
      return;
    }
    const place = placeOf(config);
    const record = await this.#encode("writes", [place, writes, taskId, taskPath]);
    const letGo = () => undefined; // the graph does not wait
    const question = channels.has(INTERRUPT);
    this.queue.put({ kind: "save", record, namespace: place.checkpoint_ns, writer: taskId, question, letGo });
  }

  /** Returns what nodes have given to `interrupt` and have no answer to. */
  async questions(config: Config): Promise<Interrupt[]> {
    const writes = (await this.getTuple(config))?.pendingWrites ?? [];
    const unfinished: readonly string[] = [INTERRUPT, answered, failed];
    // A node that has its answer and is done, while others ask again, still has its question here.
    const finished = new Set(writes.filter(([, channel]) => !unfinished.includes(channel)).map(([node]) => node));
    const asked = writes.filter(([node, channel]) => channel === INTERRUPT && !finished.has(node));
    return asked.flatMap(([, , value]) => value as Interrupt | Interrupt[]);
  }

  /** Saves again what is recorded. */
  async restore([kind, form = "", content = ""]: readonly string[]): Promise<void> {
    const bytes = Buffer.from(content, "base64");
    const [place, ...values] = (await this.serde.loadsTyped(form, bytes)) as [ReturnType<typeof placeOf>, ...unknown[]];
    const config: Config = { configurable: place };
    if (kind === "writes") {
      const [writes, taskId, taskPath] = values as [PutWrites[1], string, string];
      await super.putWrites(config, writes, taskId, taskPath);
      return;
    }
    const [saved, metadata, names] = values as [Put[1], Put[2], string[]];
    const before = place.checkpoint_id === undefined ? undefined : await this.getTuple(config);
    const all: Record<string, unknown> = { ...before?.checkpoint.channel_values, ...saved.channel_values };
    const channel_values = Object.fromEntries(names.map((name) => [name, all[name]]));
    await super.put(config, { ...saved, channel_values }, metadata);
  }

  async #encode(kind: string, value: unknown): Promise<string[]> {
    const [form, content] = await this.serde.dumpsTyped(value);
    return [kind, form, Buffer.from(content).toString("base64")];
  }
}

/** Returns where in a thread a config is. */
function placeOf({ configurable = {} }: Config) {
  const { thread_id, checkpoint_ns, checkpoint_id } = configurable as Record<string, string | undefined>;
  return {
    ...{ thread_id, checkpoint_ns: checkpoint_ns ?? "" },
    ...(checkpoint_id !== undefined && checkpoint_id !== "" && { checkpoint_id }),
  };
}
