/** A health endpoint for monitoring. */
import { once } from "node:events";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import { misuse } from "./errors.js";
import { shown } from "./json.js";
import type { Logger } from "./log.js";

/** The state of a worker. */
export interface Status {
  worker: string;
  /** Whether it can claim tasks: the server accepts its claims, and it is not about to stop. */
  ready: boolean;
  stopping: boolean;
  /** How many runs it works on. */
  runs: number;
  /** When the server last answered a claim, in ISO 8601. */
  lastClaim: string | null;
  agents: Record<string, AgentStatus>;
}

export interface AgentStatus {
  concurrency: number;
  running: number;
  /** Whether the server answered the last claim, or has let it wait for a second. */
  reachable: boolean;
  /** Why the last claim failed, and what to check. */
  error: string | null;
  lastClaim: string | null;
}

export interface Address {
  /** Undefined for all addresses of the machine. */
  readonly host: string | undefined;
  readonly port: number;
}

/** @internal Reads HOST:PORT, or :PORT for all addresses of the machine. */
export function healthAddress(value: unknown): Address {
  const [, host = "", port = ""] = /^(.*):(\d+)$/.exec(typeof value === "string" ? value : "") ?? [];
  if (port === "" || Number(port) > 65_535) {
    throw misuse(`health must be an address such as ":8081", not ${shown(value)}`);
  }
  return { host: host.replace(/^\[(.*)\]$/, "$1") || undefined, port: Number(port) };
}

/** @internal Answers /livez (the process), /readyz (whether it can claim tasks) and /status (JSON). */
export async function serveHealth({ host, port }: Address, status: () => Status, logger: Logger): Promise<Server> {
  const server = createServer({ requestTimeout: 5000 }, (request, response) => {
    if (request.method !== "GET" && request.method !== "HEAD") {
      reply(response, 405, "use GET\n");
      return;
    }
    answer(response, (request.url ?? "").split("?")[0] ?? "", status());
  });
  server.listen(port, host);
  await once(server, "listening"); // throws if the port is taken
  const { address, port: bound } = server.address() as AddressInfo;
  logger.info(`health endpoint on ${address}:${bound}`, {});
  return server;
}

function answer(response: ServerResponse, path: string, now: Status): void {
  switch (path) {
    case "/livez":
      reply(response, 200, "ok\n");
      break;
    case "/readyz":
      reply(response, now.ready ? 200 : 503, now.ready ? "ok\n" : `${["not ready", ...reasons(now)].join("\n")}\n`);
      break;
    case "/status":
      reply(response, 200, JSON.stringify(now), "application/json");
      break;
    default:
      reply(response, 404, "try /livez, /readyz or /status\n");
  }
}

const reasons = ({ agents }: Status): string[] =>
  Object.entries(agents).flatMap(([name, { error }]) => (error === null ? [] : [`${name}: ${error}`]));

function reply(response: ServerResponse, status: number, body: string, type = "text/plain; charset=utf-8"): void {
  response.writeHead(status, { "Content-Type": type, "Cache-Control": "no-store", Connection: "close" }).end(body);
}
