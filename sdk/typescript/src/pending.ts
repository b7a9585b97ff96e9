/** The functions of agents and steps that have not ended, in all of the process. */
let pending = 0;

/** Counts a function until it ends. One that was left at a call never does. */
export function countPending<T>(work: Promise<T>): Promise<T> {
  const end = () => {
    pending--;
  };
  pending++;
  work.then(end, end);
  return work;
}

/** Returns whether a function has not ended. */
export const somePending = (): boolean => pending > 0;
