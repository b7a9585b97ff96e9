// Workers in processes of their own: signals, what would end the process, and what blocks it.
import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { connect } from "node:net";
import { test, type TestContext } from "node:test";

import { claimed, FakeServer, ok } from "./fake.js";
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
    const realTimeout = setTimeout;
    const exitDelay = 30; // milliseconds that the process gets to end, instead of seconds
    globalThis.setTimeout = (work, ms, ...args) => realTimeout(work, ms === 5000 ? exitDelay : ms, ...args);
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

const fails = (what: string) => `(() => { throw new Error("${what}") })()`;

void test("listeners of abort signals that fail end no other task", async (t) => {
  const [server, url] = await fakeServer(t, claimed("t1", { leaseSeconds: 3 }), claimed("t2"));
  server.answer = (path) => (path.endsWith("t1/1/heartbeat") ? [200, { cancelRequested: true }] : ok);
  const child = start(
    t,
    url,
    `
    let over;
    const t1 = new Promise((resolve) => (over = resolve));
    worker.agent("a", async (task) => {
      if (task.id === "t2") {
        await task.step("slow", (abort) => new Promise((resolve) => {
          abort.onabort = () => { resolve(); ${fails("by a property")} };
        }), { timeout: 0.01 }).catch(() => undefined);
        await t1;
        return;
      }
      const removed = () => { ${fails("removed")} };
      task.abortSignal.addEventListener("abort", removed);
      task.abortSignal.removeEventListener("abort", removed);
      task.abortSignal.addEventListener("abort", () => { ${fails("at once")} });
      task.abortSignal.addEventListener("abort", async () => { await turn(); ${fails("later")} });
      task.abortSignal.addEventListener("abort", { handleEvent() { ${fails("of an object")} } });
      task.abortSignal.addEventListener("abort", () => void (async () => { await turn(); ${fails("floating")} })());
      task.abortSignal.addEventListener("abort", () => setTimeout(over, 10));
      await new Promise(() => undefined);
    });
    await worker.run();`,
  );
  await server.seen(server.completed);
  child.process.kill("SIGTERM");
  assert.equal(await child.ended(), 0);
  for (const what of ["by a property", "at once", "later", "of an object"]) {
    assert.match(child.output(), new RegExp(`ERROR a listener of an abort signal has failed: Error: ${what} `));
  }
  assert.match(child.output(), /nothing awaits has failed: Error: floating /);
  assert.doesNotMatch(child.output(), /removed/);
});

void test("whatever is thrown, it is logged", async (t) => {
  const [server, url] = await fakeServer(t, ...["t0", "t1", "t2", "t3"].map((id) => claimed(id)));
  const child = start(
    t,
    url,
    `
    const odd = (members) => Object.defineProperties(new Error("odd"), members);
    const reasons = [
      Object.create(null),
      odd({ stack: { value: 5 } }),
      odd({ stack: { value: "Error: odd\\n    at f (file:///a%2Fb.js:1:2)" } }),
      odd({ stack: { get() { throw new Error("no stack"); } }, message: { get() { throw new Error("no message"); } } }),
    ];
    worker.agent("a", async (task) => {
      const reason = reasons[Number(task.id[1])];
      Promise.reject(reason);
      await turn();
      await task.step("odd", () => { throw reason; }).catch(() => undefined);
      throw reason;
    });
    await worker.run();`,
  );
  await server.seen(() => server.of("/finish").length === 4);
  child.process.kill("SIGTERM");
  assert.equal(await child.ended(), 0);
  assert.deepEqual(server.of<{ error: string }>("/finish").map(({ error }) => error).sort(), [
    ...["Error: an error that cannot be shown", "Error: an error that cannot be shown", "Error: odd", "Error: odd"],
  ]);
  assert.equal(child.output().match(/nothing awaits has failed: Error: /g)?.length, 4);
});

void test("a logger that fails ends no task, and its lines go to stderr", async (t) => {
  const [server, url] = await fakeServer(t, claimed());
  const child = start(
    t,
    url,
    `
    const fail = () => { throw new Error("no disk"); };
    const logger = { debug: fail, info: fail, warn: fail, error: async () => fail() };
    new Worker({ logger }).agent("a", async (task) => {
      await task.step("x", fail).catch(() => undefined);
      Promise.reject(new Error("nobody awaits this"));
    }).run();`,
  );
  await server.seen(server.completed);
  await child.wrote("run ended: finished");
  child.process.kill("SIGTERM");
  assert.equal(await child.ended(), 0);
  assert.match(child.output(), /WARN step x failed: Error: no disk/);
  assert.match(child.output(), /ERROR a promise of the agent that nothing awaits has failed/);
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
  assert.match(first.output(), /WARN what a function has left still keeps the process, so it exits now/);

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

void test("the end of a worker does not cut the runs of another one", async (t) => {
  const [server, url] = await fakeServer(t, claimed());
  const [other, otherUrl] = await fakeServer(t, claimed());
  const child = start(
    t,
    url,
    `
    worker.agent("a", () => new Promise(() => undefined));
    const other = new Worker({ url: "${otherUrl}", grace: 60 }).agent("a", async () => {
      await new Promise((resolve) => process.once("SIGTERM", resolve));
      await new Promise((resolve) => realTimeout(resolve, 10 * exitDelay));
    });
    await Promise.all([worker.run(), other.run()]);
    console.log("both have ended");`,
  );
  await server.seen(() => server.runs.length === 0);
  await other.seen(() => other.runs.length === 0);
  await child.wrote("claims tasks of a");
  child.process.kill("SIGTERM");
  assert.equal(await child.ended(), 0);
  assert.match(child.output(), /both have ended/);
  assert.ok(other.completed());
});

void test("a function that ended after it was left does not cut the end of the program", async (t) => {
  const [server, url] = await fakeServer(t, claimed("t", { leaseSeconds: 3 }));
  server.answer = (path) => (path.endsWith("/heartbeat") ? [200, { cancelRequested: true }] : ok);
  const child = start(
    t,
    url,
    `
    worker.agent("a", (task) => new Promise((resolve) => task.abortSignal.addEventListener("abort", resolve)));
    await worker.run();
    await new Promise((resolve) => realTimeout(resolve, 10 * exitDelay));
    console.log("cleaned up");`,
  );
  await child.wrote("run ended: canceled");
  child.process.kill("SIGTERM");
  assert.equal(await child.ended(), 0);
  assert.match(child.output(), /cleaned up/);
});

for (const [what, agent, event] of [
  ["at a wait", 'await task.ask("ok?")', "wait"],
  ["after the timeout of its step", 'await task.step("x", () => never(), { timeout: 0 }).catch(() => 1)', "step"],
] as const) {
  void test(`a function that was left ${what} does not keep the process`, async (t) => {
    const [server, url] = await fakeServer(t, claimed());
    const child = start(
      t,
      url,
      `
      const never = () => new Promise((resolve) => realTimeout(resolve, 600_000));
      worker.agent("a", async (task) => {
        const poll = setInterval(() => undefined, 1000);
        ${agent};
        ${event === "step" ? "clearInterval(poll)" : ""};
      });
      await worker.run();`,
    );
    await child.wrote("run ended");
    assert.ok(server.events().some((e) => event in e));
    child.process.kill("SIGTERM");
    assert.equal(await child.ended(), 0);
  });
}

void test("a silent connection to the health port does not keep the process", async (t) => {
  const [server, url] = await fakeServer(t);
  const child = start(
    t,
    url,
    `
    await new Worker({ health: "127.0.0.1:0" }).agent("a", () => 1).run();`,
  );
  await child.wrote("health endpoint on ");
  const port = /health endpoint on 127\.0\.0\.1:(\d+)/.exec(child.output())?.[1];
  const socket = connect(Number(port), "127.0.0.1").on("error", () => undefined);
  t.after(() => socket.destroy());
  await once(socket, "connect");
  await server.seen(() => server.of("/claim").length > 0);
  child.process.kill("SIGTERM");
  assert.equal(await child.ended(), 0);
});

void test("a promise that fails after the end of its worker is logged, too", async (t) => {
  const [server, url] = await fakeServer(t, claimed());
  const child = start(
    t,
    url,
    `
    let over;
    worker.agent("a", async (task) => {
      (async () => {
        await new Promise((resolve) => (over = resolve));
        throw new Error("late");
      })();
      await new Promise(() => undefined);
    });
    await worker.run();
    over();
    await turn();
    console.log("cleaned up");`,
  );
  await server.seen(() => server.runs.length === 0);
  await child.wrote("claims tasks of a");
  child.process.kill("SIGTERM");
  assert.equal(await child.ended(), 0);
  assert.match(child.output(), /nothing awaits has failed: Error: late[^]*cleaned up/);
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
