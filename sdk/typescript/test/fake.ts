// A worker API in this process, which answers what a test says.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";

import type { Run } from "../src/wire.js";

/** A status and a value, with headers; or undefined, to close the connection. */
export type Answer = readonly [number, object, Record<string, string>?] | undefined;

export interface Batch {
  batchId: string;
  events: { step?: Record<string, unknown>; wait?: object }[];
}

export const ok: Answer = [200, {}];
export const lost: Answer = [409, { error: { reason: "LEASE_LOST", message: "lost" } }];

/** Returns a run as a claim contains it. */
export const claimed = (taskId = "t", more: Partial<Run> = {}): Run => ({
  ...{ taskId, contextId: "c", contextKey: "k", tenant: "", owner: "", agent: "a", epoch: 1, attempt: 1 },
  ...{ messages: [{ messageId: "m", parts: [{ text: "hello" }] }], leaseSeconds: 30 },
  ...more,
});

/** Keeps the requests. Claims get the given runs, once; without runs, they are not answered. */
export class FakeServer {
  readonly requests: { path: string; body: unknown; userAgent: string | undefined }[] = [];
  answer: (path: string, body: unknown) => Answer = () => ok;
  readonly #server: Server;
  readonly #runs: Run[];
  #changed: () => void = () => undefined;

  constructor(...runs: Run[]) {
    this.#runs = runs;
    this.#server = createServer((request, response) => {
      void this.#serve(request, response);
    });
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

  /** Waits until the requests fulfill a condition. */
  async seen(condition: () => boolean): Promise<void> {
    while (!condition()) {
      await new Promise<void>((done) => (this.#changed = done));
    }
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url ?? assert.fail();
    const content = await text(request);
    const body: unknown = content === "" ? undefined : JSON.parse(content);
    this.requests.push({ path, body, userAgent: request.headers["user-agent"] });
    const answer = this.answer(path, body);
    this.#changed();
    if (answer === undefined) {
      request.socket.destroy();
    } else if (path.endsWith("/claim") && answer === ok) {
      const runs = this.#runs.splice(0, (body as { max: number }).max);
      if (runs.length > 0) {
        response.end(JSON.stringify({ runs }));
      }
    } else {
      response.writeHead(answer[0], answer[2]).end(JSON.stringify(answer[1]));
    }
  }
}
