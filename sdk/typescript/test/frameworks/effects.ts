// What the fakes of a framework do to the world. A test reads it, and says where a fake stops.
import { appendFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** What was done in this process. */
export const done: string[] = [];

/** Two files, which a test and the process of its worker share. */
export class Effects {
  readonly #done: string;
  readonly #stop: string;

  constructor(directory: string) {
    this.#done = join(directory, "done");
    this.#stop = join(directory, "stop");
  }

  add(what: string): void {
    appendFileSync(this.#done, `${what}\n`);
  }

  list(): string[] {
    return existsSync(this.#done) ? readFileSync(this.#done, "utf8").trim().split("\n") : [];
  }

  count(what: string): number {
    return this.list().filter((one) => one === what).length;
  }

  stopNextAt(what: string): void {
    writeFileSync(this.#stop, what);
  }

  stopsAt(what: string): boolean {
    return existsSync(this.#stop) && readFileSync(this.#stop, "utf8") === what;
  }
}

/** Notes that something was done. If the test says so, it stops here until the process is killed. */
export async function effect(what: string): Promise<void> {
  done.push(what);
  const directory = process.env.EFFECTS; // set in the process of a worker
  if (directory !== undefined) {
    const effects = new Effects(directory);
    effects.add(what);
    if (effects.stopsAt(what)) {
      await new Promise(() => undefined);
    }
  }
}

/** Takes the place of the shop of the examples. */
export async function shop(request: string): Promise<string> {
  await effect(request);
  return `${request}: ok`;
}
