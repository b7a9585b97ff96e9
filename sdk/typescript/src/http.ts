/**
 * HTTP for the requests of a worker, over `node:http`. A worker that streams sends thousands of small requests per
 * second, for which the global `fetch` uses several times the CPU.
 */
import { AsyncResource } from "node:async_hooks";
import * as http from "node:http";
import * as https from "node:https";

import { proxyFor, throughProxy } from "./proxy.js";

/** Bytes of the largest response. It is to a claim: one task of up to 64 MiB, whose files need a third more. */
const maxBody = 256 << 20;

/** A request got no usable response. Whether the server received it is unknown. */
export class HttpError extends Error {}

export interface Answer {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly body: Buffer;
}

/** Connections to one server: as many as there are concurrent requests. */
export class Pool {
  /** The context of connections. In that of a run, they would keep what the run has in memory after its end. */
  readonly #context = new AsyncResource("a2ad.Pool");
  readonly #client: typeof http | typeof https;
  readonly #agent: http.Agent;
  readonly #target: { hostname: string; port: string };
  readonly #headers: Record<string, string>;
  readonly #path: string;

  constructor(
    private readonly url: URL,
    headers: Record<string, string>,
  ) {
    const proxy = proxyFor(url);
    this.#client = url.protocol === "https:" ? https : http;
    this.#agent = this.#newAgent();
    const path = url.pathname.replace(/\/+$/, "");
    const plain = proxy !== undefined && url.protocol === "http:";
    const { hostname, port } = plain ? proxy : url;
    this.#target = { hostname: hostname.replace(/^\[|\]$/g, ""), port };
    this.#headers = { Host: url.host, ...headers, ...(plain && proxy.headers) };
    this.#path = plain ? `http://${url.host}${path}` : path;
  }

  #newAgent(): http.Agent {
    const options = { keepAlive: true, maxFreeSockets: 1024 };
    if (this.url.protocol !== "https:") {
      return new http.Agent(options);
    }
    const proxy = proxyFor(this.url);
    return proxy === undefined ? new https.Agent(options) : throughProxy(proxy, options);
  }

  /**
   * Sends a request once. Returns the response, or throws HttpError, at the latest after `timeout` seconds or when the
   * signal aborts. `sent` is called once there is a connection and the request is written.
   */
  async request(
    method: string,
    path: string,
    body: string,
    timeout: number,
    signal?: AbortSignal,
    sent?: () => void,
  ): Promise<Answer> {
    const headers = { ...this.#headers, "Content-Length": Buffer.byteLength(body) };
    const options = { ...this.#target, method, path: this.#path + path, headers, agent: this.#agent };
    return await new Promise<Answer>((resolve, reject) => {
      const request = this.#context.runInAsyncScope(() => this.#client.request(options));
      const end = (why: string) => () => {
        fail(new HttpError(why)); // at once: until there is a connection, the request cannot end
        request.destroy();
      };
      const late = setTimeout(() => {
        this.#renew(); // if one connection is dead, the network may be to blame
        end("timeout")();
      }, timeout * 1000);
      const aborted = end("aborted");
      const settled = () => {
        clearTimeout(late);
        signal?.removeEventListener("abort", aborted);
      };
      const fail = (err: Error) => {
        settled();
        reject(err instanceof HttpError ? err : new HttpError(this.#explain(err), { cause: err }));
      };
      request.on("response", (response) => {
        readBody(response).then((read) => {
          settled();
          resolve({ status: response.statusCode ?? 0, headers: response.headers, body: read });
        }, fail);
      });
      request.on("error", fail);
      request.on("upgrade", (_, socket) => {
        socket.destroy();
        fail(new HttpError("the server switched protocols"));
      });
      if (sent !== undefined) {
        request.on("finish", sent);
      }
      signal?.addEventListener("abort", aborted);
      if (signal?.aborted === true) {
        aborted();
      }
      request.end(body);
    });
  }

  #explain(err: Error & { code?: string; syscall?: string }): string {
    if (err.syscall === "connect" || err.syscall === "getaddrinfo") {
      return `connect to ${this.url.host}: ${err.message || (err.code ?? "")}`;
    }
    return err.code === "ECONNRESET" ? "the server closed the connection" : err.message;
  }

  /** Closes the idle connections. */
  #renew(): void {
    for (const sockets of Object.values(this.#agent.freeSockets)) {
      sockets?.forEach((socket) => socket.destroy());
    }
  }

  /** Closes all connections. */
  close(): void {
    this.#agent.destroy();
  }
}

async function readBody(response: http.IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > maxBody) {
      throw new HttpError("the response is too large");
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
