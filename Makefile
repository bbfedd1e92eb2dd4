# `make help` needs only make, bash and awk: hack/help.awk prints the `##` comments below.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

# libzmq is bound with cgo, and the race detector needs it too.
export CGO_ENABLED := 1

## test, bench: packages to run; lint always takes all
PKG ?= ./...
## test, bench, lint: further flags for go test or golangci-lint run
FLAGS ?=
## bench: benchmarks to run, a regular expression
BENCH ?= .
## bench: time, or iterations as in 100x, for each benchmark
BENCHTIME ?= 200ms
## bench: runs of each benchmark
COUNT ?= 1
## fuzz: time for each fuzz target
FUZZTIME ?= 10s
## demo: trace to replay instead of the generated workload, JSON Lines in Mooncake's format
TRACE ?=
## demo: number of requests
REQUESTS ?=
## demo, chaos: seed of the generated workload, and of the faults
SEED ?=
## chaos: how long faults go on
DURATION ?= 60s
## demo: 1 leaves everything running and prints the commands to query it
KEEP ?=
## build: 0 leaves the tokenizer library out; if-built links it only where it is built already, as demo and chaos do
TOKENIZERS ?= 1
## test-captures: folder of recorded engine streams
CAPTURES ?=
## test-vllm: release of the engine
VLLM ?= 0.32.0
## images: what stands before the images' names
REGISTRY ?= inferencecache
## images: their tag
TAG ?= dev
## images: such as linux/amd64,linux/arm64; that of this machine by default
PLATFORMS ?=
## images: 1 pushes them
PUSH ?=

commands := ./cmd/agent ./cmd/aggregator ./cmd/controller ./cmd/inferencecache ./hack/fakeengine/cmd/fakeengine ./hack/demo ./hack/chaos
# Expanded by build alone: without git, or outside a checkout, the version is unknown.
version = $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

.PHONY: help demo chaos build test test-tokenizers test-captures test-vllm test-kube bench fuzz golden images lint generate check deps clean

help: ## show this text
	@awk -f hack/help.awk Makefile

# Building the tokenizer library takes minutes, and these can do without.
demo chaos: TOKENIZERS = if-built

demo: build ## run engines, agent and aggregator here and compare routing by prefix with round robin
	bin/demo $(strip $(if $(TRACE),--trace '$(TRACE)') $(if $(REQUESTS),--requests $(REQUESTS)) $(if $(SEED),--seed $(SEED)) $(if $(filter-out 0,$(KEEP)),--keep))

chaos: build ## break engines, agents and aggregators here under load and compare the index with the engines
	bin/chaos --duration '$(DURATION)' $(if $(SEED),--seed $(SEED))

build: deps ## build all commands into bin/, with the tokenizer library if cargo is there
	hack/with-tokenizers.sh '$(TOKENIZERS)' build -o bin/ -ldflags '-X github.com/inferencecache/inferencecache/cmd/internal/cli.version=$(version)' $(commands)

test: deps ## run the tests under the race detector
	go test -race -shuffle=on -timeout 10m $(FLAGS) $(PKG)

test-tokenizers: deps ## run the tests of tokenizers and compare them with the reference libraries on real models
	hack/with-tokenizers.sh required test -race -timeout 30m $(FLAGS) ./tokenize/... ./aggregator
	hack/test-tokenizers.sh

test-captures: deps ## run the tests that replay recorded engine streams, from CAPTURES
	@[[ -d '$(CAPTURES)' ]] || { echo "make test-captures: CAPTURES='$(CAPTURES)' is not a folder" >&2; exit 2; }
	INFERENCECACHE_CAPTURES='$(abspath $(CAPTURES))' go test -race -count 1 -timeout 20m -run Capture $(FLAGS) $(PKG)

test-vllm: ## run the tests that need real vLLM engines, on the CPU; installs them outside the tree, 6 GB
	@hack/deps.sh test-vllm
	env=$$(hack/vllm/install.sh '$(VLLM)'); tokenizers=$$(hack/test-tokenizers.sh --install) || tokenizers=''; \
	INFERENCECACHE_VLLM="$$env" INFERENCECACHE_TOKENIZERS="$$tokenizers" go test -count 1 -timeout 60m -v $(FLAGS) ./hack/vllm/

test-kube: deps ## run the tests that need a real Kubernetes API server; builds it outside the tree, 20 minutes the first time
	programs=$$(hack/kube/install.sh); INFERENCECACHE_KUBE="$$programs" go test -race -count 1 -timeout 20m -run '^TestKube[A-Z]' $(FLAGS) $$(hack/kube/packages.sh)

bench: deps ## run the benchmarks
	go test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -count $(COUNT) -timeout 60m $(FLAGS) $(PKG)

fuzz: deps ## run each fuzz target for FUZZTIME
	hack/fuzz.sh $(FUZZTIME)

golden: ## check the golden vectors with an independent implementation
	@hack/deps.sh golden
	hack/golden/check.sh

images: ## build the images, where docker, podman or buildah is
	@REGISTRY='$(REGISTRY)' TAG='$(TAG)' PLATFORMS='$(PLATFORMS)' PUSH='$(PUSH)' VERSION='$(version)' hack/images/build.sh

lint: ## check code, imports, scripts and that proto/ breaks no caller
	hack/lint.sh $(FLAGS)

generate: ## generate gen/ from proto/, and manifests and docs from crds/
	hack/generate.sh

check: ## run what CI runs
	.ci/run

deps: ## install what the Go toolchain cannot fetch: C compiler, pkg-config, libzmq
	@hack/deps.sh

clean: ## remove what build, test and profiles left in the tree
	rm -rf bin
	find . -type f \( -name '*.test' -o -name '*.prof' -o -name '*.out' \) -delete
