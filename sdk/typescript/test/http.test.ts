// The HTTP client, with all kinds of servers and proxies.
import assert from "node:assert/strict";
import { AsyncLocalStorage } from "node:async_hooks";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { Agent } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { TLSSocket } from "node:tls";

import { HttpError, Pool } from "../src/http.js";
import { UsageError } from "../src/index.js";
import { proxyFor } from "../src/proxy.js";
import { FakeServer } from "./fake.js";
import { Gate } from "./kit.js";

type Serve = (request: string, socket: Socket) => void;

/** Starts a server that gets the head of each request. Returns its port. */
async function listen(t: TestContext, serve: Serve, server: Server = createServer()): Promise<number> {
  server.on("connection", (socket: Socket) => {
    let head = "";
    socket.on("error", () => undefined);
    socket.on("data", (data: Buffer) => {
      head += data.toString();
      if (head.includes("\r\n\r\n")) {
        const request = head;
        head = "";
        serve(request, socket);
      }
    });
    t.after(() => socket.destroy());
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(() => server.close());
  return (server.address() as AddressInfo).port;
}

function pool(t: TestContext, url: string): Pool {
  const made = new Pool(new URL(url), { "User-Agent": "test" });
  t.after(() => {
    made.close();
  });
  return made;
}

const get = (of: Pool, timeout = 5, signal?: AbortSignal) => of.request("POST", "/x", "1", timeout, signal);

void test("answers with a length, in chunks, or until the end", async (t) => {
  const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  const answers: [sent: string, status: number, body: string][] = [
    ["HTTP/1.1 200 OK\r\ncontent-length:2\r\nX: y\r\n\r\nok", 200, "ok"],
    ["HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 404, ""],
    [`${chunked}2\r\nok\r\n3;a=b\r\n!!!\r\n0\r\n\r\n`, 200, "ok!!!"],
    ["HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1", 200, "1"],
  ];
  let next = "";
  const port = await listen(t, (_, socket) => socket.write(next));
  const client = pool(t, `http://127.0.0.1:${port}`);
  for (const [sent, status, body] of answers) {
    next = sent;
    const got = await get(client);
    assert.deepEqual([got.status, got.body.toString()], [status, body]);
  }
});

void test("answers that cannot be read are errors, and the next request gets a new connection", async (t) => {
  let connections = 0;
  const answers = ["", "SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1"];
  const server = createServer().on("connection", () => connections++);
  const port = await listen(
    t,
    (_, socket) => {
      const answer = answers.shift();
      socket.end(answer ?? "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nagain");
    },
    server,
  );
  const client = pool(t, `http://127.0.0.1:${port}`);
  for (const text of [/the server closed the connection/, /Parse Error/, /the server closed the connection/]) {
    const err: unknown = await get(client).catch((e: unknown) => e);
    assert.ok(err instanceof HttpError, String(err));
    assert.match(err.message, text);
  }
  assert.equal((await get(client)).body.toString(), "again");
  assert.equal(connections, 4);
});

void test("connections are used again", async (t) => {
  const server = new FakeServer();
  const client = pool(t, `${await server.start()}/base/`);
  t.after(() => {
    server.close();
  });
  for (let n = 0; n < 3; n++) {
    await get(client);
  }
  assert.deepEqual([server.connections, server.requests[0]?.path], [1, "/base/x"]);
});

void test("a request that takes too long, or is aborted, ends", async (t) => {
  const port = await listen(t, () => undefined);
  const client = pool(t, `http://127.0.0.1:${port}`);
  await assert.rejects(get(client, 0.01), /^Error: timeout$/);
  const stop = new AbortController();
  const aborted = get(client, 60, stop.signal);
  stop.abort();
  await assert.rejects(aborted, /aborted/);
  await assert.rejects(get(client, 60, stop.signal), /aborted/);
});

void test("a server that switches protocols", async (t) => {
  const switches = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n";
  const port = await listen(t, (_, socket) => socket.write(switches));
  await assert.rejects(get(pool(t, `http://127.0.0.1:${port}`), 60), /^Error: the server switched protocols$/);
});

void test("a path that is none leaves nothing behind", async (t) => {
  const client = pool(t, "http://127.0.0.1:1");
  const timers = () => process.getActiveResourcesInfo().filter((what) => what === "Timeout").length;
  const before = timers();
  await assert.rejects(client.request("POST", "/→", "1", 60), /unescaped characters/);
  assert.equal(timers(), before);
});

void test("connections do not keep what the run has in memory", async (t) => {
  const server = new FakeServer();
  const client = pool(t, await server.start());
  t.after(() => {
    server.close();
  });
  const run = new AsyncLocalStorage<string>();
  const found: unknown[] = [];
  const agent = Agent.prototype as unknown as { createConnection: (...args: unknown[]) => unknown };
  const connects = agent.createConnection;
  t.mock.method(agent, "createConnection", function (this: Agent, ...args: unknown[]) {
    found.push(run.getStore());
    return connects.apply(this, args);
  });
  await run.run("run", async () => {
    await get(client);
    assert.equal(run.getStore(), "run");
  });
  assert.deepEqual(found, [undefined]);
});

void test("an unreachable server", async (t) => {
  const server = createServer();
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await assert.rejects(get(pool(t, `http://127.0.0.1:${port}`)), /connect to 127\.0\.0\.1:\d+: /);
});

void test("proxies from the environment", () => {
  const http = new URL("http://a2ad.example:8080/base");
  const environment = {
    HTTP_PROXY: "http://ann:secret@proxy:3128",
    https_proxy: "other",
    NO_PROXY: "localhost, .internal,10.0.0.1:81",
  };
  const proxy = (url: string) => proxyFor(new URL(url), environment);
  const basic = `Basic ${Buffer.from("ann:secret").toString("base64")}`;
  assert.deepEqual(proxyFor(http, environment), {
    hostname: "proxy",
    port: "3128",
    headers: { "Proxy-Authorization": basic },
  });
  assert.deepEqual(proxy("https://a2ad.example"), { hostname: "other", port: "8080", headers: {} });
  for (const url of ["http://localhost:8080", "https://a2ad.internal", "http://10.0.0.1:81"]) {
    assert.equal(proxy(url), undefined);
  }
  assert.equal(proxyFor(http, {}), undefined);
});

void test("addresses of proxies", () => {
  const proxy = (name: string) => proxyFor(new URL("https://a2ad.example"), { HTTPS_PROXY: name });
  const login = (text: string) => ({ "Proxy-Authorization": `Basic ${Buffer.from(text).toString("base64")}` });
  const addresses: [name: string, hostname: string, port: string, headers?: object][] = [
    ["proxy", "proxy", "8080"],
    ["proxy:80", "proxy", "80"],
    ["HTTP://proxy:80/", "proxy", "80"],
    ["http://proxy/a:3128", "proxy", "8080"],
    ["http://[::1]:3128", "::1", "3128"],
    ["http://[::1]", "::1", "8080"],
    ["http://u:100%@proxy:3128", "proxy", "3128", login("u:100%")],
    ["http://u:80@proxy", "proxy", "8080", login("u:80")],
    ["http://a%40b:c%3Ad@proxy", "proxy", "8080", login("a@b:c:d")],
  ];
  for (const [name, hostname, port, headers = {}] of addresses) {
    assert.deepEqual(proxy(name), { hostname, port, headers }, name);
  }
  for (const name of ["http://", "proxy:notaport", "proxy:99999", "https://proxy:443", "socks5://proxy:1080"]) {
    const message = new RegExp(`HTTPS_PROXY must be an address such as http://proxy:8080, not '${name}'`);
    assert.throws(
      () => proxy(name),
      (err: unknown) => err instanceof UsageError && message.test(err.message),
      name,
    );
  }
  assert.throws(() => proxy("https://ann:secret@proxy"), /not 'https:\/\/…@proxy'/);
});

void test("a proxy for a server without TLS", async (t) => {
  const asked: string[] = [];
  const port = await listen(t, (request, socket) => {
    asked.push(request);
    socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  });
  set(t, "http_proxy", `http://ann:secret@127.0.0.1:${port}`);
  await get(pool(t, "http://a2ad.example:8080/base"));
  assert.match(asked[0] ?? "", /^POST http:\/\/a2ad\.example:8080\/base\/x HTTP\/1\.1\r\n/);
  assert.match(asked[0] ?? "", /\r\nHost: a2ad\.example:8080\r\n/);
  assert.match(asked[0] ?? "", /\r\nProxy-Authorization: Basic YW5uOnNlY3JldA==\r\n/);
});

/** Sets a variable of the environment until the end of the test. */
function set(t: TestContext, name: string, value: string): void {
  const { env } = process;
  const before = env[name];
  env[name] = value;
  t.after(() => {
    if (before === undefined) {
      Reflect.deleteProperty(env, name);
    } else {
      env[name] = before;
    }
  });
}

void test("TLS to the server, and through a proxy", async (t) => {
  const directory = mkdtempSync(join(tmpdir(), "a2ad-tls-"));
  t.after(() => {
    rmSync(directory, { recursive: true });
  });
  const [key, cert] = [join(directory, "key.pem"), join(directory, "cert.pem")];
  const request = "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost";
  execFileSync("openssl", [...request.split(" "), "-keyout", key, "-out", cert], { stdio: "ignore" });
  const server = createTlsServer({ key: readFileSync(key), cert: readFileSync(cert) }, (_, response) => {
    response.end("over TLS");
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const { port } = server.address() as AddressInfo;
  const asked: string[] = [];
  const proxy = await listen(t, (request, socket) => {
    asked.push(request);
    const there = connect(port, "127.0.0.1");
    socket.removeAllListeners("data");
    socket.write("HTTP/1.1 200 Connection established\r\n\r\n");
    socket.pipe(there).pipe(socket);
    there.on("error", () => undefined);
  });
  // Node reads NODE_EXTRA_CA_CERTS when it starts.
  const program = `const { Pool } = await import(${JSON.stringify(new URL("../src/http.js", import.meta.url).href)});
    const pool = new Pool(new URL("https://localhost:${port}"), {});
    try {
      console.log((await pool.request("POST", "/x", "1", 10)).body.toString());
      console.log((await pool.request("POST", "/x", "1", 10)).body.toString());
    } catch (err) {
      console.log(err.message);
    }
    pool.close();`;
  const play = async (env: NodeJS.ProcessEnv) => {
    const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
      env: { PATH: process.env.PATH, ...env },
    });
    let output = "";
    child.stdout.on("data", (data: Buffer) => (output += data.toString()));
    await once(child, "close");
    return output;
  };
  assert.equal(await play({ NODE_EXTRA_CA_CERTS: cert }), "over TLS\nover TLS\n");
  const through = { NODE_EXTRA_CA_CERTS: cert, HTTPS_PROXY: `127.0.0.1:${proxy}` };
  assert.equal(await play(through), "over TLS\nover TLS\n");
  assert.match(asked.join(), /^CONNECT localhost:\d+ HTTP\/1\.1\r\nHost: localhost:\d+\r\n/);
  assert.equal(asked.length, 1);
  assert.match(await play({}), /certificate/);
});

void test("a proxy that refuses a tunnel", async (t) => {
  const port = await listen(t, (_, socket) => socket.end("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"));
  set(t, "https_proxy", `127.0.0.1:${port}`);
  await assert.rejects(get(pool(t, "https://a2ad.example")), /the proxy 127\.0\.0\.1 answered 403/);
});

const established = "HTTP/1.1 200 Connection established\r\n\r\n";

void test("a request ends in time while a proxy is silent", async (t) => {
  for (const answer of ["", established]) {
    const asked = new Gate();
    const closed = new Gate();
    const port = await listen(t, (_, socket) => {
      socket.on("close", () => {
        closed.open();
      });
      socket.write(answer);
      asked.open();
    });
    set(t, "https_proxy", `127.0.0.1:${port}`);
    const client = pool(t, "https://a2ad.example");
    const stop = new AbortController();
    const aborted = get(client, 60, stop.signal);
    await asked.opened;
    stop.abort();
    await assert.rejects(aborted, /^Error: aborted$/);
    await assert.rejects(get(client, 0.01), /^Error: timeout$/);
    client.close();
    await closed.opened; // else the connection would keep the process
  }
});

void test("a handshake through a silent proxy ends", async (t) => {
  const port = await listen(t, (_, socket) => socket.write(established));
  set(t, "https_proxy", `127.0.0.1:${port}`);
  t.mock.method(TLSSocket.prototype, "setTimeout", function (this: TLSSocket, after: number, late?: () => void) {
    if (after > 0 && late !== undefined) {
      setImmediate(late);
    }
    return this;
  });
  const request = get(pool(t, "https://a2ad.example"), 60);
  await assert.rejects(request, /^Error: no TLS through the proxy 127\.0\.0\.1: timeout$/);
});
