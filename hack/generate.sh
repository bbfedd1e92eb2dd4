#!/usr/bin/env bash
# Generates with pinned tools: Go code in gen/ from proto/; deep copies, manifests and docs/crds.md from
# the types in crds/v1alpha1.
#
# usage: hack/generate.sh           writes them anew
#        hack/generate.sh --check   changes nothing; fails, showing the difference, where a file is not
#                                   what its source generates: changed, missing or left over
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools=$(hack/tools.sh buf protoc-gen-go protoc-gen-go-grpc controller-gen)
# First on PATH: buf must not take plugins of another version that happen to be installed.
export PATH="$tools:$PATH"

# generate_crds FOLDER writes what crds/v1alpha1 generates into FOLDER, laid out as in the tree.
generate_crds() {
	mkdir -p "$1/crds/v1alpha1" "$1/crds/manifests" "$1/docs"
	rm -f "$1"/crds/manifests/*.yaml
	controller-gen paths=./crds/v1alpha1 \
		object output:object:dir="$1/crds/v1alpha1" \
		crd output:crd:dir="$1/crds/manifests"
	go run ./hack/crddocs crds/v1alpha1 >"$1/docs/crds.md"
}

case ${1:-} in
"")
	buf generate --clean
	generate_crds .
	;;
--check)
	scratch=$(mktemp -d)
	trap 'rm -rf "$scratch"' EXIT
	buf generate --output "$scratch"
	generate_crds "$scratch"
	stale=0
	for path in gen crds/v1alpha1/zz_generated.deepcopy.go crds/manifests docs/crds.md; do
		diff -ruN "$path" "$scratch/$path" || stale=1
	done
	if ((stale)); then
		echo "hack/generate.sh: generated files are not what their sources generate; run \`make generate\` and commit the result" >&2
		exit 1
	fi
	;;
*)
	echo "usage: hack/generate.sh [--check]" >&2
	exit 2
	;;
esac
