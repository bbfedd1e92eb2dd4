#!/usr/bin/env bash
# Fails where proto/ breaks its callers: compares it with a commit by the rules of buf.yaml.
# The commit is HEAD while proto/ has uncommitted changes, else HEAD~1; BREAKING_BASE names another,
# for example the branch that a change is to be merged into.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

skip() {
	echo "hack/check-breaking.sh: $*: nothing to compare proto/ with, skipped" >&2
	exit 0
}

git rev-parse --is-inside-work-tree >/dev/null 2>&1 || skip "not a git checkout"
base=${BREAKING_BASE:-}
if [[ -n $base ]]; then
	git rev-parse --quiet --verify "$base^{commit}" >/dev/null || {
		echo "hack/check-breaking.sh: BREAKING_BASE=$base is not a commit here" >&2
		exit 1
	}
else
	base=HEAD
	[[ -n $(git status --porcelain -- proto) ]] || base=HEAD~1
	git rev-parse --quiet --verify "$base^{commit}" >/dev/null || skip "no commit $base (first commit, or a shallow clone)"
fi
git cat-file -e "$base:proto" 2>/dev/null || skip "commit $base has no proto/"
git cat-file -e "$base:buf.yaml" 2>/dev/null || skip "commit $base has no buf.yaml"

tools=$(hack/tools.sh buf)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# An extracted tree, since buf's own git input clones, and that fails on a shallow clone.
git archive "$base" proto buf.yaml | tar -x -C "$scratch"
"$tools/buf" breaking --against "$scratch"
