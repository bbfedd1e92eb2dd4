#!/usr/bin/env bash
# Runs every fuzz target for a time, one after another: Go fuzzes one target of one package at a time.
# A failing input is written to the package's testdata/fuzz folder, where plain tests then replay it.
#
# usage: hack/fuzz.sh TIME [PACKAGE...]     TIME as for -fuzztime, for example 30s
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

time=${1:?usage: hack/fuzz.sh TIME [PACKAGE...]}
shift
packages=("$@")
if ((${#packages[@]} == 0)); then
	mapfile -t packages < <(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n1 dirname | sort -u)
fi

for package in "${packages[@]}"; do
	targets=$(go test -list '^Fuzz' "$package") || {
		echo "$targets" >&2
		exit 1
	}
	while read -r target; do
		echo "== $target in $package for $time"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package" </dev/null
	done < <(grep '^Fuzz' <<<"$targets")
done
