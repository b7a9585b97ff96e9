#!/usr/bin/env bash
# Checks the adapters of the library for TypeScript: tests with each framework, its own fake model, and a real server
# whose workers are killed. Then it checks the package that users install, with the examples.
#   A2AD_BIN=bin/a2ad scripts/sdk-frameworks-js.sh
set -euo pipefail
cd "$(dirname "$0")/.."
export A2AD_BIN=${A2AD_BIN:-$PWD/bin/a2ad}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# The library supports Node 20. But the AI SDK needs Node 22, and the examples need a Node that runs TypeScript: 22.18.
if ! node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 22 || (a == 22 && b >= 18) ? 0 : 1)'; then
	npm install --silent --no-audit --no-fund --prefix bin/node-22 node@22
	export PATH="$PWD/bin/node-22/node_modules/node/bin:$PATH"
fi

cd sdk/typescript
npm ci --ignore-scripts --no-audit --no-fund --silent
npm run --silent test:frameworks

# The packed library is installed into an empty project: npm must not install a framework with it.
npm pack --silent --pack-destination "$out" >"$out/name"
modules=$PWD/node_modules
examples=$(cd ../../examples/frameworks && pwd)
mkdir "$out/project"
cd "$out/project"
npm init --yes >"$out/init.log"
npm pkg set type=module
npm install --silent --no-audit --no-fund "$out"/*.tgz
[[ $(ls node_modules) == "@a2ad" ]] || { echo "the package brings more than itself:" && ls node_modules && exit 1; } >&2

# Then it gets the frameworks, in the versions of the lock file, and the examples.
mkdir node_modules/@types
for name in ai zod @langchain @types/node; do
	ln -s "$modules/$name" "node_modules/$name"
done
cat >models.d.ts <<'END'
declare module "@ai-sdk/openai" {
  export const openai: (name: string) => import("@a2ad/worker/ai").WrappableModel;
}
declare module "@langchain/openai" {
  type Model = import("@langchain/core/language_models/chat_models").BaseChatModel;
  export const ChatOpenAI: new (options: { model: string }) => Model;
}
END
for name in ai-sdk langgraph-js; do
	cp -r "$examples/$name" .
	"$modules/.bin/tsc" --strict --noEmit --target es2023 --module nodenext --lib es2023,dom --skipLibCheck \
		--types node --allowImportingTsExtensions models.d.ts "$name/worker.ts"
	node --input-type=module -e "await import('$out/project/$name/agent.ts')"
	node - "$name" "$modules" <<'END'
// What an example pins is what was tested.
const [, , name, modules] = process.argv;
const { dependencies } = require(`${process.cwd()}/${name}/package.json`);
for (const [what, version] of Object.entries(dependencies).filter(([what]) => !what.endsWith("/openai"))) {
  const tested = require(`${modules}/${what}/package.json`).version;
  if (version !== tested) {
    throw new Error(`the example ${name} has ${what} ${version}, but ${tested} is tested`);
  }
}
END
done
echo "The packed library and the examples work with the frameworks"
