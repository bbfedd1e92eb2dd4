#!/usr/bin/env bash
# Runs a go command with the tokenizer library linked, where it can be had.
#
# usage: hack/with-tokenizers.sh MODE COMMAND [ARG...]     runs go COMMAND [-tags tokenizers] [ARG...]
#        MODE 1 builds the library first, minutes the first time, and goes on without if cargo is absent;
#        if-built takes it only where it is built already; 0 leaves it out; required fails without it
# exit:  that of go; 1 building the library failed, 2 wrong usage, 3 required and cargo is absent or too old
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { echo "hack/with-tokenizers.sh: $*" >&2; }

mode=${1:-}
command=${2:-}
if [[ -z $command ]]; then
	say "usage: hack/with-tokenizers.sh MODE COMMAND [ARG...]"
	exit 2
fi
shift 2

library="" status=0
case $mode in
1 | required) library=$(hack/native.sh) || status=$? ;;
if-built) library=$(hack/native.sh --if-built 2>/dev/null) || status=$? ;;
0) exec go "$command" "$@" ;;
*)
	say "unknown mode '$mode': want 1, if-built, 0 or required"
	exit 2
	;;
esac
if ((status == 3)) && [[ $mode != required ]]; then
	say "going on without the tokenizer library: lookups by text will have no hint"
	exec go "$command" "$@"
fi
((status == 0)) || exit "$status"
export CGO_ENABLED=1 CGO_LDFLAGS="-L$library ${CGO_LDFLAGS:-}"
exec go "$command" -tags tokenizers "$@"
