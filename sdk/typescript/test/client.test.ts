// The requests of a run: when they are repeated, and when its lease has expired.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Refused, Stopped } from "../src/index.js";
import { Client, ServerError } from "../src/client.js";
import { HttpError, type Answer as HttpAnswer } from "../src/http.js";
import { decodeRun, type Run } from "../src/wire.js";
import { claimed } from "./fake.js";
import { Log } from "./kit.js";

/** A status and a value; or nothing, for an answer that never comes. */
type Answer = readonly [status: number, value: unknown, headers?: Record<string, string>] | undefined;

const lost: Answer = undefined;
const ok: Answer = [200, { cancelRequested: false }];
const error = (status: number, reason: unknown): Answer => [status, { error: { reason, message: "a message" } }];
const open = new AbortController().signal;

/** Answers requests as a test says, and is the clock of the client. */
class Network {
  now = 1000;
  readonly timeouts: number[] = [];
  readonly paths: string[] = [];
  readonly run: Run = decodeRun(claimed("t", { leaseSeconds: 30 }), this.now);
  readonly log = new Log();
  readonly client: Client;
  readonly #answers: Answer[];

  constructor(...answers: Answer[]) {
    this.#answers = answers;
    this.client = new Client("http://127.0.0.1:1", undefined, this.log, {
      transport: this,
      now: () => this.now,
      sleep: (seconds) => {
        assert.ok(seconds >= 0);
        this.now += seconds;
        return Promise.resolve();
      },
    });
  }

  request(_: string, path: string, __: string, timeout: number): Promise<HttpAnswer> {
    this.paths.push(path);
    this.timeouts.push(timeout);
    const answer = this.#answers.length > 1 ? this.#answers.shift() : this.#answers[0];
    if (answer === undefined) {
      this.now += timeout;
      return Promise.reject(new HttpError("timeout"));
    }
    const [status, value, headers = {}] = answer;
    const body = Buffer.from(typeof value === "string" ? value : JSON.stringify(value));
    return Promise.resolve({ status, headers, body });
  }

  close(): void {
    return;
  }

  report(...events: string[]): Promise<boolean> {
    return this.client.report(this.run, events, "1", open);
  }

  heartbeat(): Promise<boolean> {
    return this.client.heartbeat(this.run, open);
  }
}

void test("a lost answer does not cost the run", async () => {
  const net: Network = new Network(lost, ok);
  assert.equal(await net.heartbeat(), false);
  assert.deepEqual(net.timeouts, [10, 10]);
  assert.equal(net.run.renewed, net.now);
  assert.ok(net.now >= 1010 && net.now < 1011);
});

void test("the run ends with its lease", async () => {
  for (const answer of [lost, [503, {}], [404, "<html>"]] as Answer[]) {
    const net: Network = new Network(ok, ok, answer);
    await net.report(); // the server renews a lease after a quarter
    net.now += 1;
    await net.report();
    const err: unknown = await net.heartbeat().catch((e: unknown) => e);
    assert.ok(err instanceof Stopped);
    assert.equal(err.why, "lost");
    assert.ok(Math.abs(net.now - 1030) < 1e-6, String(net.now));
    assert.equal(Math.max(...net.timeouts), 10);
  }
});

void test("a frozen worker asks the server", async () => {
  const net: Network = new Network(ok);
  net.now += 100;
  await net.heartbeat();
  assert.equal(net.run.renewed, net.now);
});

void test("a long pause of a proxy is shortened", async () => {
  const busy: Answer = [429, {}, { "retry-after": "3600" }];
  const net: Network = new Network(busy, busy, ok);
  await net.heartbeat();
  assert.equal(net.now, 1020);
});

void test("a pause of zero seconds is lengthened", async (t) => {
  t.mock.method(Math, "random", () => 0.5);
  const net: Network = new Network([503, {}, { "retry-after": "0" }], [503, {}, { "retry-after": "0" }], ok);
  await net.heartbeat();
  assert.ok(Math.abs(net.now - 1000.3) < 1e-6, String(net.now));
});

void test("a task id is encoded in paths", async () => {
  const net: Network = new Network(ok);
  Object.assign(net.run, { taskId: "t→/1" });
  await net.heartbeat();
  assert.deepEqual(net.paths, ["/runs/t%E2%86%92%2F1/1/heartbeat"]);
});

void test("no other answer is a refusal", async () => {
  const answers: Answer[] = [
    ...([400, 404, 408, 413, 301].map((status) => [status, "<html>"]) as Answer[]),
    [409, { error: "conflict" }],
    [409, { error: { reason: 7, message: "" } }],
    [409, ["error"]],
    error(401, "UNAUTHENTICATED"),
    error(403, "FORBIDDEN"),
    error(404, "NOT_FOUND"),
    error(429, "RATE_LIMITED"),
    error(500, "INTERNAL"),
  ];
  for (const answer of answers) {
    const net: Network = new Network(answer, answer, ok);
    await net.report('{"checkpoint":1}');
    assert.equal(net.timeouts.length, 3);
  }
});

void test("refusals", async () => {
  const reasons = [
    [400, "INVALID_AGENT_RESPONSE"],
    [400, "INVALID_REQUEST"],
    [409, "OTHER"],
    [413, "REQUEST_TOO_LARGE"],
  ] as const;
  for (const [status, reason] of reasons) {
    const err: unknown = await new Network(error(status, reason)).report('{"checkpoint":1}').catch((e: unknown) => e);
    assert.ok(err instanceof Refused);
    assert.match(err.message, /a message$/);
  }
  const placed: Answer = [400, { error: { reason: "INVALID_AGENT_RESPONSE", message: "events[3]: no agent b" } }];
  await assert.rejects(new Network(placed).report("{}"), { message: "no agent b" });
});

void test("a lost lease ends the run", async () => {
  const err: unknown = await new Network(error(409, "LEASE_LOST")).heartbeat().catch((e: unknown) => e);
  assert.ok(err instanceof Stopped);
  assert.deepEqual([err.why, err.message], ["lost", "the lease is lost"]);
});

void test("a heartbeat cannot be refused", async () => {
  assert.equal(await new Network(error(400, "INVALID_REQUEST"), ok).heartbeat(), false);
});

void test("answers of another form are not success", async () => {
  for (const value of [{}, [], null, "maintenance", { status: "ok" }, { cancelRequested: "no" }, "<html>"]) {
    const net: Network = new Network([200, value], ok, [200, value], ok);
    await net.report();
    await net.heartbeat();
    assert.equal(net.timeouts.length, 4);
  }
});

void test("steps of another form", async () => {
  const wrong = [{}, { steps: [] }, { steps: 7 }, { steps: [{}] }, { steps: [7] }, { steps: ["x"] }];
  const net: Network = new Network(...wrong.map((w): Answer => [200, w]), [
    200,
    { steps: [{ key: "a#1", kind: "step" }] },
  ]);
  Object.assign(net.run, { stepCount: 1 });
  await net.client.steps(net.run, open);
  assert.deepEqual(
    net.run.steps.map((s) => s.key),
    ["a#1"],
  );
});

void test("claims of another form", async () => {
  for (const value of [{}, [], null, { runs: null }, { runs: [{}] }, { runs: ["x"] }, { runs: [{ task: 1 }] }]) {
    const claim = new Network([200, value]).client.claim("w", "a", 1, open);
    await assert.rejects(claim, /the response is not that of an a2ad server/);
  }
});

void test("a task that cannot be read costs the others nothing", async () => {
  const wrong = claimed("t1", { messages: [{ messageId: "m", parts: 7 }] });
  const net: Network = new Network([200, { runs: [wrong, claimed("t2")] }]);
  const runs = await net.client.claim("w", "a", 2, open);
  assert.deepEqual(
    runs.map((r) => r.taskId),
    ["t2"],
  );
  assert.match(net.log.problems.join(), /a claimed task cannot be read/);
});

void test("an error page is a server error", async () => {
  const err: unknown = await new Network([404, "<html>"]).client.claim("w", "a", 1, open).catch((e: unknown) => e);
  assert.ok(err instanceof ServerError);
  assert.match(err.message, /^404: .*<html>/);
});
