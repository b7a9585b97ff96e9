/** A check of the answers of a test: what the server refuses, a test must not answer. */
import type { Json } from "./json.js";
import type { Expects } from "./memory.js";
import { isRecord, saidIn, type Message } from "./wire.js";

type Schema = Record<string, Json>;

const isNumber = (v: Json): v is number => typeof v === "number";
const isText = (v: Json): v is string => typeof v === "string";
const size = (v: object) => Object.keys(v).length;
const characters = (v: string) => Array.from(v).length;

const types: Record<string, (v: Json) => boolean> = {
  null: (v) => v === null,
  boolean: (v) => typeof v === "boolean",
  object: isRecord,
  array: Array.isArray,
  string: isText,
  number: isNumber,
  integer: Number.isInteger,
};

const bounds: Record<string, (v: Json, n: Json) => boolean> = {
  minimum: (v, n) => !isNumber(v) || v >= Number(n),
  maximum: (v, n) => !isNumber(v) || v <= Number(n),
  exclusiveMinimum: (v, n) => !isNumber(v) || v > Number(n),
  exclusiveMaximum: (v, n) => !isNumber(v) || v < Number(n),
  minLength: (v, n) => !isText(v) || characters(v) >= Number(n),
  maxLength: (v, n) => !isText(v) || characters(v) <= Number(n),
  pattern: (v, n) => !isText(v) || typeof n !== "string" || new RegExp(n, "u").test(v),
  minItems: (v, n) => !Array.isArray(v) || v.length >= Number(n),
  maxItems: (v, n) => !Array.isArray(v) || v.length <= Number(n),
  minProperties: (v, n) => !isRecord(v) || size(v) >= Number(n),
  maxProperties: (v, n) => !isRecord(v) || size(v) <= Number(n),
};

/** Says why the server refuses an answer to a question that expects this, or returns an empty text. */
export function refusal(answer: Message, expects: Expects): string {
  if (expects.schema !== undefined) {
    const data = answer.parts.find((p) => p.data !== undefined);
    return data?.data === undefined
      ? "the question expects data, such as answers: [{…}], and no text"
      : mismatch(data.data, expects.schema, "the answer", expects.schema);
  }
  const said = saidIn(answer);
  return expects.choices === undefined || expects.choices.includes(said)
    ? ""
    : `the question expects one of ${expects.choices.map((c) => short(c)).join(", ")}`;
}

/** Returns the first thing in which a value does not fit a JSON Schema, or an empty text. */
function mismatch(value: Json, schema: Json | undefined, at: string, root: Schema): string {
  if (typeof schema === "boolean") {
    return schema ? "" : `${at} is not allowed`;
  }
  if (!isRecord(schema)) {
    return "";
  }
  const target = typeof schema.$ref === "string" ? targetOf(schema.$ref, root) : undefined;
  const all = Array.isArray(schema.allOf) ? schema.allOf : [];
  const found = [
    mismatch(value, target, at, root),
    ofValue(value, schema, at),
    ...all.map((one) => mismatch(value, one, at, root)),
    ofAny(value, schema.anyOf, at, root),
    ofAny(value, schema.oneOf, at, root),
    isRecord(value) ? ofObject(value, schema, at, root) : "",
    Array.isArray(value) ? ofArray(value, schema, at, root) : "",
  ];
  return found.find((f) => f !== "") ?? "";
}

function ofAny(value: Json, schemas: Json | undefined, at: string, root: Schema): string {
  const found = Array.isArray(schemas) ? schemas.map((one) => mismatch(value, one, at, root)) : [];
  return found.includes("") ? "" : [...new Set(found)].join(" or ");
}

function ofValue(value: Json, schema: Schema, at: string): string {
  if (schema.type !== undefined) {
    const named = [schema.type].flat().map(String);
    if (!named.some((t) => types[t]?.(value) === true)) {
      return `${at} must be of the type ${named.join(" or ")}, not ${short(value)}`;
    }
  }
  const allowed = Array.isArray(schema.enum) ? schema.enum : schema.const === undefined ? undefined : [schema.const];
  if (allowed?.some((one) => JSON.stringify(one) === JSON.stringify(value)) === false) {
    return `${at} must be ${allowed.map((one) => short(one)).join(" or ")}, not ${short(value)}`;
  }
  for (const [bound, fits] of Object.entries(bounds)) {
    const n = schema[bound];
    if (n !== undefined && !fits(value, n)) {
      return `${at} does not fit ${bound} ${typeof n === "string" ? n : JSON.stringify(n)}: ${short(value)}`;
    }
  }
  return "";
}

function ofObject(value: Schema, schema: Schema, at: string, root: Schema): string {
  const required = Array.isArray(schema.required) ? schema.required.map(String) : [];
  const missing = required.find((name) => !Object.hasOwn(value, name));
  if (missing !== undefined) {
    return `${at} needs '${missing}'`;
  }
  const properties = isRecord(schema.properties) ? schema.properties : {};
  const patterns = Object.entries(isRecord(schema.patternProperties) ? schema.patternProperties : {});
  for (const [name, v] of Object.entries(value)) {
    const fitting = patterns.flatMap(([p, one]) => (new RegExp(p, "u").test(name) ? [one] : []));
    if (properties[name] !== undefined) {
      fitting.push(properties[name]);
    }
    for (const one of fitting.length > 0 ? fitting : [schema.additionalProperties]) {
      const found = mismatch(v, one, `${at}.${name}`, root);
      if (found !== "") {
        return found;
      }
    }
  }
  return "";
}

function ofArray(value: Json[], schema: Schema, at: string, root: Schema): string {
  const first = Array.isArray(schema.prefixItems) ? schema.prefixItems : [];
  const found = value.map((v, i) => mismatch(v, i < first.length ? first[i] : schema.items, `${at}[${i}]`, root));
  return found.find((f) => f !== "") ?? "";
}

/** Returns the schema that a reference such as `#/$defs/Order` names, or undefined. */
function targetOf(ref: string, root: Schema): Json | undefined {
  if (!ref.startsWith("#/")) {
    return undefined;
  }
  let target: Json | undefined = root;
  for (const step of ref.slice(2).split("/")) {
    target = isRecord(target) ? target[step.replaceAll("~1", "/").replaceAll("~0", "~")] : undefined;
  }
  return target;
}

/** Returns the first characters of a value. */
export function short(value: Json, most = 60): string {
  return (typeof value === "string" ? `'${value}'` : JSON.stringify(value)).slice(0, most);
}
