/** Several things at once, each in a branch with its own keys. */
import { Call } from "./call.js";
import { sleep } from "./clock.js";
import { UsageError } from "./errors.js";
import { isFunction, typeName } from "./json.js";
import { endGather, nextKey, outsideSteps, runIn } from "./scope.js";
import type { Session } from "./session.js";
import { beginWait, type Wait } from "./wait.js";

type Result = { readonly value: unknown } | { readonly error: unknown };

/** Branches of `gather`. When none of them can continue, the task waits for all of them. */
export class Group {
  readonly #blocked = new Map<number, Wait>();
  readonly #ended = new AbortController();
  #wake: () => void = () => undefined;

  constructor(private readonly session: Session) {}

  /** Waits until the run ends. It returns after some seconds if other branches still work then. */
  async block(branch: number, wait: Wait, seconds?: number): Promise<void> {
    this.#blocked.set(branch, wait);
    this.changed();
    if (seconds !== undefined) {
      const over = AbortSignal.any([this.#ended.signal, this.session.abort.signal]);
      await sleep(seconds, over);
      if (!over.aborted) {
        this.#blocked.delete(branch);
        return;
      }
    }
    await new Promise<never>(() => undefined);
  }

  /** Looks again whether branches can continue. */
  changed(): void {
    this.#wake();
  }

  /** Waits until each branch has ended or waits. Returns what to wait for, or undefined if all ended. */
  async untilBlocked(results: readonly (Result | undefined)[]): Promise<Wait | undefined> {
    for (;;) {
      const open = results.flatMap((r, i) => (r === undefined ? [i] : []));
      const waits = open.flatMap((i) => this.#blocked.get(i) ?? []);
      if (waits.length === open.length) {
        this.#ended.abort();
        return open.length === 0 ? undefined : joined(waits);
      }
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }
}

/** Returns a wait for the first of several. */
function joined(waits: readonly Wait[]): Wait {
  const calls = [...new Set(waits.flatMap((w) => w.calls))].sort();
  const [first] = waits.filter((w) => w.until !== undefined).sort((a, b) => (a.until ?? 0) - (b.until ?? 0));
  return { ...first, calls };
}

/** Does several things at once, and returns their results in order. */
export async function gather(session: Session, work: readonly unknown[]): Promise<unknown[]> {
  outsideSteps(session, "gather");
  const functions = work.map(checkWork);
  const prefix = nextKey(session, "gather");
  session.releaseHeld();
  const group = new Group(session);
  const results: (Result | undefined)[] = functions.map(() => undefined);
  functions.forEach((one, number) => {
    const branch = { prefix: `${prefix}.${number + 1}/`, group, number };
    const settle = (result: Result) => {
      results[number] = result;
      group.changed();
    };
    const whole = async () => {
      const value = await one();
      session.checkEnded("branch");
      return value;
    };
    runIn({ session, branch }, whole).then(
      (value) => {
        settle({ value });
      },
      (error: unknown) => {
        settle({ error });
      },
    );
  });
  try {
    const wait = await group.untilBlocked(results);
    if (wait !== undefined) {
      await beginWait(session, wait, wait.key ?? nextWait(session, prefix), true);
    }
  } finally {
    endGather(session, prefix);
  }
  return results.map((r) => {
    if (r !== undefined && "error" in r) {
      throw r.error;
    }
    return r?.value;
  });
}

/** Returns the key of the next wait for calls of the branches. */
function nextWait(session: Session, prefix: string): string {
  let n = 1;
  while (session.known.get(`${prefix}/wait#${n}`)?.ended === true) {
    n++;
  }
  return `${prefix}/wait#${n}`;
}

function checkWork(one: unknown, i: number): () => unknown {
  if (isFunction(one)) {
    return one;
  }
  if (one instanceof Call) {
    one.handedOver();
  }
  const kind = one instanceof Call ? "a call" : typeName(one);
  const hint = Array.isArray(one) ? "; write gather(...functions)" : "";
  throw new UsageError(`gather takes functions such as () => task.step(…), not ${kind} (argument ${i + 1})${hint}`);
}
