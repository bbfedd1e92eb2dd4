#!/usr/bin/env bash
# Every check that reads code without running it, cheapest first.
#
# usage: hack/lint.sh [FLAG...]     flags go to golangci-lint run
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

hack/deps.sh lint
tools=$(hack/tools.sh buf golangci-lint)

step() {
	echo "lint: $1" >&2
	"${@:2}"
}

mapfile -t scripts < <(git ls-files --cached --others --exclude-standard '*.sh' .ci/run)
step "text" hack/check-text.sh
step "scripts" shellcheck "${scripts[@]}"
step "go.mod is tidy" go mod tidy -diff
step "proto style" "$tools/buf" lint
step "proto breaks no caller" hack/check-breaking.sh
step "go code" "$tools/golangci-lint" run --allow-parallel-runners "$@"
