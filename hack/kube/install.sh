#!/usr/bin/env bash
# Builds the programs that tests against a real API server run, at the versions named here and in the
# go.mod files beside this script, and prints the folder that holds them. The folder is in the cache
# folder ($XDG_CACHE_HOME, else ~/.cache), outside the tree, and named after those versions and the Go
# version: a program is built once per change of either. kube-apiserver takes 13 minutes of processor
# time, all others together as much again.
#
# usage: hack/kube/install.sh [--if-built]
#   --if-built   build nothing; where a program is not there, say which and exit with 3
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly helm=v3.22.0 kustomize=v5.8.2 kwok=v0.8.0
readonly programs=(etcd kube-apiserver kubectl kustomize helm kwok)

fail() {
	echo "hack/kube/install.sh: $*" >&2
	exit 1
}

if_built=
case ${1-} in
'') ;;
--if-built) if_built=1 ;;
*) fail "unknown argument '$1'; usage: hack/kube/install.sh [--if-built]" ;;
esac
command -v go >/dev/null || fail "the go command is not on PATH; install the Go version that go.mod names"

# Builds must not depend on flags of the caller's shell, or the folder's name would not tell them apart.
export CGO_ENABLED=0 GOFLAGS=-trimpath GOWORK=off
kubernetes=$(sed -nE 's#^(require|\t) ?k8s.io/kubernetes (v[0-9.]+)( .*)?$#\2#p' kubernetes/go.mod)
[[ $kubernetes =~ ^v([0-9]+)\.([0-9]+)\.[0-9]+$ ]] || fail "kubernetes/go.mod must require a release vX.Y.Z of k8s.io/kubernetes; found '$kubernetes'"
version=k8s.io/component-base/version
# Without these the programs take themselves for v0.0.0, and clients refuse or misjudge them.
kubernetes_flags="-s -X $version.gitVersion=$kubernetes -X $version.gitMajor=${BASH_REMATCH[1]} -X $version.gitMinor=${BASH_REMATCH[2]}"

key=$({ go env GOVERSION GOOS GOARCH && cat install.sh ./*/go.mod ./*/go.sum; } | sha256sum | cut -c1-16)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/inferencecache/kube-$key

missing=()
for program in "${programs[@]}"; do
	[[ -x $folder/$program ]] || missing+=("$program")
done
if [[ $if_built && ${#missing[@]} -gt 0 ]]; then
	echo "hack/kube/install.sh: not built yet: ${missing[*]} (in $folder); hack/kube/install.sh builds them" >&2
	exit 3
fi

scratch= # where a program is built before it is renamed, so that two runs at once cannot see half a file
trap '[[ -z $scratch ]] || rm -rf "$scratch"' EXIT

install() { GOBIN=$scratch go install -ldflags -s "$1"; }

build() {
	case $1 in
	etcd) go build -C etcd -ldflags -s -o "$scratch/etcd" go.etcd.io/etcd/server/v3 ;;
	kube-apiserver | kubectl) go build -C kubernetes -ldflags "$kubernetes_flags" -o "$scratch/" "k8s.io/kubernetes/cmd/$1" ;;
	helm) install helm.sh/helm/v3/cmd/helm@$helm ;;
	kustomize) install sigs.k8s.io/kustomize/kustomize/v5@$kustomize ;;
	kwok) install sigs.k8s.io/kwok/cmd/kwok@$kwok ;;
	esac
}

for program in "${missing[@]}"; do
	mkdir -p "$folder"
	scratch=$(mktemp -d "$folder/.$program.XXXXXX")
	echo "hack/kube/install.sh: building $program (cached in $folder)" >&2
	build "$program" >&2 || fail "building $program failed: see above"
	mv "$scratch/$program" "$folder/$program"
	rm -rf "$scratch"
	scratch=
done
echo "$folder"
