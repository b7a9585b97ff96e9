import { UsageError } from "./errors.js";

/**
 * A schema of zod, ArkType, Valibot or another library that follows standardschema.dev. `ask` needs one that can be
 * converted to JSON Schema: zod 4.2 or later, ArkType 2.1.28 or later, or Valibot with `toStandardJsonSchema`.
 */
export interface Schema<Output = unknown> {
  readonly "~standard": {
    readonly validate: (value: unknown) => Validated<Output> | Promise<Validated<Output>>;
    readonly jsonSchema?: {
      readonly input: (options: { readonly target: "draft-2020-12" }) => Record<string, unknown>;
    };
    readonly types?: { readonly output: Output } | undefined;
  };
}

type Validated<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly { readonly message: string; readonly path?: readonly PathSegment[] | undefined }[] };

type PathSegment = PropertyKey | { readonly key: PropertyKey };

/** The type of the values of a schema. */
export type OutputOf<S extends Schema> = NonNullable<S["~standard"]["types"]>["output"];

/** Returns the JSON Schema of what the client may answer. */
export function jsonSchemaOf(schema: Schema): Record<string, unknown> {
  checkSchema(schema);
  const { jsonSchema } = schema["~standard"];
  if (jsonSchema === undefined) {
    throw new UsageError(
      "the schema in returns cannot be converted to JSON Schema; use zod 4.2 or later, or pass a JSON Schema as schema",
    );
  }
  return jsonSchema.input({ target: "draft-2020-12" });
}

/** Refuses what is no schema of a library: most often a JSON Schema. */
export function checkSchema(schema: unknown): asserts schema is Schema {
  const standard = (schema as Partial<Schema> | null | undefined)?.["~standard"];
  if (typeof standard?.validate !== "function") {
    throw new UsageError("returns must be a schema of zod or a similar library; pass a JSON Schema as schema");
  }
}

/** Returns the value that a schema makes of JSON, and what does not fit. */
export async function validate(value: unknown, schema: Schema): Promise<[value: unknown, issues: string[]]> {
  const got = await schema["~standard"].validate(value);
  if (got.issues === undefined) {
    return [got.value, []];
  }
  const issues = got.issues.map(({ message, path = [] }) => {
    const place = path.map((p) => String(typeof p === "object" ? p.key : p)).join(".");
    return place === "" ? message : `${place}: ${message}`;
  });
  return [undefined, issues];
}
