/** A check of JSON Schemas for common mistakes. The server checks the rest. */
import { UsageError } from "./errors.js";
import { shown } from "./json.js";
import { isRecord } from "./wire.js";

const types = ["array", "boolean", "integer", "null", "number", "object", "string"];
const version = /^https?:\/\/json-schema\.org\/(draft\/20(20-12|19-09)\/|draft-0[467]\/)?schema#?$/;
/** What the server's regular expressions do not support, unless a backslash is before it. */
const notInRe2 = /(?<!\\)(?:\\\\)*(?:\(\?(?:[=!]|<[=!])|\\[1-9Z]|\(\?P=)/;
/** What only those support. */
const onlyInRe2 = /\\[pPzQC]|\[\[:|\(\?[a-zA-Z]/;

type Check = (value: unknown, at: string, root: Record<string, unknown>) => void;

const of = (names: string, check: Check): [string, Check][] => names.split(" ").map((name) => [name, check]);

const keywords = new Map<string, Check>([
  ...of("properties patternProperties $defs definitions dependentSchemas", (value, at, root) => {
    must(isRecord(value), at, "an object of schemas");
    Object.entries(value as object).forEach(([name, one]) => {
      checkOne(one, `${at}.${name}`, root);
    });
  }),
  ...of("allOf anyOf oneOf prefixItems", (value, at, root) => {
    must(Array.isArray(value) && value.length > 0, at, "a list of schemas");
    (value as unknown[]).forEach((one, i) => {
      checkOne(one, `${at}[${i}]`, root);
    });
  }),
  ...of(
    "additionalProperties propertyNames items contains not if then else unevaluatedItems unevaluatedProperties",
    checkOne,
  ),
  ...of("type", (value, at) => {
    const named: unknown[] = Array.isArray(value) ? value : [value];
    const known = named.length > 0 && named.every((t) => typeof t === "string" && types.includes(t));
    must(known && new Set(named).size === named.length, at, `one of ${types.join(", ")}`);
  }),
  ...of("required", (value, at) => {
    const names = Array.isArray(value) && value.every((n) => typeof n === "string");
    must(names && new Set(value).size === value.length, at, "a list of names that differ");
  }),
  ...of("enum", (value, at) => {
    must(Array.isArray(value), at, "a list");
  }),
  ...of("minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains", (value, at) => {
    must(Number.isInteger(value) && (value as number) >= 0, at, "a whole number");
  }),
  ...of("minimum maximum exclusiveMinimum exclusiveMaximum", (value, at) => {
    must(typeof value === "number", at, "a number");
  }),
  ...of("multipleOf", (value, at) => {
    must(typeof value === "number" && value > 0, at, "a number");
  }),
  ...of("title description format $id $anchor $comment", (value, at) => {
    must(typeof value === "string", at, "a string");
  }),
  ...of("pattern", (value, at) => {
    must(typeof value === "string", at, "a string");
    checkPattern(value as string, at);
  }),
  ...of("uniqueItems readOnly writeOnly deprecated", (value, at) => {
    must(typeof value === "boolean", at, "true or false");
  }),
  ...of("$ref", (value, at, root) => {
    must(typeof value === "string", at, "a string");
    checkReference(value as string, at, root);
  }),
]);

/** Throws UsageError for what is not a JSON Schema, or refers to another document. */
export function checkJsonSchema(schema: unknown): void {
  if (!isRecord(schema)) {
    throw new UsageError(`schema must be a JSON Schema in an object, not ${shown(schema)}`);
  }
  if ("~standard" in schema && !("$schema" in schema)) {
    // zod adds this to the JSON Schemas that it makes, too
    throw new UsageError("schema must be a JSON Schema; pass a schema of zod or a similar library as returns");
  }
  const of = schema.$schema ?? "https://json-schema.org/schema";
  must(typeof of === "string" && version.test(of), "schema.$schema", "a version of https://json-schema.org");
  checkOne(schema, "schema", schema);
}

function checkOne(value: unknown, at: string, root: Record<string, unknown>): void {
  if (typeof value === "boolean") {
    return;
  }
  if (!isRecord(value)) {
    throw new UsageError(`${at} must be a schema, not ${shown(value)}`);
  }
  for (const [key, v] of Object.entries(value)) {
    keywords.get(key)?.(v, `${at}.${key}`, root);
  }
}

function must(fits: boolean, at: string, what: string): void {
  if (!fits) {
    throw new UsageError(`${at} must be ${what}`);
  }
}

function checkPattern(pattern: string, at: string): void {
  if (notInRe2.test(pattern)) {
    throw new UsageError(`${at} has \\Z, a look-around or a back-reference, which the server refuses`);
  }
  if (onlyInRe2.test(pattern)) {
    return;
  }
  try {
    new RegExp(pattern);
  } catch (err) {
    throw new UsageError(`${at} is not a regular expression: ${(err as Error).message}`);
  }
}

function checkReference(ref: string, at: string, root: Record<string, unknown>): void {
  if ("$id" in root || hasAnchor(root)) {
    return; // the server resolves these
  }
  if (!ref.startsWith("#")) {
    throw new UsageError(`${at} refers to another document: copy it under $defs`);
  }
  let target: unknown = root;
  for (const step of ref.replace(/^#\/?/, "").split("/")) {
    if (step === "" && (ref === "#" || ref === "#/")) {
      return;
    }
    const name = step.replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof target !== "object" || target === null || !Object.hasOwn(target, name)) {
      throw new UsageError(`${at} refers to ${ref}, which is not in the schema`);
    }
    target = (target as Record<string, unknown>)[name];
  }
}

function hasAnchor(value: unknown): boolean {
  if (typeof value !== "object" || value === null) {
    return false;
  }
  return Object.hasOwn(value, "$anchor") || Object.values(value).some(hasAnchor);
}
