#!/usr/bin/env bash
# Lays out the whole content of a command's image in a folder: the binary, the shared libraries that it needs with
# their licences, certificate authorities and the user that it runs as. There is no shell and no package manager.
# The Dockerfile runs this; check.sh runs what it made without a builder.
#
# usage: hack/images/rootfs.sh FOLDER COMMAND [ARCHITECTURE]
#   FOLDER        must not exist or be empty
#   COMMAND       a folder below cmd/, such as agent
#   ARCHITECTURE  amd64 or arm64; default: that of this machine. For the other one hack/images/deps.sh installs
#                 what is needed
# environment:
#   VERSION       what --version says; default: that of the git checkout
#   TOKENIZERS    required (default), if-built or 0: whether the aggregator has the tokenizer library
#   BINARIES      folder with a binary of that name to take instead of building one
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

fail() {
	echo "hack/images/rootfs.sh: $*" >&2
	exit 1
}

(($# == 2 || $# == 3)) || fail "usage: hack/images/rootfs.sh FOLDER COMMAND [ARCHITECTURE]"
root=$1 command=$2
for tool in dpkg readelf; do
	command -v "$tool" >/dev/null || fail "there is no $tool: this needs Debian or a relative of it, with binutils"
done
host=$(go env GOHOSTARCH)
arch=${3:-$host}
[[ -f cmd/$command/main.go ]] || fail "no command '$command': there is no cmd/$command/main.go"
[[ ! -e $root || -z $(ls -A "$root") ]] || fail "$root is not empty"
case $arch in
amd64) triplet=x86_64-linux-gnu rust=x86_64-unknown-linux-gnu ;;
arm64) triplet=aarch64-linux-gnu rust=aarch64-unknown-linux-gnu ;;
*) fail "unknown architecture '$arch': want amd64 or arm64" ;;
esac
version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo unknown)}

export GOOS=linux GOARCH=$arch CGO_ENABLED=0
# Names are resolved, and time zones known, without files of a distribution.
tags=netgo,osusergo,timetzdata
use_cgo() {
	CGO_ENABLED=1
	if [[ $arch != "$host" ]]; then
		export CC=$triplet-gcc CXX=$triplet-g++ PKG_CONFIG_LIBDIR=/usr/lib/$triplet/pkgconfig:/usr/share/pkgconfig
		command -v "$CC" >/dev/null || fail "no $CC to build for $arch with: hack/images/deps.sh $arch installs it"
	fi
}

# tokenizers prints the folder with libtokenizers.a, or fails as hack/native.sh does.
tokenizers() {
	if [[ $arch == "$host" ]]; then
		if [[ $1 == if-built ]]; then hack/native.sh --if-built; else hack/native.sh; fi
		return
	fi
	local target=${XDG_CACHE_HOME:-$HOME/.cache}/inferencecache/native/target linker
	linker=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$rust")_LINKER
	env PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin" "$linker=$CC" cargo build --release --locked --lib --target "$rust" \
		--manifest-path tokenize/native/Cargo.toml --target-dir "$target" >&2
	mkdir -p "$target/$rust/release/link"
	cp "$target/$rust/release/libinferencecache_tokenizers.a" "$target/$rust/release/link/libtokenizers.a"
	echo "$target/$rust/release/link"
}

use_tokenizers() {
	local mode=${TOKENIZERS:-required} library
	[[ $mode != 0 ]] || return 0
	use_cgo
	if library=$(tokenizers "$mode"); then
		export CGO_LDFLAGS="-L$library ${CGO_LDFLAGS:-}"
		tags+=,tokenizers
	elif [[ $mode == if-built ]]; then
		CGO_ENABLED=0
	else
		fail "no tokenizer library: see above; TOKENIZERS=0 leaves it out"
	fi
}

build() {
	case $command in
	agent) use_cgo ;; # libzmq
	aggregator) use_tokenizers ;;
	esac
	go build -trimpath -tags "$tags" -o "$root/$command" \
		-ldflags "-s -w -X github.com/inferencecache/inferencecache/cmd/internal/cli.version=$version" "./cmd/$command"
}

mkdir -p "$root"
if [[ -n ${BINARIES:-} ]]; then
	cp "$BINARIES/$command" "$root/"
else
	build
fi

# find_library prints the file of a shared library. Where Debian's loader looks, in its order.
find_library() {
	local folder
	for folder in "/lib/$triplet" "/usr/lib/$triplet" "/usr/$triplet/lib"; do
		[[ -e $folder/$1 ]] && readlink -f "$folder/$1" && return
	done
	fail "$command needs $1, which is not in /lib/$triplet or /usr/lib/$triplet"
}

declare -A copied=()
licence() { # licence FILE: the copyright file of the package that it is of, and the licences that the file refers to
	local package text
	package=$(dpkg -S "$1" 2>/dev/null || dpkg -S "${1#/usr}" 2>/dev/null) || fail "$1 is of no package: its licence is not known"
	package=${package%%:*}
	mkdir -p "$root/usr/share/doc/$package"
	cp "/usr/share/doc/$package/copyright" "$root/usr/share/doc/$package/"
	while read -r text; do
		[[ ! -f $text ]] || install -D -m 644 "$text" "$root$text"
	done < <(grep -oE '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "/usr/share/doc/$package/copyright" | sort -u)
}
needs() { # needs FILE: copies the libraries that it names, and those that they name
	local name file
	while read -r name; do
		[[ -z ${copied[$name]:-} ]] || continue
		copied[$name]=1
		file=$(find_library "$name")
		install -D -m 755 "$file" "$root/usr/lib/$triplet/$name"
		licence "$file"
		needs "$file"
	done < <(readelf --dynamic --wide "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
}
needs "$root/$command"
ln -s usr/lib "$root/lib"
loader=$(readelf --program-headers --wide "$root/$command" | sed -n 's/.*program interpreter: \(.*\)\]/\1/p')
if [[ -n $loader ]]; then
	file=$(find_library "$(basename "$loader")")
	[[ $loader != /lib/* ]] || loader=/usr$loader
	install -D -m 755 "$file" "$root$loader"
fi

mkdir -p "$root/etc/ssl/certs" "$root/usr/share/doc/inferencecache"
cp LICENSE "$root/usr/share/doc/inferencecache/"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/" || fail "install the package ca-certificates"
echo 'nonroot:x:65532:65532:nonroot:/:/sbin/nologin' >"$root/etc/passwd"
echo 'nonroot:x:65532:' >"$root/etc/group"
chmod -R go+rX,go-w "$root"
