#!/usr/bin/env bash
# Prints the packages that have tests against a real API server: those with a TestKube….
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

git grep --untracked -l '^func TestKube[A-Z]' -- '*_test.go' | xargs -n 1 dirname | sort -u | sed 's#^#./#'
