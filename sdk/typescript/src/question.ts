import { UsageError } from "./errors.js";
import { jsonSchemaOf, type Schema } from "./schema.js";
import { checkText, decode, encode, type Duration } from "./values.js";

export interface AskOptions {
  /** The answer is one of these texts. */
  choices?: readonly string[];
  timeout?: Duration;
}

/** Returns what the client may answer, as the server reads it. */
export function expected(options: AskOptions & { schema?: object; returns?: Schema }): object | undefined {
  const { choices, schema, returns } = options;
  if ([choices, schema, returns].filter((v) => v !== undefined).length > 1) {
    throw new UsageError("ask takes one of choices, schema and returns");
  }
  if (choices !== undefined) {
    if (!Array.isArray(choices) || choices.length === 0 || choices.length > 100) {
      throw new UsageError("choices must be an array of 1 to 100 texts");
    }
    for (const c of choices as unknown[]) {
      checkText(c, "choices", 1);
      if (c !== c.trim()) {
        throw new UsageError(`choices must not have spaces around them: ${JSON.stringify(c)}`);
      }
    }
    return { choices };
  }
  const json = returns === undefined ? schema : jsonSchemaOf(returns);
  if (json === undefined) {
    return undefined;
  }
  // zod adds "~standard" to the JSON Schemas that it makes, too.
  if (typeof json !== "object" || ("~standard" in json && !("$schema" in json))) {
    throw new UsageError("schema takes a JSON Schema; pass a schema of zod or a similar library as returns");
  }
  return { schema: decode(encode(json, "the schema of ask")) };
}
