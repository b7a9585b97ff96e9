#!/usr/bin/env bash
# Publishes versions of the site into the branch gh-pages of a repository of its own, as a release does, and checks what
# readers and the selector of versions find there: make site-test
set -euo pipefail
cd "$(dirname "$0")/../.."

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() {
	echo "site-test: $*" >&2
	exit 1
}

# shown prints a file of the published site.
shown() { git -C "$dir" show "gh-pages:$1"; }

# want checks that a file of the published site has a text: want PATH TEXT
want() { shown "$1" | grep -F -- "$2" >/dev/null || fail "$1 has no $2"; }

publish() { make --no-print-directory -C "$dir" site-version VERSION="$1" >"$dir.log" 2>&1 || { cat "$dir.log" >&2 && fail "make site-version VERSION=$1"; }; }

git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents --no-dereference --target-directory "$dir"
mkdir -p bin/python "$dir/bin"
ln -s "$PWD/bin/python" "$dir/bin/python"
git -C "$dir" init --quiet --initial-branch main
git -C "$dir" config user.name a2ad
git -C "$dir" config user.email releases@a2ad.invalid
git -C "$dir" commit --quiet --allow-empty --message "the commit that mike names in its own"

publish 0.1.0
old=$(git -C "$dir" rev-parse gh-pages:0.1)
echo "Words of the next version." >>"$dir/docs/glossary.md"
publish 0.2.0
publish 0.2.1
publish 0.3.0-rc.1

want="$(printf '%s' '[["0.3.0-rc.1", "0.3.0-rc.1", []], ["0.2", "0.2.1", ["latest"]], ["0.1", "0.1.0", []]]')"
got=$(shown versions.json | python3 -c 'import json, sys
print(json.dumps([[v["version"], v["title"], v["aliases"]] for v in json.load(sys.stdin)]))')
[[ $got == "$want" ]] || fail "versions.json has $got, want $want"
want index.html latest/
[[ $(shown latest) == 0.2 ]] || fail "latest is $(shown latest | head -n 1), want 0.2"
[[ $(git -C "$dir" rev-parse gh-pages:0.1) == "$old" ]] || fail "a later version has changed 0.1"
want 0.2/glossary/index.html "Words of the next version."
if shown 0.1/glossary/index.html | grep "Words of the next version." >/dev/null; then fail "0.1 has words of 0.2"; fi
# The selector of versions, search engines, and the links to files outside docs/.
want 0.2/glossary/index.html '"version": {"provider": "mike"}'
want 0.1/how-to/deploy/index.html '<link rel="canonical" href="https://a2ad.github.io/a2ad/latest/how-to/deploy/">'
want 0.2/how-to/upgrade/index.html 'blob/v0.2.1/CHANGELOG.md'
want 0.1/how-to/upgrade/index.html 'blob/v0.1.0/CHANGELOG.md'
echo "site-test: passed"
