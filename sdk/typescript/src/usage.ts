import { UsageError } from "./errors.js";
import { checkOptions, checkText, shown } from "./values.js";
import type { Usage } from "./wire.js";

const numbers = ["inputTokens", "outputTokens", "cachedInputTokens", "reasoningTokens", "requests"] as const;

/** Refuses a usage that the server would refuse. */
export function checkUsage(usage: Usage): void {
  checkOptions(usage, "usage", ["model", ...numbers]);
  if (usage.model !== undefined) {
    checkText(usage.model, "model", 1, 200);
  }
  for (const key of numbers) {
    const n = usage[key];
    if (n !== undefined && !(Number.isSafeInteger(n) && n >= 0)) {
      throw new UsageError(`${key} must be a whole number from 0, not ${shown(n)}`);
    }
  }
}
