import { choices as checkChoices, options as checkOptions, type Duration } from "./check.js";
import { UsageError, ValidationError } from "./errors.js";
import { plain } from "./json.js";
import { checkJsonSchema } from "./jsonschema.js";
import { jsonSchemaOf, validate, type Schema } from "./schema.js";
import type { Session } from "./session.js";
import { question } from "./wait.js";
import { saidIn } from "./wire.js";

export interface AskOptions {
  /** The answer is one of these texts. */
  choices?: readonly string[];
  /** How long the client may take; default: no limit. */
  timeout?: Duration;
}

type AnyOptions = AskOptions & { schema?: object; returns?: Schema };

/** @internal Asks the client, and returns its answer in the form that the options say. */
export async function ask(session: Session, text: string, options: AnyOptions): Promise<unknown> {
  checkOptions(options, "ask", ["choices", "schema", "returns", "timeout"]);
  const { choices, schema, returns, timeout } = options;
  if ([choices, schema, returns].filter((v) => v !== undefined).length > 1) {
    throw new UsageError("ask takes one of choices, schema and returns");
  }
  const answer = await question(session, "TASK_STATE_INPUT_REQUIRED", text, expected(options), timeout);
  if (returns !== undefined) {
    const [value, issues] = await validate(answer.data, returns);
    if (issues.length > 0) {
      throw new ValidationError(`the answer to '${text.slice(0, 60)}'`, issues);
    }
    return value;
  }
  if (schema !== undefined) {
    return answer.data;
  }
  return choices === undefined ? answer.text : saidIn(answer);
}

/** Returns what the client may answer, as the server reads it. */
function expected({ choices, schema, returns }: AnyOptions): object | undefined {
  if (choices !== undefined) {
    return { choices: checkChoices(choices) };
  }
  const json = returns === undefined ? schema : jsonSchemaOf(returns);
  if (json === undefined) {
    return undefined;
  }
  checkJsonSchema(json);
  return { schema: plain(json, "the question")[1] };
}
