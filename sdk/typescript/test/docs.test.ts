// What the package says about itself.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import ts from "typescript";

import { version } from "../src/version.js";

void test("the version is that of the newest release", () => {
  const [, released] = /^## \[(\d[^\]]*)\]/m.exec(readFileSync("../../CHANGELOG.md", "utf8")) ?? [];
  const { version: packaged } = JSON.parse(readFileSync("package.json", "utf8")) as { version: string };
  assert.deepEqual([version, packaged], [released, released]);
});

void test("the public classes and their methods are explained", () => {
  const files = ["src/index.ts", "src/testing.ts"];
  const { options } = ts.parseJsonConfigFileContent(
    { compilerOptions: { module: "NodeNext", strict: true } },
    ts.sys,
    ".",
  );
  const program = ts.createProgram(files, options);
  const checker = program.getTypeChecker();
  const isExplained = (symbol: ts.Symbol) => symbol.getDocumentationComment(checker).length > 0;
  const missing: string[] = [];
  let methods = 0;
  for (const file of files) {
    const source = program.getSourceFile(file);
    const module_ = source && checker.getSymbolAtLocation(source);
    for (const exported of module_ ? checker.getExportsOfModule(module_) : []) {
      const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
      if (symbol.flags & ts.SymbolFlags.Class && !isExplained(symbol)) {
        missing.push(symbol.name);
      }
      for (const member of symbol.flags & ts.SymbolFlags.Class ? (symbol.members?.values() ?? []) : []) {
        const isInternal = member.getJsDocTags().some((tag) => tag.name === "internal");
        if (member.flags & ts.SymbolFlags.Method && !isInternal && !member.name.includes("#")) {
          methods++;
          if (!isExplained(member)) {
            missing.push(`${symbol.name}.${member.name}`);
          }
        }
      }
    }
  }
  assert.deepEqual(missing, []);
  assert.ok(methods > 20, String(methods));
});
