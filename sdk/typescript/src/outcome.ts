/** What a test compares of two outcomes of a task, and how it shows the difference. */
import { branchOf } from "./keys.js";
import type { Reported } from "./memory.js";
import { isSegment } from "./segments.js";
import type { Result } from "./testing.js";

const width = 400;

/** Returns what a crash must not change, by a name for people. */
export function outcome(r: Result): Record<string, unknown> {
  const made: Record<string, unknown> = { state: r.state, text: r.text, data: r.data };
  for (const [id, artifact] of Object.entries(r.artifacts)) {
    made[`artifact '${id}'`] = artifact.text === "" ? artifact.parts : artifact.text;
  }
  // A handler writes its text again under another key.
  const keys = Object.values(r.steps).flatMap((s) => (isSegment(s) ? [] : [s.key]));
  for (const key of keys) {
    // The order within a branch of `gather` does not depend on time.
    const branch = branchOf(key).replace(/\/$/, "");
    const name = branch === "" ? "steps" : `steps of ${branch}`;
    made[name] = [...((made[name] as string[] | undefined) ?? []), key];
  }
  for (const [model, counts] of Object.entries(r.usage)) {
    made[model === "" ? "usage" : `usage of '${model}'`] = counts;
  }
  return made;
}

/** Returns whether two outcomes are the same. */
export const equal = (a: unknown, b: unknown): boolean => sorted(a) === sorted(b);

/** Returns the JSON of a value whose members have an order. */
function sorted(value: unknown): string {
  return JSON.stringify([value], (_, v: unknown) =>
    isObject(v) ? Object.fromEntries(Object.entries(v).sort(([a], [b]) => (a < b ? -1 : 1))) : v,
  );
}

/** Says what differs, one under the other. */
export function difference(expected: unknown, got: unknown): string {
  if (!isObject(expected) || !isObject(got)) {
    return pair(expected, got).join("\n");
  }
  return Object.keys({ ...expected, ...got })
    .filter((name) => !equal(expected[name], got[name]))
    .flatMap((name) => [`  ${name}`, ...pair(expected[name], got[name]).map((line) => `  ${line}`)])
    .join("\n");
}

const isObject = (v: unknown): v is Record<string, unknown> => typeof v === "object" && v !== null && !Array.isArray(v);

function pair(expected: unknown, got: unknown): string[] {
  if (Array.isArray(expected) && Array.isArray(got)) {
    const missing = without(expected, got);
    const added = without(got, expected);
    if (missing.length + added.length > 0) {
      return lines(missing, added);
    }
  }
  return lines(expected, got);
}

const without = (list: unknown[], other: unknown[]) => list.filter((v) => !other.some((one) => equal(one, v)));

const lines = (expected: unknown, got: unknown) => [
  `  without the crash: ${short(expected)}`,
  `  with the crash:    ${short(got)}`,
];

function short(value: unknown): string {
  const text = value === undefined ? "nothing" : JSON.stringify(value);
  return text.length <= width ? text : `${text.slice(0, width)}… (${text.length} characters)`;
}

/** Says in a few words what a request to the server records. */
export function requestText(events: readonly Reported[]): string {
  const said = [...new Set(events.map(eventText))].filter((s) => s !== "");
  const shown = said.length === 0 ? ["recording text"] : said;
  return shown.slice(0, 3).join(", ") + (shown.length > 3 ? ` and ${shown.length - 3} more` : "");
}

function eventText({ step, statusUpdate, artifactUpdate, wait, call, usage }: Reported): string {
  if (step !== undefined) {
    if (step.name === "write") {
      return ""; // text that the agent writes, which the update shows
    }
    if (step.error !== undefined) {
      return `recording the failure of step '${step.key}'`;
    }
    return `${step.artifact === undefined ? "recording" : "beginning"} step '${step.key}'`;
  }
  if (statusUpdate !== undefined) {
    const state = statusUpdate.status.state.replace("TASK_STATE_", "").toLowerCase();
    return state === "working" ? "sending a status" : `ending the task as ${state}`;
  }
  if (artifactUpdate !== undefined) {
    return `writing artifact '${artifactUpdate.artifact.artifactId}'`;
  }
  if (wait !== undefined) {
    return `beginning the wait '${wait.key}'`;
  }
  if (call !== undefined) {
    return `calling agent '${call.agent}'`;
  }
  return usage === undefined ? "saving a checkpoint" : "reporting usage";
}
