#!/usr/bin/env bash
# Checks the TypeScript library: types, lint, tests with a real server, and the package that users install.
#   A2AD_BIN=bin/a2ad scripts/sdk-typescript.sh
set -euo pipefail
cd "$(dirname "$0")/.."
export A2AD_BIN=${A2AD_BIN:-$PWD/bin/a2ad}
root=$PWD
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

cd sdk/typescript
npm ci --ignore-scripts --no-audit --no-fund --silent
npm run --silent check
npm run --silent build
npm test --silent
node --test --test-reporter=spec build/test/live/live.test.js

# Install the packed package, and use it without the checkout.
npm pack --silent --pack-destination "$out" >"$out/name"
tsc=$PWD/node_modules/.bin/tsc
mkdir "$out/project"
cd "$out/project"
npm init --yes >"$out/init.log"
npm install --silent --no-audit --no-fund "$out"/*.tgz
cat >agent.mjs <<'END'
import assert from "node:assert/strict";
import { crashEverywhere } from "@a2ad/worker/testing";

const hello = async (task, message) => {
  await task.write(`Hello, ${message.text}!`);
};
const { artifacts } = await crashEverywhere(hello, "you");
assert.equal(artifacts.answer.text, "Hello, you!");
console.log("JavaScript runs with the packed package");
END
node agent.mjs
cat >agent.mts <<'END'
import { Worker, type Message, type Task } from "@a2ad/worker";
import { run, type Result } from "@a2ad/worker/testing";

const hello = async (task: Task, message: Message): Promise<string> => {
  const length: number = await task.step("length", () => message.text.length);
  const sure: "yes" | "no" = await task.ask("Sure?", { choices: ["yes", "no"] });
  return `${length} ${sure}`;
};
new Worker().agent("hello", { concurrency: 2 }, hello);
const result: Result = await run(hello, "you", { answers: ["yes"] });
if (result.text !== "3 yes") {
  throw new Error(result.text);
}
console.log("TypeScript runs with the packed package");
END
# The package must need neither the types of Node nor skipLibCheck.
"$tsc" --strict --target es2022 --module nodenext --lib es2022,dom agent.mts
node agent.mjs

cd "$root" # run the commands of the README
A2AD_TEST_NPM=1 go test ./internal/doctest -count=1 -run 'TestDocuments/sdk/typescript|TestNewAgents/typescript'
