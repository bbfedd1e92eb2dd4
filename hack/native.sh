#!/usr/bin/env bash
# Builds the static library of tokenize/native, which `go build -tags tokenizers` links, and prints the folder
# that holds it (libtokenizers.a). The folder is outside the tree and named after the crate's version, its
# sources and the compiler: it is built once per change of any of them.
#
# usage: hack/native.sh [--if-built]     --if-built prints the folder if the library is there, else fails
# exit:  0 built or already there, 1 the build failed, 2 wrong usage,
#        3 cargo is absent or too old (or --if-built and no library): build without the tag instead
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../tokenize/native"

say() { echo "hack/native.sh: $*" >&2; }

case ${1:-} in
'' | --if-built) ;;
*)
	say "unknown argument '$1'; usage: hack/native.sh [--if-built]"
	exit 2
	;;
esac

# rustup puts cargo here without telling shells that are already open.
PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
rust_min=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if ! command -v cargo >/dev/null || ! command -v rustc >/dev/null; then
	say "cargo is not on PATH: install Rust $rust_min or newer to tokenize text; everything else builds without it"
	exit 3
fi
if ! rust=$(rustc --version); then
	say "rustc does not run (see above): set up Rust $rust_min or newer to tokenize text; everything else builds without it"
	exit 3
fi
rust=$(cut -d' ' -f2 <<<"$rust")
if [[ $(printf '%s\n' "$rust_min" "${rust%%-*}" | sort -V | head -1) != "$rust_min" ]]; then
	say "Rust is $rust, and $rust_min or newer is needed to tokenize text; everything else builds without it"
	exit 3
fi

version=$(sed -n '0,/^version = /s/^version = "\(.*\)"/\1/p' Cargo.toml)
key=$version-$({ rustc -vV && cat Cargo.toml Cargo.lock tokenizers.h && find src -name '*.rs' -print0 | sort -z | xargs -0 cat; } |
	sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/inferencecache/native
folder=$cache/$key

if [[ ! -f $folder/libtokenizers.a ]]; then
	if [[ ${1:-} == --if-built ]]; then
		say "the tokenizer library is not built: run hack/native.sh"
		exit 3
	fi
	mkdir -p "$folder"
	exec {lock}>"$cache/lock"
	flock "$lock" # the build folder is shared by all versions, so that only what changed is compiled
fi
if [[ ! -f $folder/libtokenizers.a ]]; then
	say "building the tokenizer library (minutes the first time, then cached in $folder)"
	if ! cargo build --release --locked --lib --target-dir "$cache/target" >&2; then
		say "cargo build failed: see above"
		exit 1
	fi
	# Copied aside and renamed, so that a linker cannot see half a file.
	cp "$cache/target/release/libinferencecache_tokenizers.a" "$folder/.libtokenizers.a.$$"
	mv "$folder/.libtokenizers.a.$$" "$folder/libtokenizers.a"
fi
echo "$folder"
