// An a2ad server as a process, and what tests need with it.
import { spawn } from 'node:child_process';
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { tmpdir } from 'node:os';
import path from 'node:path';

const binary = process.env.A2AD_BIN;

// Server is `a2ad dev` with its own PostgreSQL. After a restart it has the same address and the same tasks.
export class Server {
  #dir;
  #flags;
  #process;
  #log;
  address = '127.0.0.1:0';

  static async start(...flags) {
    if (!binary) throw new Error('A2AD_BIN must name the a2ad binary; `make interop` sets it');
    const server = new Server();
    server.#flags = flags;
    server.#dir = await mkdtemp(path.join(tmpdir(), 'a2ad-interop-js-'));
    await chmod(server.#dir, 0o711); // PostgreSQL may run as another user
    await server.restart();
    return server;
  }

  get url() {
    return `http://${this.address}/`;
  }

  get data() {
    return path.join(this.#dir, 'pg');
  }

  // database is the URL of the server's own database.
  async database() {
    const [, , , port, directory] = (await readFile(path.join(this.data, 'data/postmaster.pid'), 'utf8')).split('\n');
    return `postgres://a2ad@/a2ad?host=${encodeURIComponent(directory)}&port=${port}`;
  }

  async restart() {
    const args = [
      'dev', '--data-dir', this.data, '--listen', this.address, '--admin-listen', 'off',
      '--log-format', 'json'
    ];
    const env = Object.fromEntries(Object.entries(process.env).filter(
      ([k]) => !k.startsWith('A2AD_') || k === 'A2AD_PG_BINDIR'
    ));
    this.#process = spawn(binary, [...args, ...this.#flags], { stdio: ['ignore', 'ignore', 'pipe'], env });
    this.#log = [];
    process.once('exit', this.#end);
    for await (const line of createInterface({ input: this.#process.stderr })) {
      this.#log.push(line);
      const ready = line.includes('"msg":"ready"') && JSON.parse(line).api;
      if (ready) {
        this.address = ready;
        this.#read();
        return;
      }
    }
    throw new Error(`a2ad did not start:\n${this.#log.join('\n')}`);
  }

  // #read takes the rest of the log, which would fill its pipe.
  #read() {
    this.#process.stderr.setEncoding('utf8');
    this.#process.stderr.on('data', (text) => this.#log.push(text));
    this.#process.stderr.resume();
  }

  #end = () => this.#process.kill('SIGTERM');

  async #signal(name) {
    process.off('exit', this.#end);
    const gone = once(this.#process, 'exit');
    this.#process.kill(name);
    return gone;
  }

  kill() {
    return this.#signal('SIGKILL');
  }

  async stop() {
    const [code] = await this.#signal('SIGTERM');
    await rm(this.#dir, { recursive: true, force: true });
    const log = this.#log.join('\n');
    if (code !== 0 || log.includes('"level":"ERROR"')) throw new Error(`a2ad ended with ${code}:\n${log}`);
  }
}

// Gate is a place in a script where the agent waits until the test lets it pass.
export class Gate {
  #server;
  #waiting = [];
  #open = false;

  static async make(t) {
    const gate = new Gate();
    gate.#server = createServer((req, res) => {
      req.resume();
      if (gate.#open) res.end();
      else gate.#waiting.push(res);
    }).listen(0, '127.0.0.1');
    await once(gate.#server, 'listening');
    t.after(() => {
      gate.open();
      gate.#server.close();
      gate.#server.closeAllConnections();
    });
    return gate;
  }

  get op() {
    return { op: 'effect', url: `http://127.0.0.1:${this.#server.address().port}/`, key: 'gate' };
  }

  open() {
    this.#open = true;
    for (const res of this.#waiting.splice(0)) res.end();
  }
}
