#!/usr/bin/env bash
# Builds developer tools at the versions that hack/tools/go.mod pins, and prints the folder that holds
# them. The folder is outside the tree and named after the pins and the Go version: a tool is built
# once per change of either.
#
# usage: hack/tools.sh NAME...     NAME is the last element of a `tool` line in hack/tools/go.mod
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/tools"

fail() {
	echo "hack/tools.sh: $*" >&2
	exit 1
}

(($#)) || fail "no tool named; usage: hack/tools.sh NAME..."
command -v go >/dev/null || fail "the go command is not on PATH; install the Go version that go.mod names"

key=$({ go env GOVERSION GOOS GOARCH && cat go.mod go.sum; } | sha256sum | cut -c1-16)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/inferencecache/tools/$key
mkdir -p "$folder"

build() {
	local name=$1 package scratch
	package=$(go list -f '{{.ImportPath}}' tool | grep -E "(^|/)$name\$") ||
		fail "no tool $name in hack/tools/go.mod; it has: $(go list tool | sed 's#.*/##' | paste -sd ' ')"
	echo "hack/tools.sh: building $name (minutes the first time, then cached in $folder)" >&2
	# Built aside and renamed, so that two runs at once cannot see half a file.
	scratch=$(mktemp "$folder/.$name.XXXXXX")
	if ! CGO_ENABLED=0 go build -trimpath -o "$scratch" "$package" >&2; then
		rm -f "$scratch"
		fail "building $package failed: see above"
	fi
	mv "$scratch" "$folder/$name"
}

for name in "$@"; do
	[[ -x $folder/$name ]] || build "$name"
done
echo "$folder"
