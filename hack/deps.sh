#!/usr/bin/env bash
# Makes sure that what the Go toolchain cannot fetch is there: a C compiler, pkg-config and libzmq.
# Silent when all is there. On Debian and its relatives it installs what is missing and says so;
# elsewhere it says what to install and fails.
#
# usage: hack/deps.sh [lint] [golden] [test] [test-vllm]     each adds what the make target of that name uses
set -euo pipefail

# The ZMQ heartbeat options that the subscriber sets exist from this version on.
readonly LIBZMQ_MIN=4.2

fail() {
	echo "hack/deps.sh: $*" >&2
	exit 1
}

missing=() # Debian package names

need() { # need PACKAGE COMMAND...: the package is missing unless the command succeeds
	local package=$1
	shift
	"$@" >/dev/null 2>&1 || missing+=("$package")
}

need build-essential command -v "${CC:-cc}"
need pkg-config command -v pkg-config
need libzmq3-dev pkg-config --atleast-version="$LIBZMQ_MIN" libzmq
for target in "$@"; do
	case $target in
	lint) need shellcheck command -v shellcheck ;;
	test) need redis-server command -v redis-server ;; # tests that need it are skipped without
	golden | test-vllm) need python3-venv python3 -c 'import ensurepip, venv' ;;
	*) fail "unknown argument '$target'; usage: hack/deps.sh [lint] [golden] [test] [test-vllm]" ;;
	esac
done
((${#missing[@]})) || exit 0

if ! command -v apt-get >/dev/null; then
	fail "missing: ${missing[*]} (Debian package names), and there is no apt-get to install them with.
  Install what your system calls them, libzmq $LIBZMQ_MIN or newer with its headers, then run this again."
fi

as_root=()
if ((EUID != 0)); then
	command -v sudo >/dev/null || fail "missing: ${missing[*]}. Not root and no sudo here; as root run: apt-get install ${missing[*]}"
	as_root=(sudo)
	# Without a terminal nobody can type a password: fail at once instead of waiting for it.
	[[ -t 0 ]] || as_root+=(--non-interactive)
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { # quiet unless it fails
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get --quiet "$@" </dev/null >"$log" 2>&1 && return
	cat "$log" >&2
	fail "apt-get $* failed: see above"
}

echo "hack/deps.sh: installing with apt-get: ${missing[*]}" >&2
apt update
apt install --yes --no-install-recommends "${missing[@]}"
pkg-config --atleast-version="$LIBZMQ_MIN" libzmq ||
	fail "libzmq is $(pkg-config --modversion libzmq 2>/dev/null || echo absent) after the install; $LIBZMQ_MIN or newer is needed"
