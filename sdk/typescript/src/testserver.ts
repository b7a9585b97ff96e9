import { execute, type Agent, type AgentFunction } from "./agent.js";
import { A2adError, Stopped } from "./errors.js";
import type { Logger } from "./log.js";
import type { Clock } from "./outbox.js";
import { Session } from "./session.js";
import { fold, StoredTask, type Reported, type Wait } from "./stored.js";
import type { Result, Said, TestOptions } from "./testing.js";
import { noSpan } from "./tracing.js";
import { Artifact, encodeParts, Message, type Json, type Run, type WireMessage } from "./wire.js";

const start = Date.UTC(2026, 0, 1);
const maxRuns = 10_000;
const silent: Logger = { info: () => undefined, warn: () => undefined, error: () => undefined };

/** The task waits for something that the test does not provide. */
export class Stuck extends A2adError {
  override name = "Stuck";
}

/** Where to crash: at the n-th request, before or after the server has stored it. */
export interface Crashes {
  readonly at: number;
  readonly stored: boolean;
  requests: number;
}

/** One task, its client and its agents, in memory. */
export class TestServer {
  readonly #agent: Agent;
  readonly #answer: (question: string) => Said | undefined;
  readonly #signals: Map<string, Json>;
  readonly #calls: NonNullable<TestOptions["calls"]>;
  readonly #maxAttempts: number;
  readonly #task = new StoredTask();
  readonly #messages: WireMessage[] = [];
  readonly #questions: string[] = [];
  #attempt = 1;
  #epoch = 0;
  #now = start;

  constructor(
    run: AgentFunction,
    message: Said,
    options: TestOptions,
    private readonly crashes: Crashes,
  ) {
    this.#agent = { name: "test", run, concurrency: 1, replay: options.handler !== true };
    const { answers = [] } = options;
    const rest = typeof answers === "function" ? [] : [...answers];
    this.#answer = typeof answers === "function" ? answers : () => rest.shift();
    this.#signals = new Map(Object.entries(options.signals ?? {}));
    this.#calls = options.calls ?? {};
    this.#maxAttempts = options.maxAttempts ?? 5;
    this.#say(message);
  }

  readonly #clock: Clock = {
    now: () => this.#now,
    monotonic: () => this.#now / 1000,
    sleep: (seconds) => {
      this.#now += seconds * 1000;
      return Promise.resolve();
    },
    gatherText: () => new Promise((done) => setImmediate(done)),
  };

  #say(said: Said): string {
    const messageId = `message-${this.#messages.length + 1}`;
    this.#messages.push({ messageId, role: "ROLE_USER", parts: partsSaid(said) });
    return messageId;
  }

  async report(run: Run, events: readonly string[]): Promise<boolean> {
    await Promise.resolve();
    this.crashes.requests++;
    const crash = this.crashes.requests === this.crashes.at;
    if (crash && !this.crashes.stored) {
      throw new Stopped("crashed", "crashed");
    }
    if (run.epoch !== this.#epoch) {
      throw new Stopped("lost", "lost");
    }
    for (const e of events) {
      this.#task.apply(JSON.parse(e) as Reported);
    }
    if (crash) {
      throw new Stopped("crashed", "crashed");
    }
    return false;
  }

  async run(): Promise<Result> {
    const task = this.#task;
    while (task.ended === undefined) {
      if (++this.#epoch > maxRuns) {
        throw new Stuck(`the agent ran ${maxRuns} times without an end`);
      }
      const session = new Session(this.#run(), this, this.#agent.replay, this.#clock);
      const ending = await execute(this.#agent, session, silent, noSpan);
      if (ending.error !== undefined) {
        throw ending.error;
      }
      if (task.wait !== undefined) {
        this.#continue(task.wait);
      } else if (ending.outcome === "crashed") {
        this.#again("crashed");
      } else if (ending.outcome === "retry") {
        this.#now += (ending.after ?? 1) * 1000;
        this.#again(ending.reason ?? "");
      }
    }
    return this.#result(task.ended);
  }

  #run(): Run {
    const { steps, log, checkpoint } = this.#task;
    return structuredClone({
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
      leaseSeconds: 30,
      task: {
        history: this.#messages,
        artifacts: [...fold(log)].map(([artifactId, parts]) => ({ artifactId, parts })),
      },
      ...(checkpoint !== undefined && { checkpoint }),
    });
  }

  #again(reason: string): void {
    // A crash after the last event was stored is no reason for another attempt.
    if (this.#task.ended === undefined && ++this.#attempt > this.#maxAttempts) {
      this.#task.ended = { state: "TASK_STATE_FAILED", message: { parts: [{ text: reason }] } };
    }
  }

  /** Ends a wait in the way that the test says. */
  #continue(wait: Wait): void {
    this.#task.wait = undefined;
    this.#attempt = 1;
    const step = this.#task.steps.get(wait.key);
    if (step !== undefined) {
      step.result = this.#over(wait);
      step.endedAt = "now";
    }
  }

  #over(wait: Wait): Json {
    if (wait.tasks !== undefined) {
      this.#doCalls(wait.tasks, wait.mode === "any");
      return { by: "tasks" };
    }
    if (wait.signal !== undefined && this.#signals.has(wait.signal)) {
      const value = this.#signals.get(wait.signal) ?? null;
      this.#signals.delete(wait.signal);
      return { by: "signal", name: wait.signal, value };
    }
    if (wait.message === true) {
      const question = wait.status?.message?.parts?.[0]?.text ?? "";
      this.#questions.push(question);
      const answer = this.#answer(question);
      const choices = wait.expects?.choices;
      if (typeof answer === "string" && choices?.includes(answer.trim()) === false) {
        throw new Stuck(`the server refuses the answer "${answer}" to "${question}": it must be ${choices.join(" or ")}`);
      }
      if (answer !== undefined) {
        return { by: "message", messageId: this.#say(answer) };
      }
    }
    if (wait.for !== undefined) {
      this.#now += Number(wait.for.replace(/s$/, "")) * 1000;
    } else if (wait.until !== undefined) {
      this.#now = Math.max(this.#now, Date.parse(wait.until));
    } else {
      const what = wait.signal === undefined ? "an answer" : `the signal "${wait.signal}"`;
      throw new Stuck(`the task waits for ${what}, and the test has none`);
    }
    return { by: "time" };
  }

  /** Ends the called tasks that a wait is for: all, or the first one. */
  #doCalls(keys: string[], any: boolean): void {
    const open = keys.filter((k) => this.#task.steps.get(k)?.endedAt === undefined);
    for (const key of any ? open.slice(0, 1) : open) {
      const call = this.#task.called.get(key);
      const step = this.#task.steps.get(key);
      const does = this.#calls[call?.agent ?? ""];
      if (call === undefined || step === undefined || does === undefined) {
        throw new Stuck(`the task calls "${call?.agent ?? key}", and the test has no such agent`);
      }
      const text = call.message.parts.flatMap((p) => (p.text === undefined ? [] : [p.text])).join("\n");
      const said = typeof does === "function" ? does(text) : does;
      const parts = partsSaid(said) as unknown as Json;
      step.result = { taskId: `${key}-task`, state: "TASK_STATE_COMPLETED", message: { role: "ROLE_AGENT", parts } };
      step.endedAt = "now";
    }
  }

  #result(ended: { state: string; message?: WireMessage }): Result {
    const { log, steps, usage } = this.#task;
    const said = Message.decode(ended.message ?? {});
    const artifacts = [...fold(log)].map(
      ([artifactId, parts]) => [artifactId, Artifact.decode({ artifactId, parts })] as const,
    );
    return {
      state: ended.state.replace(/^TASK_STATE_/, "").toLowerCase(),
      text: said.text,
      data: said.data,
      artifacts: Object.fromEntries(artifacts),
      steps: Object.fromEntries(steps),
      questions: this.#questions,
      attempts: this.#epoch,
      elapsed: (this.#now - start) / 1000,
      usage,
      events: log,
    };
  }
}

function partsSaid(said: Said) {
  if (said instanceof Message) {
    return encodeParts(said.parts, "a message of the test");
  }
  return [typeof said === "string" ? { text: said } : { data: said }];
}
