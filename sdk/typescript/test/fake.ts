// A worker API in this process, which answers what a test says.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";

import type { Reported } from "../src/memory.js";

/** A status and a value, with headers; undefined, to close the connection; or "hang", for no answer. */
export type Answer = readonly [number, unknown, Record<string, string>?] | undefined | "hang";

export interface Batch {
  batchId: string;
  events: Reported[];
}

/** A run as a claim contains it. */
export type Claimed = Record<string, unknown>;

export const ok: Answer = [200, { cancelRequested: false }];
export const lost: Answer = [409, { error: { reason: "LEASE_LOST", message: "lost" } }];

export const claimed = (taskId = "t", more: Claimed = {}): Claimed => ({
  ...{ taskId, contextId: "c", contextKey: "k", tenant: "", owner: "", agent: "a", epoch: 1, attempt: 1 },
  ...{ messages: [{ messageId: "m", parts: [{ text: "hello" }] }], leaseSeconds: 30 },
  ...more,
});

/** Keeps the requests. Claims get the given runs, once; without runs, they are not answered. */
export class FakeServer {
  readonly requests: { path: string; body: unknown; userAgent: string | undefined }[] = [];
  answer: (path: string, body: unknown) => Answer = () => ok;
  /** What the answer to a request waits for. */
  delay: (path: string) => Promise<void> | undefined = () => undefined;
  readonly #server: Server;
  runs: Claimed[];
  connections = 0;
  readonly #waiting = new Set<() => void>();

  constructor(...runs: Claimed[]) {
    this.runs = runs;
    this.#server = createServer((request, response) => {
      void this.#serve(request, response);
    });
    this.#server.on("connection", () => this.connections++);
  }

  /** Starts it, and returns its URL. */
  async start(): Promise<string> {
    await once(this.#server.listen(0, "127.0.0.1"), "listening");
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  /** Returns the bodies of the requests whose path ends so. */
  of<T>(what: string): T[] {
    return this.requests.flatMap(({ path, body }) => (path.endsWith(what) ? [body as T] : []));
  }

  /** Returns the events that were reported. */
  events(): Reported[] {
    return this.of<Batch>("/events").flatMap((b) => b.events);
  }

  /** Returns the pieces in which text was sent. */
  texts(): string[] {
    return this.events().flatMap((e) => {
      const { text } = e.artifactUpdate?.artifact.parts[0] ?? {};
      return typeof text === "string" ? [text] : [];
    });
  }

  /** Returns whether the task has completed. */
  completed = (): boolean => JSON.stringify(this.events().at(-1) ?? {}).includes("TASK_STATE_COMPLETED");

  /** Waits until the requests fulfill a condition. */
  async seen(condition: () => boolean): Promise<void> {
    while (!condition()) {
      await new Promise<void>((done) => this.#waiting.add(done));
    }
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url ?? assert.fail();
    const content = await text(request);
    const body: unknown = content === "" ? undefined : JSON.parse(content);
    this.requests.push({ path, body, userAgent: request.headers["user-agent"] });
    const answer = this.answer(path, body);
    this.#waiting.forEach((done) => {
      done();
    });
    this.#waiting.clear();
    await this.delay(path);
    if (answer === undefined) {
      request.socket.destroy();
    } else if (answer === "hang") {
      return;
    } else if (path.endsWith("/claim") && answer === ok) {
      const runs = this.runs.splice(0, (body as { max: number }).max);
      if (runs.length > 0) {
        response.end(JSON.stringify({ runs }));
      }
    } else {
      const sent = typeof answer[1] === "string" ? answer[1] : JSON.stringify(answer[1]);
      response.writeHead(answer[0], answer[2]).end(sent);
    }
  }
}
