import { readFileSync } from "node:fs";
import { relative } from "node:path";
import { fileURLToPath } from "node:url";

/** Returns the place of the first occurrence of some code in a compiled test, as errors name it. */
export function placeOf(file: string, code: string): string {
  const path = fileURLToPath(file);
  const before = readFileSync(path, "utf8").split(code, 1).join("").split("\n");
  return `${relative(process.cwd(), path)}:${before.length}:${(before.at(-1) ?? "").length + 1}`;
}
