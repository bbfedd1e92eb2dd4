#!/usr/bin/env bash
# Generates Go code from proto/ with the pinned buf and plugins.
#
# usage: hack/generate.sh           writes gen/ anew
#        hack/generate.sh --check   changes nothing; fails, showing the difference, where gen/ is not
#                                   what proto/ generates: changed, missing or left over
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools=$(hack/tools.sh buf protoc-gen-go protoc-gen-go-grpc)
# First on PATH: buf must not take plugins of another version that happen to be installed.
export PATH="$tools:$PATH"

case ${1:-} in
"")
	buf generate --clean
	;;
--check)
	scratch=$(mktemp -d)
	trap 'rm -rf "$scratch"' EXIT
	buf generate --output "$scratch"
	diff -ru gen "$scratch/gen" || {
		echo "hack/generate.sh: gen/ is not what proto/ generates; run \`make generate\` and commit the result" >&2
		exit 1
	}
	;;
*)
	echo "usage: hack/generate.sh [--check]" >&2
	exit 2
	;;
esac
