/** The form of the keys of recorded steps, such as `m2/6b86b273/gather#1.1/plan#1`. */

/** The key of the step that records why a task waits for a corrected program. */
export const postponed = "postponed";

const turn = /^(?:m\d+\/)?/;
const scope = /^(?:m\d+\/)?(?:[0-9a-f]{8}\/)?/;
const branch = /^(?:m\d+\/)?(?:[0-9a-f]{8}\/)?(?:gather#\d+\.\d+\/)*/;
const inner = /postponed($|\/)|\/pause#[\d.]+$|\/wait(#\d+)?$/;

/** Returns the prefix that names the message, or an empty text for the first message. */
export const turnOf = (key: string): string => turn.exec(key)?.[0] ?? "";

/** Returns the prefix that names the message, and the checkpoint of a handler. */
export const scopeOf = (key: string): string => scope.exec(key)?.[0] ?? "";

/** Returns the prefix of the branch of `gather`, with that of the message. */
export const branchOf = (key: string): string => branch.exec(key)?.[0] ?? "";

/** Returns whether the library makes the key for itself, without a call of the agent. */
export const isOfLibrary = (key: string): boolean => inner.test(key);
