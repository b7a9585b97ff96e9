import { UsageError } from "./errors.js";
import { runIn } from "./scope.js";
import type { Session } from "./session.js";
import { never, waitForCalls } from "./waits.js";

type Work = () => unknown;
type Result = { readonly value: unknown } | { readonly error: unknown };

/** Refuses what is no function. A promise has begun already, outside of the branches of `gather`. */
export function checkWork(work: readonly unknown[]): asserts work is readonly Work[] {
  const wrong = work.findIndex((one) => typeof one !== "function");
  if (wrong >= 0) {
    throw new UsageError(`gather takes functions: write gather(() => task.step(…)); argument ${wrong + 1} is none`);
  }
}

/** Does several things at once, each in a branch with its own keys. */
export async function gather(session: Session, prefix: string, work: readonly Work[]): Promise<unknown[]> {
  const results: (Result | undefined)[] = work.map(() => undefined);
  const calls = await runBranches(session, prefix, work, results);
  session.check();
  if (calls.length > 0) {
    let n = 1;
    while (session.known.get(`${prefix}/wait#${n}`)?.endedAt !== undefined) {
      n++;
    }
    return await waitForCalls(session, `${prefix}/wait#${n}`, calls, true);
  }
  return results.map((r) => {
    if (r !== undefined && "error" in r) {
      throw r.error;
    }
    return r?.value;
  });
}

/** Runs branches until each is done or waits for calls. Returns the keys of these calls. */
function runBranches(
  session: Session,
  prefix: string,
  work: readonly Work[],
  results: (Result | undefined)[],
): Promise<string[]> {
  const blocked = new Map<number, string[]>();
  return new Promise((done) => {
    const settled = () => {
      if (results.every((r, i) => r !== undefined || blocked.has(i))) {
        done([...new Set([...blocked.values()].flat())].sort());
      }
    };
    work.forEach((one, i) => {
      const block = (calls: string[]) => {
        blocked.set(i, calls);
        settled();
        return never();
      };
      const run = async () => {
        try {
          results[i] = { value: await runIn({ session, branch: { prefix: `${prefix}.${i + 1}/`, block } }, one) };
        } catch (error) {
          results[i] = { error };
        }
        settled();
      };
      void run();
    });
    settled();
  });
}
