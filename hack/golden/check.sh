#!/usr/bin/env bash
# Checks that the golden vectors of the fingerprint are what the independent Python script makes, or
# writes them anew. The script's one dependency goes into a virtual environment in the cache folder
# ($XDG_CACHE_HOME, else ~/.cache), outside the tree.
#
# usage: hack/golden/check.sh [--write]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
vectors=$here/../../fingerprint/testdata/golden_vectors.json

fail() {
	echo "hack/golden/check.sh: $*" >&2
	exit 1
}

write=
case ${1:-} in
'') ;;
--write) write=yes ;;
*) fail "unknown argument '$1'; usage: hack/golden/check.sh [--write]" ;;
esac

python3 -c 'import ensurepip, venv' 2>/dev/null ||
	fail "Python 3 with venv is needed: install python3 and python3-venv (Debian package names)"

# One environment for each pin and Python version: a changed pin never meets an old environment.
key=$(cat "$here/requirements.txt" <(python3 --version) | sha256sum | cut -c1-16)
env=${XDG_CACHE_HOME:-$HOME/.cache}/inferencecache/golden-$key
if [[ ! -e $env/ready ]]; then
	echo "hack/golden/check.sh: installing $(grep -v '^#' "$here/requirements.txt") into $env" >&2
	rm -rf "$env"
	mkdir -p "$(dirname "$env")"
	python3 -m venv "$env"
	"$env/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
	touch "$env/ready"
fi

made=$(mktemp)
trap 'rm -f "$made"' EXIT
"$env/bin/python" "$here/generate.py" >"$made"
if [[ $write ]]; then
	cat "$made" >"$vectors"
elif ! diff -u --label checked-in --label generated "$vectors" "$made" | cut -c1-160 >&2; then
	fail "fingerprint/testdata/golden_vectors.json is not what generate.py makes; if the script is right, run hack/golden/check.sh --write"
fi
