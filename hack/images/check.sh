#!/usr/bin/env bash
# Makes the content of the images for this machine's architecture and runs it as they would be run: with that content
# as root folder, nothing of it writable, and the images' user. Commands say their version; agent and aggregator also
# start, answer /healthz and stop when asked to.
#
# usage: hack/images/check.sh [COMMAND...]     default: all that have an image
# environment: as for rootfs.sh, but TOKENIZERS is if-built by default; BINARIES=bin takes what make build has made,
# which takes seconds. ARCHITECTURE=arm64 (or amd64) makes those of another architecture and runs them with qemu
# Needs root, or a kernel that lets users have namespaces.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

commands=("$@")
(($#)) || commands=(agent aggregator controller inferencecache)
export TOKENIZERS=${TOKENIZERS:-if-built}

architecture=${ARCHITECTURE:-$(go env GOHOSTARCH)}
emulator=() # what runs binaries of another architecture, inside the root folder

fail() {
	echo "hack/images/check.sh: $*" >&2
	exit 1
}
if ((EUID == 0)); then
	inside() { exec chroot --userspec=65532:65532 "$@"; }
elif unshare --map-root-user true 2>/dev/null; then
	inside() { exec unshare --map-root-user chroot "$@"; }
else
	fail "needs root, or user namespaces: neither is there"
fi

if [[ $architecture != "$(go env GOHOSTARCH)" ]]; then
	case $architecture in
	amd64) emulator=(/qemu-x86_64-static) ;;
	arm64) emulator=(/qemu-aarch64-static) ;;
	*) fail "unknown architecture '$architecture': want amd64 or arm64" ;;
	esac
	[[ -x /usr/bin${emulator[0]} ]] || fail "no /usr/bin${emulator[0]} to run $architecture with: install the package qemu-user-static"
fi

scratch=$(mktemp -d)
chmod 755 "$scratch"
running=""
finish() {
	[[ -z $running ]] || kill -KILL "$running" 2>/dev/null || true
	rm -rf "$scratch"
}
trap finish EXIT

says_version() { # says_version COMMAND
	local said
	said=$(inside "$scratch/$1" "${emulator[@]}" "/$1" --version) || fail "$1 --version failed in its own root folder"
	[[ $said == "$1 "?* ]] || fail "$1 --version says '$said', want its name and version"
	printf '%-15s %4s MiB  %s\n' "$1" "$(du --summarize --block-size=1M --exclude="qemu-*" "$scratch/$1" | cut -f1)" "$said"
}

answers_health() { # answers_health COMMAND MESSAGE ARG...: MESSAGE is what it logs, with its address as "http", once it serves
	local command=$1 message=$2 log=$scratch/$1.log address="" reply
	shift 2
	inside "$scratch/$command" "${emulator[@]}" "/$command" "$@" 2>"$log" &
	running=$!
	for ((try = 0; try < 300; try++)); do
		address=$(sed -n "s/.*\"msg\":\"$message\".*\"http\":\"\([0-9.:]*\)\".*/\1/p" "$log")
		[[ -z $address ]] || break
		kill -0 "$running" 2>/dev/null || break
		sleep 0.1
	done
	[[ -n $address ]] || fail "$command does not serve in its own root folder: $(<"$log")"
	exec {socket}<>"/dev/tcp/${address%:*}/${address##*:}"
	printf 'GET /healthz HTTP/1.0\r\n\r\n' >&"$socket"
	read -r reply <&"$socket"
	exec {socket}>&-
	[[ $reply == *" 200 OK"* ]] || fail "$command answers /healthz with '$reply'"
	kill -TERM "$running"
	wait "$running" || fail "$command ends with status $? when it is stopped: $(<"$log")"
	running=""
}

for command in "${commands[@]}"; do
	[[ -z ${BINARIES:-} || -x $BINARIES/$command ]] || fail "there is no $BINARIES/$command: make build makes it"
	hack/images/rootfs.sh "$scratch/$command" "$command" "$architecture"
	((${#emulator[@]} == 0)) || cp "/usr/bin${emulator[0]}" "$scratch/$command/"
	says_version "$command"
	case $command in
	aggregator) answers_health aggregator serving --grpc-bind-address=127.0.0.1:0 --http-bind-address=127.0.0.1:0 ;;
	agent)
		# Nobody listens there: it is the libraries of the sockets that matter.
		echo 'engines: [{name: nobody, model: m, events: "tcp://127.0.0.1:1"}]' >"$scratch/agent/engines.yaml"
		answers_health agent "agent started" --engines=/engines.yaml --aggregator=127.0.0.1:1 --http-bind-address=127.0.0.1:0
		;;
	esac
done
