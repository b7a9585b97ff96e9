/** What a task has cost: the tokens and requests of model calls. */
import { count, name, options } from "./check.js";
import { UsageError } from "./errors.js";

/** What a model used. All members are optional. */
export interface Usage {
  /** Such as `gpt-5`. */
  model?: string;
  inputTokens?: number;
  outputTokens?: number;
  /** Of the input tokens, those that the provider had cached. */
  cachedInputTokens?: number;
  /** Of the output tokens, those that the model used to think. */
  reasoningTokens?: number;
  requests?: number;
}

/** The largest number in one report of usage. */
const maxUsage = 1_000_000_000;
const numbers = ["inputTokens", "outputTokens", "cachedInputTokens", "reasoningTokens", "requests"] as const;

/** Returns the event of a report, or throws UsageError for one that the server would refuse. */
export function usageEvent(usage: Usage): Usage {
  options(usage, "usage", ["model", ...numbers]);
  const event: Usage = {};
  for (const member of numbers) {
    const n = usage[member];
    if (n !== undefined) {
      event[member] = count(n, member, 0, maxUsage);
    }
  }
  if (usage.model !== undefined) {
    event.model = name(usage.model, "model");
  }
  if (Object.keys(event).length === 0) {
    throw new UsageError("usage needs a model or a number");
  }
  return event;
}

/** Adds a report to those of a step. The sums by model fit into one request. */
export function addUsage(reports: Usage[], event: Usage): void {
  for (const old of reports) {
    const sums = numbers.flatMap((n) => (event[n] === undefined ? [] : [[n, (old[n] ?? 0) + event[n]] as const]));
    if (old.model === event.model && sums.every(([, sum]) => sum <= maxUsage)) {
      Object.assign(old, Object.fromEntries(sums));
      return;
    }
  }
  reports.push({ ...event });
}
