// A server for the tests, with its own PostgreSQL, and workers in processes of their own.
import assert from "node:assert/strict";
import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { closeSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const packageRoot = fileURLToPath(new URL("../../../", import.meta.url));
const a2ad = process.env.A2AD_BIN ?? join(packageRoot, "../../bin/a2ad");

/** The workers that should run. */
const running = new Set<TestWorker>();

/** Returns the first value of a condition that is not false or undefined. */
export async function until<T>(what: string, condition: () => T | Promise<T>, seconds = 60): Promise<NonNullable<T>> {
  const end = performance.now() + seconds * 1000;
  for (;;) {
    const value = await condition();
    if (value !== false && value !== undefined && value !== null) {
      return value;
    }
    for (const worker of running) {
      assert.ok(worker.running, `a worker has ended: ${readFileSync(worker.log, "utf8").slice(-2000)}`);
    }
    assert.ok(performance.now() < end, `waited ${seconds} s for ${what}`);
    await pause(20);
  }
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

interface Part {
  text?: string;
  data?: unknown;
  metadata?: Record<string, unknown>;
}

export interface TaskSeen {
  id: string;
  status: { state: string; message?: { parts: Part[] } };
  artifacts?: { artifactId: string; parts: Part[] }[];
}

/** `a2ad dev`, which can be killed and started again on its data. */
export class TestServer {
  readonly directory = mkdtempSync(join(tmpdir(), "a2ad-typescript-"));
  url = "";
  #port = 0;
  #process: ChildProcess | undefined;

  constructor(agents: string[], lease = "2s") {
    mkdirSync(join(this.directory, "agents"));
    const limits = `{lease_ttl: ${lease}, max_attempts: 50, backoff: {base: 100ms, max: 500ms}}`;
    for (const name of agents) {
      const file = `name: ${name}\ndescription: Works.\nexecutor: {pull: {}}\nlimits: ${limits}\n`;
      writeFileSync(join(this.directory, "agents", `${name}.yaml`), file);
    }
  }

  async start(): Promise<void> {
    this.#port ||= await freePort();
    this.url = `http://127.0.0.1:${this.#port}`;
    const log = openSync(join(this.directory, "server.log"), "a");
    const args = ["dev", "--agents", join(this.directory, "agents"), "--listen", `127.0.0.1:${this.#port}`];
    args.push("--admin-listen", "off", "--data-dir", join(this.directory, "data"));
    const env = Object.fromEntries(Object.entries(process.env).filter(([k]) => !k.startsWith("A2AD_")));
    this.#process = spawn(a2ad, args, { stdio: ["ignore", log, log], env });
    closeSync(log);
    await until("the server", async () => {
      const log = () => readFileSync(join(this.directory, "server.log"), "utf8").slice(-2000);
      assert.equal(this.#process?.exitCode, null, log());
      return await fetch(`${this.url}/.well-known/agent-card.json`).then(
        (a) => a.ok,
        () => false,
      );
    });
  }

  async kill(): Promise<void> {
    await end(this.#process, "SIGKILL");
  }

  async stop(): Promise<void> {
    await end(this.#process, "SIGTERM");
    rmSync(this.directory, { recursive: true, force: true });
  }

  /** Runs a command for operators. */
  task(...args: string[]): string {
    const got = spawnSync(a2ad, ["task", ...args, "--data-dir", join(this.directory, "data")], { encoding: "utf8" });
    assert.equal(got.status, 0, got.stderr);
    return got.stdout;
  }

  /** Calls a method of A2A 1.0. It tries again while the server is down. */
  async call<T>(agent: string, method: string, params: object): Promise<T> {
    const headers = { "Content-Type": "application/json", "A2A-Version": "1.0", "Idempotency-Key": randomUUID() };
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
    const got = await until(`an answer to ${method}`, async () => {
      try {
        const answer = await fetch(`${this.url}/agents/${agent}`, { method: "POST", headers, body });
        return (await answer.json()) as { error?: unknown; result: T };
      } catch {
        return undefined;
      }
    });
    assert.equal(got.error, undefined, JSON.stringify(got.error));
    return got.result;
  }

  /** Sends a message, and returns the id of the task. */
  async send(agent: string, said: string | Part, taskId?: string): Promise<string> {
    const parts = [typeof said === "string" ? { text: said } : said];
    const message = { messageId: randomUUID(), role: "ROLE_USER", parts, ...(taskId && { taskId }) };
    const params = { message, configuration: { returnImmediately: true } };
    return (await this.call<{ task: TaskSeen }>(agent, "SendMessage", params)).task.id;
  }

  async get(agent: string, id: string): Promise<TaskSeen> {
    return await this.call<TaskSeen>(agent, "GetTask", { id });
  }

  async reached(agent: string, id: string, state: string): Promise<TaskSeen> {
    return await until(`${state} of ${id}`, async () => {
      const task = await this.get(agent, id);
      return task.status.state === `TASK_STATE_${state}` ? task : undefined;
    });
  }
}

/** A worker in a process of its own. Its program may read and write files in its directory. */
export class TestWorker {
  readonly log: string;
  readonly #process: ChildProcess;

  constructor(server: TestServer, directory: string, program: string) {
    this.log = join(directory, "worker.log");
    writeFileSync(join(directory, "worker.js"), program);
    const log = openSync(this.log, "a");
    const env = { ...process.env, A2AD_URL: server.url };
    this.#process = spawn(process.execPath, ["worker.js"], { cwd: directory, stdio: ["ignore", log, log], env });
    closeSync(log);
    running.add(this);
  }

  get running(): boolean {
    return this.#process.exitCode === null && this.#process.signalCode === null;
  }

  async kill(): Promise<void> {
    running.delete(this);
    await end(this.#process, "SIGKILL");
  }

  /** Sends SIGTERM, and returns the exit code. */
  async stop(): Promise<number | null> {
    running.delete(this);
    return await end(this.#process, "SIGTERM");
  }
}

async function end(child: ChildProcess | undefined, signal: NodeJS.Signals): Promise<number | null> {
  if (child?.exitCode === null && child.signalCode === null) {
    const exited = once(child, "exit");
    child.kill(signal);
    await exited;
  }
  return child?.exitCode ?? null;
}

/** Returns an empty project in which the package, and zod, can be imported by their names. */
export function project(server: TestServer, name: string): string {
  const directory = mkdtempSync(join(server.directory, `${name}-`));
  mkdirSync(join(directory, "node_modules", "@a2ad"), { recursive: true });
  symlinkSync(packageRoot, join(directory, "node_modules", "@a2ad", "worker"));
  symlinkSync(join(packageRoot, "node_modules", "zod"), join(directory, "node_modules", "zod"));
  writeFileSync(join(directory, "package.json"), '{"type": "module"}\n');
  return directory;
}

/** Returns the text of an artifact. */
export function textOf(task: TaskSeen, artifact = "answer"): string {
  const found = task.artifacts?.find((a) => a.artifactId === artifact);
  return (found?.parts ?? []).map((p) => p.text ?? "").join("");
}

/** Returns the text of the last status. */
export const lastText = (task: TaskSeen) => task.status.message?.parts[0]?.text;
