// What the package says about itself.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
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

void test("the TypeScript of the README compiles", () => {
  const others = `
    declare function makePlan(text: string): { city: string };
    declare function writeUp(plan: { city: string }): AsyncIterable<string>;
    declare function pay(plan: { city: string }): Promise<string>;
    declare function answer(said: string[], text: string): Promise<string>;`;
  mkdirSync("build/readme", { recursive: true });
  const write = (name: string, content: string) => {
    writeFileSync(`build/readme/${name}`, content);
    return `build/readme/${name}`;
  };
  write("trip.ts", 'import type { Task } from "@a2ad/worker";\nexport const trip = (task: Task) => task.sleep(1);\n');
  const found = readFileSync("README.md", "utf8").matchAll(/^```ts\n(.*?)^```$/gms);
  const blocks = [...found].map(([, block = ""]) => block);
  assert.ok(blocks.length >= 4, String(blocks.length));
  const files = blocks.map((block, i) => {
    const isWhole = block.includes("import ");
    const worker = isWhole ? "" : 'import { Worker } from "@a2ad/worker";\nconst worker = new Worker();\n';
    return write(`block${i}.ts`, `${worker}${block}${isWhole && !block.includes("makePlan") ? "" : others}`);
  });
  const { options } = ts.parseJsonConfigFileContent(
    {
      compilerOptions: {
        ...{ module: "NodeNext", target: "ES2022", lib: ["ES2024"], strict: true, noEmit: true, types: ["node"] },
        paths: { "@a2ad/worker": ["./src/index.ts"], "@a2ad/worker/testing": ["./src/testing.ts"] },
      },
    },
    ts.sys,
    ".",
  );
  const problems = ts.getPreEmitDiagnostics(ts.createProgram(files, options));
  assert.equal(ts.formatDiagnostics(problems, { ...ts.createCompilerHost(options), getNewLine: () => "\n" }), "");
});
