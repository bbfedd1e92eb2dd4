#!/usr/bin/env bash
# Builds the images with docker (and its buildx), podman or buildah, whichever is here and works, in that order.
#
# usage: hack/images/build.sh [COMMAND...]     default: agent, aggregator, controller and inferencecache
# environment:
#   REGISTRY    what stands before the names; default: inferencecache
#   TAG         default: dev, which is what the manifests name
#   PLATFORMS   such as linux/amd64,linux/arm64; default: that of this machine
#   PUSH        1 pushes the images; docker can do no more than one platform without
#   VERSION     what --version says; default: that of the git checkout
# exit: 0 built, 1 a build failed, 2 there is nothing to build with
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

commands=("$@")
(($#)) || commands=(agent aggregator controller inferencecache)
registry=${REGISTRY:-inferencecache} tag=${TAG:-dev} push=${PUSH:-0}
platforms=${PLATFORMS:-linux/$(go env GOHOSTARCH)}
version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo unknown)}

say() { echo "hack/images/build.sh: $*" >&2; }

builder=""
for candidate in docker podman buildah; do
	command -v "$candidate" >/dev/null || continue
	if why=$("$candidate" info 2>&1 >/dev/null) && { [[ $candidate != docker ]] || why=$(docker buildx version 2>&1 >/dev/null); }; then
		builder=$candidate
		break
	fi
	say "$candidate is here and does not work: $(tail -n 1 <<<"$why")"
done
if [[ -z $builder ]]; then
	say "nothing here builds images: install docker with buildx, podman or buildah."
	say "hack/images/check.sh makes and runs the same content without one."
	exit 2
fi

if [[ $builder == docker && $platforms == *,* && $push != 1 ]]; then
	say "docker keeps images of one platform only: give one in PLATFORMS, or PUSH=1 to push $platforms to $registry"
	exit 2
fi

build() { # build COMMAND
	local image=$registry/$1:$tag
	local arguments=(--file hack/images/Dockerfile --target "$1" --build-arg "VERSION=$version" --platform "$platforms")
	say "$builder builds $image for $platforms"
	case $builder in
	docker)
		if [[ $push == 1 ]]; then arguments+=(--push); else arguments+=(--load); fi
		docker buildx build "${arguments[@]}" --tag "$image" .
		;;
	podman | buildah)
		# A manifest list takes any number of platforms; one left by an earlier build would grow.
		"$builder" manifest rm "$image" >/dev/null 2>&1 || true
		"$builder" build "${arguments[@]}" --ignorefile hack/images/Dockerfile.dockerignore --manifest "$image" .
		[[ $push != 1 ]] || "$builder" manifest push --all "$image" "docker://$image"
		;;
	esac
}

for command in "${commands[@]}"; do
	build "$command"
done
