#!/usr/bin/env bash
# Builds the deb and the rpm of the last release before this commit, for this machine, and prints their directory:
#   scripts/previous-release.sh
#
# It is the newest version in CHANGELOG.md that has a tag or a line in scripts/releases.txt. bin/releases keeps it.
# A release that had no packages gets them from the configuration of this tree. Exit code 3: the history is not here.
set -euo pipefail
cd "$(dirname "$0")/.."
goreleaser=${GORELEASER:?is the path of goreleaser: make package-test sets it}

# git runs whoever owns the files.
git() { command git -c safe.directory='*' "$@"; }

# commit_of prints the commit of a release, or nothing.
commit_of() {
	git rev-parse --verify --quiet "refs/tags/v$1^{commit}" ||
		awk -v version="$1" '$1 == version { print $2 }' scripts/releases.txt
}

head=$(git rev-parse --verify HEAD 2>/dev/null) || { echo "previous-release: there is no git repository here" >&2 && exit 3; }
version='' commit=''
for each in $(sed -n 's/^## \[\([0-9][^]]*\)\].*/\1/p' CHANGELOG.md); do
	found=$(commit_of "$each")
	if [[ -n $found && $found != "$head" ]]; then
		version=$each commit=$found
		break
	fi
done
if [[ -z $version ]]; then
	echo "previous-release: no version in CHANGELOG.md has a tag, or a line in scripts/releases.txt" >&2
	exit 1
fi
if ! git cat-file -e "$commit^{commit}" 2>/dev/null; then
	echo "previous-release: commit $commit of release $version is not here: git fetch --unshallow --tags" >&2
	exit 3
fi

arch=$(go env GOARCH)
sources=(.goreleaser.yaml deploy/packages deploy/systemd examples/compose LICENSE)
hash=$({ echo "$commit" "$goreleaser" "$arch" && git ls-files -z -- "${sources[@]}" scripts/previous-release.sh |
	xargs -0 cat; } | cksum | cut -d' ' -f1)
kept=bin/releases/$version-$hash
if [[ -e $kept/complete ]]; then
	echo "$PWD/$kept"
	exit
fi

dir=$(mktemp -d /var/tmp/a2ad-release.XXXXXX)
trap 'rm -rf "$dir"' EXIT
git archive "$commit" | tar --extract --directory "$dir"
for each in "${sources[@]}"; do
	if [[ ! -e $dir/$each ]]; then
		mkdir -p "$dir/$(dirname "$each")"
		cp -r "$each" "$dir/$each"
	fi
done
# Only the packages of this machine are made.
sed -i "s/^\( *goarch:\).*/\1 [$arch]/" "$dir/.goreleaser.yaml"
# goreleaser wants the tag in a clean repository. The tree gets one of its own, with the time of the release.
date=$(git show --no-patch --format=%cI "$commit")
(
	cd "$dir"
	export GIT_AUTHOR_DATE=$date GIT_COMMITTER_DATE=$date
	git init --quiet
	git remote add origin https://github.com/a2ad/a2ad # goreleaser reads it
	git add --all --force
	git -c user.name=a2ad -c user.email=releases@a2ad.invalid commit --quiet --message "release $version"
	git -c user.name=a2ad -c user.email=releases@a2ad.invalid tag "v$version"
	A2AD_VERSION=$version A2AD_COMMIT=${commit::12} A2AD_SNAPSHOT_OF_LINUX=1 HOMEBREW_TAP_TOKEN='' GITHUB_TOKEN='' \
		"$goreleaser" release --clean --skip=publish,announce,sbom,homebrew
) >"$dir.log" 2>&1 || { tail -n 30 "$dir.log" >&2 && rm "$dir.log" && exit 1; }
rm "$dir.log"
mkdir -p "$kept"
cp "$dir"/dist/*.deb "$dir"/dist/*.rpm "$kept/"
echo "$version" >"$kept/version"
touch "$kept/complete"
echo "$PWD/$kept"
