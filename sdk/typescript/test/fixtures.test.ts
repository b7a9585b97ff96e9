// In each attempt of the conformance suite, the worker reports what the fixture says. With a fault, the first report is
// lost, or something else than the server answers it. The worker sends it again, and nothing else changes.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

import { attempt as execute } from "../src/attempt.js";
import { Client, type Transport } from "../src/client.js";
import { HttpError, type Answer } from "../src/http.js";
import type { Json, Message, Task } from "../src/index.js";
import { silent } from "../src/log.js";
import { noSpan } from "../src/tracing.js";
import { EffectFailed, Program, type Instruction, type World } from "./conformance/program.js";

type Members = Record<string, Json>;

interface Attempt {
  do: Instruction[];
  run: Members;
  effects: { name: string; answer: Json }[];
  events: Members[];
  finish?: Members;
}

/** What a worker reported. */
interface Done {
  events: Members[];
  finish: Members | undefined;
}

const faults: ([status: number, body: string] | undefined)[] = [
  undefined, // the report is lost
  [503, '{"error":{"reason":"TRY_AGAIN","message":"a fault"}}'],
  [404, "<html>default backend</html>"],
  [200, '{"status":"maintenance"}'], // not for finish, which any object answers
];

/** A worker API that gives a worker one run, and notes what it reports. */
class Server implements Transport {
  readonly #batches = new Map<string, string>();
  readonly done: Done = { events: [], finish: undefined };
  readonly #faults: (typeof faults)[number][];

  constructor(
    private readonly run: Members,
    fault: number | undefined,
  ) {
    this.#faults = fault === undefined ? [] : [faults[fault % faults.length]];
  }

  request(_: string, path: string, text: string): Promise<Answer> {
    const answer = (status: number, body: string) =>
      Promise.resolve({ status, headers: {}, body: Buffer.from(body) } satisfies Answer);
    if (path.endsWith("/claim")) {
      return answer(200, JSON.stringify({ runs: [this.run] }));
    }
    const body = JSON.parse(text) as Members & { batchId: string; events: Members[] };
    if (path.endsWith("/events")) {
      assert.equal(this.#batches.get(body.batchId) ?? text, text, "a batch differs when it is sent again");
      this.#batches.set(body.batchId, text);
    }
    const counts = path.endsWith("/events") || (path.endsWith("/finish") && this.#faults[0]?.[0] !== 200);
    if (this.#faults.length > 0 && counts) {
      const fault = this.#faults.pop();
      return fault === undefined ? Promise.reject(new HttpError("connection reset")) : answer(...fault);
    }
    if (path.endsWith("/events")) {
      body.events.forEach((event) => {
        add(this.done.events, steady(event));
      });
    } else if (path.endsWith("/finish")) {
      this.done.finish = steady(body);
    }
    return answer(200, '{"cancelRequested":false}');
  }

  close(): void {
    // nothing is open
  }
}

/** Returns what answers the effects as they were answered when the attempt was recorded. */
function recorded(effects: Attempt["effects"]): World {
  const left = [...effects];
  return {
    effect(name) {
      const at = left.findIndex((e) => e.name === name);
      const [found] = left.splice(at, at < 0 ? 0 : 1);
      assert.ok(found, `the effect ${name} was not recorded`);
      const { answer } = found;
      const { error } = (answer ?? {}) as { error?: string };
      return error === undefined ? Promise.resolve(answer) : Promise.reject(new EffectFailed(error));
    },
  };
}

async function play(attempt: Attempt, handler: boolean, fault?: number): Promise<Done> {
  const server = new Server(attempt.run, fault);
  const world = recorded(attempt.effects);
  const client = new Client("http://server", undefined, silent, {
    transport: server,
    // A failed request is repeated at once; a heartbeat is never due.
    sleep: async () => {
      await Promise.resolve();
    },
  });
  const [run] = await client.claim("w", "a", 1, new AbortController().signal);
  assert.ok(run);
  const agent = {
    ...{ name: run.agent, concurrency: 1, replay: !handler, where: "" },
    run: (task: Task, message: Message) => Program.begin(task, message, world).result(attempt.do),
  };
  await execute({ client, agent, run, logger: silent, span: noSpan, release: new AbortController().signal });
  return server.done;
}

/** Leaves out what differs each time, or by language. */
function steady(given: Members): Members {
  const time = /"20\d\d-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)"/g;
  const text = JSON.stringify(given).replaceAll(time, '"2099-01-01T00:00:00Z"');
  const event = JSON.parse(text) as Members & { step?: Members; wait?: Members; statusUpdate?: Members };
  for (const members of [event, event.step]) {
    if (members?.error !== undefined && members.error !== null) {
      members.error = true;
    }
  }
  const status = event.statusUpdate?.status as Members | undefined;
  if (status?.state === "TASK_STATE_FAILED" && "message" in status) {
    status.message = true;
  }
  const { wait } = event;
  if (typeof wait?.key === "string" && wait.key.includes("/pause#")) {
    wait.for = true;
  }
  return event;
}

/** Appends an event. Text that is appended to the same artifact becomes one event. */
function add(events: Members[], event: Members): void {
  const last = appended(events.at(-1));
  const text = appended(event);
  if (text !== undefined && last?.artifactId === text.artifactId) {
    last.parts[0].text += text.parts[0].text;
  } else {
    events.push(event);
  }
}

interface Appended {
  artifactId: string;
  parts: [{ text: string }];
}

function appended(event: Members | undefined): Appended | undefined {
  const update = event?.artifactUpdate as { append?: boolean; artifact: { parts: Members[] } } | undefined;
  const part = update?.artifact.parts[0];
  const isText = update?.artifact.parts.length === 1 && part !== undefined && Object.keys(part).join() === "text";
  return update?.append === true && isText ? (update.artifact as unknown as Appended) : undefined;
}

/** Returns the events in the order in which to compare them: the branches of gather report in any order. */
function inOrder(events: Members[], attempt: Attempt): Members[] {
  const text = (e: Members) => JSON.stringify(e, (_, v: Json) => sorted(v));
  return JSON.stringify(attempt.do).includes('"gather"')
    ? [...events].sort((a, b) => (text(a) < text(b) ? -1 : 1))
    : events;
}

/** Returns a value whose members are in order. */
function sorted(value: Json): Json {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return value;
  }
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}

const folder = new URL("../../../conformance/testdata/", import.meta.url);

void test("fixtures", { concurrency: 100 }, async (t) => {
  const files = readdirSync(folder);
  assert.notEqual(files.length, 0);
  const all = files.flatMap((file, f) => {
    const fixture = JSON.parse(readFileSync(new URL(file, folder), "utf8")) as {
      case: string;
      handler?: boolean;
      attempts: Attempt[];
    };
    return fixture.attempts.flatMap((attempt, n) =>
      [undefined, f + n].map((fault) =>
        t.test(`${fixture.case}-${n + 1}${fault === undefined ? "" : ", with a fault"}`, async () => {
          const { events, finish } = await play(attempt, fixture.handler === true, fault);
          assert.deepEqual(inOrder(events, attempt), inOrder(attempt.events, attempt));
          assert.deepEqual(finish, attempt.finish);
        }),
      ),
    );
  });
  await Promise.all(all);
});
