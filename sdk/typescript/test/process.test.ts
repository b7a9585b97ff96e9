// Workers in processes of their own: signals, what would end the process, and what blocks it.
import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { test, type TestContext } from "node:test";

import { claimed, FakeServer } from "./fake.js";
import { Gate } from "./kit.js";

const library = new URL("../src/index.js", import.meta.url).href;

interface Child {
  readonly process: ChildProcess;
  /** What it has written to stdout and stderr. */
  output: () => string;
  /** Waits until it has written this. */
  wrote: (text: string) => Promise<void>;
  /** Waits for its end, and returns its exit code or the signal. */
  ended: () => Promise<number | NodeJS.Signals>;
}

/** Runs a program that has `Worker`, and `worker` for the server. */
function start(t: TestContext, url: string, program: string, env: NodeJS.ProcessEnv = {}): Child {
  const code = `import { Worker } from ${JSON.stringify(library)};
    const turn = () => new Promise((resolve) => setImmediate(resolve));
    const worker = new Worker({ grace: 0.05 });
    ${program}`;
  const { NODE_TEST_CONTEXT: _, ...inherited } = process.env;
  const child = spawn(process.execPath, ["--input-type=module", "-e", code], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...inherited, A2AD_URL: url, ...env },
  });
  t.after(() => child.kill("SIGKILL"));
  const exited = once(child, "exit") as Promise<[number | null, NodeJS.Signals | null]>;
  let output = "";
  let changed = new Gate();
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
      changed.open();
    });
  }
  return {
    process: child,
    output: () => output,
    wrote: async (text) => {
      while (!output.includes(text)) {
        changed = new Gate();
        const code = await Promise.race([changed.opened, exited]);
        assert.ok(code === undefined || output.includes(text), `it ended without ${text}: ${output}`);
      }
    },
    ended: async () => {
      const [code, signal] = await exited;
      return code ?? signal ?? assert.fail();
    },
  };
}

async function fakeServer(t: TestContext, ...runs: ReturnType<typeof claimed>[]): Promise<[FakeServer, string]> {
  const server = new FakeServer(...runs);
  t.after(() => {
    server.close();
  });
  return [server, await server.start()];
}

void test("promises of agents that nothing awaits kill nothing", async (t) => {
  const [server, url] = await fakeServer(t, claimed("t1"), claimed("t2"));
  const child = start(
    t,
    url,
    `
    worker.agent("a", async (task) => {
      if (task.id === "t1") {
        (async () => { await turn(); throw new RangeError("nobody awaits this"); })();
        await task.step("handled", () => { throw new Error("in a step"); }).catch(() => undefined);
        Promise.resolve(task.step("badly", () => { throw new Error("in a step"); })).then(() => 1);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      await task.status("still here");
    });
    await worker.run();`,
  );
  const completed = () => server.events().filter((e) => e.statusUpdate?.status.state.endsWith("COMPLETED")).length;
  await server.seen(() => completed() === 2);
  child.process.kill("SIGTERM");
  assert.equal(await child.ended(), 0);
  assert.match(
    child.output(),
    /ERROR a promise of the agent that nothing awaits has failed: RangeError: nobody awaits this \(/,
  );
  assert.match(child.output(), /ERROR a promise of the agent that nothing awaits has failed: badly: Error: in a step/);
  assert.match(child.output(), /task_id=t1/);
});

void test("another rejection ends the process as usual", async (t) => {
  const [, url] = await fakeServer(t);
  const child = start(
    t,
    url,
    `
    worker.agent("a", () => 1);
    const served = worker.run();
    setTimeout(() => Promise.reject(new Error("of the program")), 10);
    await served;`,
  );
  assert.equal(await child.ended(), 1);
  assert.match(child.output(), /Error: of the program/);
});

void test("a signal stops a worker, and a second one ends the process", async (t) => {
  const [server, url] = await fakeServer(t, claimed());
  const program = (grace: number) => `
    const never = () => new Promise((resolve) => setTimeout(resolve, 600_000));
    await new Worker({ grace: ${grace} }).agent("a", never).run();`;
  const first = start(t, url, program(0.05));
  await server.seen(() => server.runs.length === 0);
  await first.wrote("claims tasks of a");
  first.process.kill("SIGTERM");
  assert.equal(await first.ended(), 0);
  assert.deepEqual(server.of("/finish"), [{ outcome: "release" }]);
  assert.match(first.output(), /WARN an agent's function ignores that its run has ended; the process exits/);

  server.runs = [claimed()];
  const second = start(t, url, program(600));
  await server.seen(() => server.runs.length === 0);
  await second.wrote("claims tasks of a");
  second.process.kill("SIGINT");
  await second.wrote("may continue for 600 s");
  second.process.kill("SIGINT");
  assert.equal(await second.ended(), "SIGINT");
});

void test("a worker goes on if the reader of its log ends", async (t) => {
  const [server, url] = await fakeServer(t, claimed("t1"), claimed("t2"));
  const closed = new Gate();
  server.delay = (path) => (path.includes("/t1/") ? closed.opened : undefined);
  const child = start(t, url, 'worker.agent("a", { concurrency: 1 }, () => "done"); await worker.run();');
  await child.wrote("claims tasks of a");
  const log = child.process.stderr ?? assert.fail();
  await once(log.destroy(), "close");
  closed.open();
  await Promise.race([server.seen(() => server.of("t2/1/events").length > 0), child.ended()]);
  child.process.kill("SIGTERM");
  assert.equal(await child.ended(), 0);
});

void test("a test may not import the file that starts a worker", async (t) => {
  const program = 'worker.agent("a", () => 1); await worker.run();';
  const child = start(t, "http://127.0.0.1:1", program, { NODE_TEST_CONTEXT: "child" });
  assert.equal(await child.ended(), 1);
  assert.match(child.output(), /UsageError: .*this starts a worker while a test imports the file/);
});

void test("code that blocks the event loop is warned of", async (t) => {
  const [server, url] = await fakeServer(t, claimed());
  const child = start(
    t,
    url,
    `
    worker.agent("a", async (task) => {
      await new Promise((resolve) => setTimeout(resolve, 20));
      const end = Date.now() + 1700;
      while (Date.now() < end);
      await new Promise((resolve) => setTimeout(resolve, 20));
    });
    await worker.run();`,
  );
  await server.seen(server.completed);
  child.process.kill("SIGTERM");
  assert.equal(await child.ended(), 0);
  assert.match(child.output(), /WARN the event loop was blocked for 1\.\d s: no lease was renewed meanwhile/);
});
