import { once } from "node:events";
import { createServer, type Server } from "node:http";

import { UsageError } from "./errors.js";
import { shown } from "./values.js";

/** What a worker says of itself. */
export interface Health {
  worker: string;
  /** Whether its last claims reached the server, and it is not about to stop. */
  ready: boolean;
  /** Of each agent: how many tasks it works on, and at most how many. */
  agents: Record<string, { running: number; concurrency: number }>;
}

/**
 * Answers `/livez` while the process runs, `/readyz` with 200 while it can work, else with 503, and `/status` with what
 * the worker says of itself.
 */
export async function serveHealth(address: string, health: () => Health): Promise<Server> {
  const { host, port } = parse(address);
  const server = createServer((request, answer) => {
    const reply = (status: number, text: string, type = "text/plain; charset=utf-8") => {
      answer.writeHead(status, { "Content-Type": type, "Cache-Control": "no-store" }).end(text);
    };
    const now = health();
    switch ((request.url ?? "").split("?")[0]) {
      case "/livez":
        reply(200, "ok\n");
        break;
      case "/readyz":
        reply(now.ready ? 200 : 503, now.ready ? "ok\n" : "not ready\n");
        break;
      case "/status":
        reply(200, JSON.stringify(now), "application/json");
        break;
      default:
        reply(404, "try /livez, /readyz or /status\n");
    }
  });
  server.listen(port, host);
  await once(server, "listening"); // throws if the port is taken
  server.unref();
  return server;
}

/** Reads host:port, or :port for all addresses of the machine. */
function parse(address: string): { host: string | undefined; port: number } {
  const [, host = "", port = ""] = /^(.*):(\d+)$/.exec(address) ?? [];
  if (port === "" || Number(port) > 65535) {
    throw new UsageError(`health must be an address such as ":8081" or "127.0.0.1:8081", not ${shown(address)}`);
  }
  return { host: host.replace(/^\[(.*)\]$/, "$1") || undefined, port: Number(port) };
}
