import { execute, type Agent, type AgentFunction } from "./agent.js";
import { refusal, short } from "./answers.js";
import type { Clock } from "./clock.js";
import { A2adError, Refused, Stopped } from "./errors.js";
import { plain, type Json } from "./json.js";
import { silent } from "./log.js";
import { decodeEvent, fold, StoredTask, type StatusUpdate, type WaitEvent } from "./memory.js";
import { requestText } from "./outcome.js";
import { maxEvents } from "./outbox.js";
import { Session } from "./session.js";
import type { Result, Said, TestOptions } from "./testing.js";
import { Artifact, decodeRun, encodeParts, Message, Recorded, type Run, type WirePart } from "./wire.js";

const start = Date.UTC(2026, 0, 1);
const maxRuns = 10_000;
const maxRequest = 4 << 20;

/** The task waits for something that the test does not provide, or never ends. `where` is the line that waits. */
export class Stuck extends A2adError {
  override name = "Stuck";
}

/**
 * The server would refuse an answer of the test. The text says what the question expects.
 *
 * Answers are checked against `choices`, and against a JSON Schema except for `not`, `format`, `if`, `contains`,
 * `uniqueItems`, `multipleOf`, `propertyNames`, `dependent…` and `unevaluated…`. Of `oneOf`, one or more may fit.
 */
export class WrongAnswer extends A2adError {
  override name = "WrongAnswer";
}

/** Where to crash: at the n-th request, before or after the server has stored it. */
export interface Crashes {
  readonly at: number;
  readonly stored: boolean;
  requests: number;
  /** What the request records at which the crash is. */
  what: string;
}

/** @internal A server with one task, its client and the called agents, in memory. */
export class TestServer {
  readonly #agent: Agent;
  readonly #options: TestOptions;
  readonly #answer: (question: string) => Said | undefined;
  readonly #signals: Map<string, Json>;
  readonly #task = new StoredTask();
  readonly #messages: { messageId: string; role: string; parts: WirePart[] }[] = [];
  readonly #questions: string[] = [];
  #attempt = 1;
  #epoch = 0;
  #now = start;

  constructor(
    run: AgentFunction,
    message: Said,
    options: TestOptions,
    where: string,
    private readonly crashes: Crashes,
  ) {
    this.#agent = { name: "test", run, concurrency: 1, replay: options.handler !== true, where };
    this.#options = options;
    const { answers = [] } = options;
    const rest = typeof answers === "function" ? [] : [...answers];
    this.#answer = typeof answers === "function" ? answers : () => rest.shift();
    const signals = Object.entries(options.signals ?? {});
    this.#signals = new Map(signals.map(([name, value]) => [name, plain(value, `the signal '${name}'`)[1]]));
    this.#say(message);
  }

  readonly #clock: Clock = {
    now: () => this.#now,
    monotonic: () => this.#now / 1000,
    sleep: (seconds) => {
      this.#now += seconds * 1000;
      return Promise.resolve();
    },
    sendLater(_, send) {
      const soon = setImmediate(send);
      return () => {
        clearImmediate(soon);
      };
    },
  };

  #say(said: Said): string {
    const messageId = `message-${this.#messages.length + 1}`;
    this.#messages.push({ messageId, role: "ROLE_USER", parts: partsSaid(said) });
    return messageId;
  }

  /** Stores events: see Reporter. */
  async report(run: Run, events: readonly string[]): Promise<boolean> {
    await Promise.resolve();
    const crash = ++this.crashes.requests === this.crashes.at;
    const reported = events.map(decodeEvent);
    if (crash) {
      this.crashes.what = requestText(reported);
    }
    if (crash && !this.crashes.stored) {
      throw new Stopped("crashed");
    }
    if (run.epoch !== this.#epoch) {
      throw new Stopped("lost");
    }
    if (events.length > maxEvents || events.reduce((sum, e) => sum + Buffer.byteLength(e), 0) > maxRequest) {
      throw new Refused("the request is too large");
    }
    reported.forEach((e) => {
      this.#task.apply(e);
    });
    if (crash) {
      throw new Stopped("crashed");
    }
    return false;
  }

  async run(): Promise<Result> {
    const task = this.#task;
    while (task.ended === undefined) {
      if (++this.#epoch > maxRuns) {
        throw new Stuck(`the agent ran ${maxRuns} times without an end`);
      }
      const { logger = silent } = this.#options;
      const session = new Session(this.#run(), this, { replay: this.#agent.replay, clock: this.#clock, logger });
      const ending = await execute(this.#agent, session);
      session.close();
      if (ending.error !== undefined) {
        throw ending.error;
      }
      if (ending.outcome === "crashed" && this.#isOpen()) {
        this.#again("crashed");
      } else if (ending.outcome === "retry") {
        this.#now += (ending.after ?? 1) * 1000;
        this.#again(ending.reason ?? "");
      }
      if (task.wait !== undefined) {
        this.#continue(task.wait, session.stopped instanceof Stopped ? session.stopped.where : "");
      }
    }
    return this.#result(task.ended);
  }

  #isOpen(): boolean {
    return this.#task.ended === undefined && this.#task.wait === undefined;
  }

  #run(): Run {
    const { steps, log, checkpoint } = this.#task;
    const run = {
      taskId: "task-1",
      contextId: "context-1",
      contextKey: "key-1",
      tenant: "default",
      owner: "test",
      agent: this.#agent.name,
      epoch: this.#epoch,
      attempt: this.#attempt,
      messages: this.#messages,
      steps: [...steps.values()],
      stepCount: steps.size,
      task: {
        history: this.#messages,
        artifacts: [...fold(log)].map(([artifactId, parts]) => ({ artifactId, parts })),
      },
      ...(checkpoint !== undefined && { checkpoint }),
    };
    return decodeRun(structuredClone(run), 0);
  }

  #again(reason: string): void {
    if (++this.#attempt > (this.#options.maxAttempts ?? 5)) {
      this.#task.ended = { state: "TASK_STATE_FAILED", message: { parts: [{ text: reason }] } };
    }
  }

  /** Ends the wait of the task as the test says. `where` is the line that waits. */
  #continue(wait: WaitEvent, where: string): void {
    this.#task.wait = undefined;
    this.#attempt = 1;
    const step = this.#task.steps.get(wait.key);
    try {
      Object.assign(step ?? {}, { result: this.#over(wait), endedAt: "now" });
    } catch (err) {
      throw err instanceof A2adError ? err.place(where) : err;
    }
  }

  #over(wait: WaitEvent): Json {
    if (wait.tasks !== undefined && this.#doCalls(wait.tasks, wait)) {
      return { by: "tasks" };
    }
    if (wait.signal !== undefined && this.#signals.has(wait.signal)) {
      const value = this.#signals.get(wait.signal) ?? null;
      this.#signals.delete(wait.signal);
      return { by: "signal", name: wait.signal, value };
    }
    if (wait.message === true) {
      const { text } = wait.status?.message?.parts[0] ?? {};
      const question = typeof text === "string" ? text : "";
      this.#questions.push(question);
      const answer = this.#answer(question);
      if (answer !== undefined) {
        return { by: "message", messageId: this.#accept(answer, question, wait) };
      }
    }
    if (wait.for !== undefined) {
      this.#now += Number.parseFloat(wait.for) * 1000;
    } else if (wait.until !== undefined) {
      this.#now = Math.max(this.#now, Date.parse(wait.until));
    } else {
      throw new Stuck(this.#missing(wait));
    }
    return { by: "time" };
  }

  #accept(answer: Said, question: string, wait: WaitEvent): string {
    const said = Message.decode({ parts: partsSaid(answer) });
    const why = refusal(said, wait.expects ?? {});
    if (why !== "") {
      const shown = short(said.data ?? said.text, 200);
      throw new WrongAnswer(`the server refuses the answer ${shown} to '${question}': ${why}`);
    }
    return this.#say(answer);
  }

  #missing(wait: WaitEvent): string {
    if (wait.signal !== undefined) {
      return `the agent waits for the signal '${wait.signal}': pass signals: { '${wait.signal}': … }`;
    }
    const { length } = this.#questions;
    return `the agent asks '${this.#questions.at(-1) ?? ""}' (question ${length}): pass its answer in answers: […]`;
  }

  /** Ends the called tasks that the wait is for: all, or the first one. */
  #doCalls(keys: readonly string[], { mode }: WaitEvent): boolean {
    const open = keys.filter((k) => this.#task.steps.get(k)?.endedAt === undefined);
    for (const key of mode === "any" ? open.slice(0, 1) : open) {
      const call = this.#task.calls.get(key);
      const step = this.#task.steps.get(key);
      const agent = call?.agent ?? "";
      const does = this.#options.calls?.[agent];
      if (call === undefined || step === undefined || does === undefined) {
        throw new Stuck(`the agent calls '${agent}': pass calls: { '${agent}': … } with its answer`);
      }
      const text = call.message.parts.flatMap((p) => (typeof p.text === "string" ? [p.text] : [])).join("\n");
      const parts = partsSaid(typeof does === "function" ? (does as (text: string) => Said)(text) : does);
      step.result = { taskId: `${key}-task`, state: "TASK_STATE_COMPLETED", message: { role: "ROLE_AGENT", parts } };
      step.endedAt = "now";
    }
    return true;
  }

  #result(ended: StatusUpdate["status"]): Result {
    const { log, steps, usage } = this.#task;
    const said = Message.decode(ended.message ?? {});
    const artifacts = [...fold(log)].map(([artifactId, parts]) => [artifactId, Artifact.decode({ artifactId, parts })]);
    return {
      state: ended.state.replace(/^TASK_STATE_/, "").toLowerCase(),
      text: said.text,
      data: said.data,
      artifacts: Object.fromEntries(artifacts) as Result["artifacts"],
      steps: Object.fromEntries([...steps].map(([key, step]) => [key, new Recorded(step)])),
      questions: this.#questions,
      attempts: this.#epoch,
      elapsed: (this.#now - start) / 1000,
      usage,
      events: log,
    };
  }
}

function partsSaid(said: Said): WirePart[] {
  return encodeParts(
    said instanceof Message ? said.parts : [typeof said === "string" ? { text: said } : { data: said }],
  );
}
