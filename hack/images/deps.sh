#!/usr/bin/env bash
# Installs what rootfs.sh needs to build for an architecture, on Debian and its relatives: for that of this machine
# what hack/deps.sh installs, for the other one a cross compiler, libzmq of that architecture and Rust's library for it.
#
# usage: hack/images/deps.sh amd64|arm64
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

fail() {
	echo "hack/images/deps.sh: $*" >&2
	exit 1
}

arch=${1:-}
case $arch in
amd64) compiler=x86-64-linux-gnu rust=x86_64-unknown-linux-gnu ;;
arm64) compiler=aarch64-linux-gnu rust=aarch64-unknown-linux-gnu ;;
*) fail "unknown architecture '$arch'; usage: hack/images/deps.sh amd64|arm64" ;;
esac

hack/deps.sh
[[ $arch != "$(go env GOHOSTARCH)" ]] || exit 0

packages=("gcc-$compiler" "g++-$compiler" binutils "libzmq3-dev:$arch")
if ! dpkg --status "${packages[@]}" >/dev/null 2>&1; then
	command -v apt-get >/dev/null || fail "missing: ${packages[*]} (Debian package names), and there is no apt-get to install them with"
	((EUID == 0)) || fail "missing: ${packages[*]}; run this as root to install them"
	echo "hack/images/deps.sh: installing with apt-get: ${packages[*]}" >&2
	dpkg --add-architecture "$arch"
	apt-get update --quiet
	DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends "${packages[@]}"
fi
if command -v rustup >/dev/null; then
	rustup target add "$rust"
else
	echo "hack/images/deps.sh: no rustup: the tokenizer library cannot be built for $arch" >&2
fi
