/**
 * Durable graphs of LangGraph.
 *
 * ```ts
 * import { run } from "@a2ad/worker/langgraph";
 *
 * worker.agent("support", async (task, message) => {
 *   await run(task, (checkpointer) => workflow.compile({ checkpointer }), { messages: [["user", message.text]] });
 * });
 * ```
 *
 * @packageDocumentation
 */
import type { BaseCallbackHandler } from "@langchain/core/callbacks/base";
import { Command, type BaseCheckpointSaver } from "@langchain/langgraph";

import { answerArtifact } from "./frameworks.js";
import { Listener, Queue, type Save } from "./graphevents.js";
import { Saver } from "./graphsaver.js";
import { runAsPart } from "./scope.js";
import type { Task } from "./task.js";

/** A graph that LangGraph has compiled. */
export interface CompiledGraph {
  stream(input: unknown, options?: object): Promise<AsyncIterable<unknown>>;
  getState(config: object): Promise<{ values: unknown }>;
}

export interface RunOptions {
  /** Passed to the graph. Its `thread_id` is that of the task. */
  config?: { callbacks?: BaseCallbackHandler[]; configurable?: Record<string, unknown>; [option: string]: unknown };
  /** The artifact to which the text of chat models is written while it comes; default `answer`. With null, it is not. */
  artifact?: string | null;
  /** Asks the client what a node gave to `interrupt`, and returns the answer; default `ask`. */
  ask?: (task: Task, value: unknown) => Promise<unknown>;
}

/**
 * Asks the client what the graph wants to know, and returns the answer. The value is the text of a question, or an object
 * with `question` and, if the answer is not a text, `choices` or `schema`.
 */
export async function ask(task: Task, value: unknown): Promise<unknown> {
  if (typeof value !== "object" || value === null || !("question" in value)) {
    return await task.ask(typeof value === "string" ? value : JSON.stringify(value));
  }
  const { question, choices, schema } = value as { question: string; choices?: string[]; schema?: object };
  if (schema !== undefined) {
    return await task.ask(question, { schema });
  }
  return await task.ask(question, choices === undefined ? {} : { choices });
}

/**
 * Runs a graph as part of a task, and returns its final state.
 *
 * `compile` gets the checkpointer with which it must compile the graph. What each node has returned is recorded in a step.
 * When the agent runs again, after a crash or a wait, the graph continues after these nodes.
 */
export async function run<State = Record<string, unknown>>(
  task: Task,
  compile: (checkpointer: BaseCheckpointSaver) => CompiledGraph,
  input: unknown,
  options: RunOptions = {},
): Promise<State> {
  const queue = new Queue();
  const saver = new Saver(queue);
  const graph = compile(saver);
  const { config = {}, artifact = answerArtifact } = options;
  const merged = {
    ...config,
    configurable: { ...config.configurable, thread_id: task.id },
    callbacks: [...(config.callbacks ?? []), new Listener(queue)],
  };
  for (let next = input; ; ) {
    const leg = new Leg(task, graph, saver, queue, next, merged, artifact);
    try {
      while (!(await leg.advance()));
    } finally {
      leg.stop();
    }
    const questions = await saver.questions(merged);
    if (questions.length === 0) {
      return (await graph.getState(merged)).values as State;
    }
    const resume: Record<string, unknown> = {};
    for (const { id = "", value } of questions) {
      resume[id] = await (options.ask ?? ask)(task, value);
    }
    next = new Command({ resume });
  }
}

/** The work of a graph from its beginning, or from an answer, to a question or its end. */
class Leg {
  readonly #abort = new AbortController();
  #running: Promise<void> | undefined;
  #unsaved: Save[] = [];
  readonly #questions: Save[] = [];

  constructor(
    private readonly task: Task,
    private readonly graph: CompiledGraph,
    private readonly saver: Saver,
    private readonly queue: Queue,
    private readonly input: unknown,
    private readonly config: object,
    private readonly artifact: string | null,
  ) {}

  /** Does or skips the work up to the next record. Returns whether the leg is at its end. */
  async advance(): Promise<boolean> {
    const done: Save[] = [];
    const recorded = await this.task.step("graph", async () => {
      if (this.#running === undefined) {
        await this.#start();
      }
      const ended = await this.#next(done);
      return { saved: done.map((s) => s.record), ended };
    });
    if (done.length === 0) {
      for (const record of recorded.saved) {
        await this.saver.restore(record);
      }
    }
    for (const save of done) {
      save.letGo();
    }
    return recorded.ended;
  }

  /**
   * Writes what models say until there is something to record. Returns whether it is the end.
   *
   * A node that is cut off runs again, and says everything again. So a record, with the text before it, must not be cut
   * between the beginning and the end of a node that speaks.
   */
  async #next(done: Save[]): Promise<boolean> {
    const speaking = new Set<string>();
    for (;;) {
      const event = await this.queue.next();
      if (event.kind === "end") {
        await this.#running; // throws what the graph has thrown
        done.push(...this.#unsaved, ...this.#questions);
        return true;
      }
      if (event.kind === "usage") {
        await this.task.usage(event.usage);
      } else if (event.kind === "save") {
        this.#take(event, speaking);
        if (this.#unsaved.length > 0 && speaking.size === 0) {
          done.push(...this.#unsaved);
          this.#unsaved = [];
          return false;
        }
      } else if (this.artifact !== null) {
        speaking.add(event.node);
        await this.task.artifact(this.artifact).write(event.text);
      }
    }
  }

  #take(save: Save, speaking: Set<string>): void {
    // If a question were recorded before the end of the leg, a crash between the two would give the answer to the last
    // question to this one.
    (save.question ? this.#questions : this.#unsaved).push(save);
    const { writer } = save;
    if (writer !== undefined) {
      for (const node of speaking) {
        if (node.includes(writer)) {
          speaking.delete(node);
        }
      }
    } else if (save.namespace === "") {
      speaking.clear(); // a superstep of the whole graph has ended
    }
    if (speaking.size > 0) {
      for (const waiting of this.#unsaved) {
        waiting.letGo(); // the graph must not wait for a record that waits for the graph
      }
    }
  }

  async #start(): Promise<void> {
    const begun = (await this.saver.getTuple(this.config)) !== undefined;
    const input = begun && !(this.input instanceof Command) ? null : this.input;
    this.#running = runAsPart(() => this.#run(input));
    const end = () => {
      this.queue.put({ kind: "end" });
    };
    this.#running.then(end, end);
  }

  async #run(input: unknown): Promise<void> {
    // "messages" makes models stream. The text itself comes by the callbacks, before the node that wanted it is done.
    const signal = AbortSignal.any([this.task.abortSignal, this.#abort.signal]);
    const options = { ...this.config, signal, streamMode: ["messages"], durability: "sync" };
    const events = (await this.graph.stream(input, options))[Symbol.asyncIterator]();
    while ((await events.next()).done !== true);
  }

  stop(): void {
    this.#abort.abort();
  }
}
