#!/usr/bin/env bash
# Refuses lines that no Go linter sees and that nobody should meet in this repository. Each rule says why.
# Reads tracked files and new ones that git does not ignore.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# This file names what it looks for; generated code, checksums and lock files are not written by hand.
readonly everywhere=(. ':!hack/check-text.sh' ':!gen' ':!*go.sum' ':!*.lock' ':!LICENSE')
readonly code=('*.go' '*.proto' '*.sh' '*.py' '*.yml' '*.yaml' '*.mod' Makefile .ci/run ':!hack/check-text.sh' ':!gen')
readonly go=('*.go' ':!*_test.go' ':!gen')

failed=0

refuse() { # refuse WHY PATTERN PATHSPEC...; PATTERN is a Perl regular expression
	local why=$1 pattern=$2 lines status=0
	shift 2
	lines=$(git grep --untracked -nI -P -e "$pattern" -- "$@") || status=$?
	case $status in
	0) printf '%s\n  ^ %s\n\n' "$lines" "$why" && failed=1 ;;
	1) ;; # no such line
	*) exit "$status" ;; # git has said what is wrong
	esac
}

refuse "a note of work left undone needs an owner, as in TODO(name): without one nobody does it" \
	'\b(TODO|FIXME)\b(?!\([a-z])' "${everywhere[@]}"

refuse "a path of one person's machine means nothing on another: use a relative path, a flag or a variable" \
	'(?<![\w.$}-])/(home|Users|root|work)/\w' "${everywhere[@]}"

refuse "hosts of package registries belong to the user's own settings: a mirror must work unchanged" \
	'\b(registry|proxy|sum|index|files|static)\.(?!example)[a-z0-9-]+\.(org|io|com|dev|net)\b|\b(npmjs|pypi|crates|pythonhosted)\.(org|com|io)\b' \
	"${everywhere[@]}"

refuse "a comment explains the code as it is: the discussion that led to it belongs in the commit message" \
	'(//|#).*(\b([Ii]ssue|[Tt]icket|PR|[Pp]ull request) #?\d+\b|\b([Tt]his|previous|last|next) (PR|pull request|issue|task|session)\b|(?<![\w&/])#\d+\b)' \
	"${code[@]}"

refuse "a goroutine belongs to somebody who waits for it: start it with sync.WaitGroup.Go or errgroup.Group.Go, or say at the end of the line what ends it" \
	'^\s*go (func\b|[\w.]+\()(?!.*//)' "${go[@]}"

exit "$failed"
