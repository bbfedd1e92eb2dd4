package daemonset

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// page is a document: its text without what is between fences, and all of it.
type page struct{ path, prose, whole string }

// pages reads the documents of the repository.
func pages(t *testing.T) []page {
	t.Helper()
	paths, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	fenced := regexp.MustCompile("(?ms)^```.*?^```$")
	var all []page
	for _, path := range append(paths, "../README.md", "../CONTRIBUTING.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page{path, fenced.ReplaceAllString(string(text), ""), string(text)})
	}
	return all
}

// elsewhere is the heading of docs/metrics.md behind which metrics are named that nothing exports.
const elsewhere = "## In the contract, and not here"

func TestDocumentsNameMetricsThatExist(t *testing.T) {
	known := exported(t)
	for _, p := range pages(t) {
		text, absent, _ := strings.Cut(p.whole, elsewhere)
		for _, name := range queried(text) {
			if !strings.HasSuffix(name, "_") && !slices.Contains(known, name) {
				t.Errorf("%s names %s, which nothing exports", p.path, name)
			}
		}
		for _, m := range regexp.MustCompile("(?m)^\\| `(inferencecache_[a-z0-9_]+)`").FindAllStringSubmatch(absent, -1) {
			if slices.Contains(known, m[1]) {
				t.Errorf("%s says that there is no %s", p.path, m[1])
			}
		}
	}
}

func TestEveryMetricIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range exported(t) {
		if !strings.HasSuffix(name, "_") && !strings.Contains(string(text), "\n| `"+name+"` |") {
			t.Errorf("docs/metrics.md does not list %s", name)
		}
	}
}

// Two pages name the agent's metrics without their prefix, in the first column of tables.
func TestShortNamesAreOfMetricsThatExist(t *testing.T) {
	known, word := exported(t), regexp.MustCompile("`([a-z0-9]+(?:_[a-z0-9]+)+)[`{]")
	for path, from := range map[string]string{"../docs/agent.md": "\n## Probes and metrics\n", "../docs/troubleshooting.md": "\n"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, section, found := strings.Cut(string(text), from)
		if !found {
			t.Fatalf("%s has no section %s", path, from)
		}
		for line := range strings.Lines(section) {
			cells := strings.Split(line, "|")
			if len(cells) < 3 {
				continue
			}
			for _, m := range word.FindAllStringSubmatch(cells[1], -1) {
				if !strings.HasPrefix(m[1], "inferencecache_") && !slices.Contains(known, "inferencecache_agent_"+m[1]) {
					t.Errorf("%s names %s, which agents do not export", path, m[1])
				}
			}
		}
	}
}

// flags lists the flags of all commands.
func flags(t *testing.T) map[string]bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", folder, "./cmd/inferencecache", "./hack/fakeengine/cmd/fakeengine", "./hack/demo", "./hack/chaos")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the commands: %v\n%s", err, out)
	}
	var text strings.Builder
	for _, command := range []string{"agent", "aggregator", "controller", "fakeengine", "demo", "chaos"} {
		text.WriteString(help(t, command))
	}
	_, verbs, found := strings.Cut(help(t, "inferencecache"), "\nCommands:\n")
	if !found {
		t.Fatal("inferencecache --help lists no commands")
	}
	verbs, _, _ = strings.Cut(verbs, "\n\n")
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z-]+) `).FindAllStringSubmatch(verbs, -1) {
		text.WriteString(help(t, "inferencecache", m[1]))
	}
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-[a-z], )?(--[a-z0-9-]+)`).FindAllStringSubmatch(text.String(), -1) {
		all[m[1]] = true
	}
	return all
}

// foreign are the flags of other programs that documents name.
var foreign = strings.Fields(`
	--attn-dp-size --config --data-parallel-hybrid-lb --data-parallel-rank --data-parallel-size --default-chat-template-kwargs
	--disable-hybrid-kv-cache-manager --disable-radix-cache --disaggregation-mode --dp-size --enable-hierarchical-cache --enable-lmcache
	--enable-lora --enable-metrics --enable-prefix-caching --flag --headless --hicache-io-backend --hicache-mem-layout --hicache-ratio
	--hicache-size --hicache-write-policy --host --kv-events-config --kv-offloading-backend --kv-offloading-size --kv-transfer-config
	--lmcache-config-file --lora-modules --lora-paths --model-path --nnodes --no-enable-prefix-caching --node-rank --port --served-model
	--served-model-name --ssl-certfile --tokenizer-mode
	--create-namespace --field-selector --previous --server-side --take-ownership --type
	--ignored --install --release --test`)

func TestDocumentsNameFlagsThatExist(t *testing.T) {
	known := flags(t)
	for _, name := range foreign {
		known[name] = true
	}
	// Not the end of a word or of another flag, and not the rule below a table's head.
	named := regexp.MustCompile(`(?:^|[^\w-])(--[a-z][a-z0-9-]*)`)
	for _, p := range pages(t) {
		unknown := map[string]bool{}
		for _, m := range named.FindAllStringSubmatch(p.whole, -1) {
			if !known[m[1]] {
				unknown[m[1]] = true
			}
		}
		for name := range unknown {
			t.Errorf("%s names %s, which is no flag of a command here", p.path, name)
		}
	}
}

func TestDocumentsNameTargetsThatExist(t *testing.T) {
	text, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z-]*):.* ## `).FindAllStringSubmatch(string(text), -1) {
		targets[m[1]] = true
	}
	named := regexp.MustCompile("(?m)(?:^ {4}|`|\\$ )make ([a-z][a-z-]*)")
	for _, p := range pages(t) {
		for _, m := range named.FindAllStringSubmatch(p.whole, -1) {
			if !targets[m[1]] {
				t.Errorf("%s names make %s, which is no target that `make help` lists", p.path, m[1])
			}
		}
	}
}

// anchors lists the places of a document that links may lead to, as renderers name them.
func anchors(prose string) map[string]bool {
	dropped := regexp.MustCompile(`[^\w\- ]`)
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(prose, -1) {
		found[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return found
}

func TestLinksOfDocumentsLeadSomewhere(t *testing.T) {
	places := map[string]map[string]bool{}
	all := pages(t)
	for _, p := range all {
		places[p.path] = anchors(p.prose)
	}
	link := regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	for _, p := range all {
		for _, m := range link.FindAllStringSubmatch(p.prose, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target := p.path
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(p.path), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", p.path, m[1], err)
			} else if m[2] != "" && !places[target][m[2]] {
				t.Errorf("%s links to %s, which has no section %q but %q", p.path, target, m[2], slices.Sorted(maps.Keys(places[target])))
			}
		}
	}
}

func TestDocumentsNameFilesThatExist(t *testing.T) {
	named := regexp.MustCompile("`(?:\\./)?((?:agent|aggregator|client|cmd|controller|crds|daemonset|docs|fingerprint|gen|hack|index|kvevents|proto|tlsconfig|tokenize)/[\\w./-]*\\w)/?`")
	for _, p := range pages(t) {
		for _, m := range named.FindAllStringSubmatch(p.prose, -1) {
			if _, err := os.Stat(filepath.Join("..", m[1])); err != nil {
				t.Errorf("%s names %s: %v", p.path, m[1], err)
			}
		}
	}
}

func TestEveryFolderIsInTheLayout(t *testing.T) {
	text, err := os.ReadFile("../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	packages, err := exec.Command("go", "list", "-f", "{{.ImportPath}}", "../...").Output()
	if err != nil {
		t.Fatal(err)
	}
	folders := map[string]bool{"proto": true, "docs": true}
	for path := range strings.Lines(string(packages)) {
		folder, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(path), "github.com/inferencecache/inferencecache/"), "/")
		folders[folder] = true
	}
	for name := range folders {
		if !strings.Contains(string(text), "\n| `"+name+"/` |") {
			t.Errorf("CONTRIBUTING.md does not say what %s/ holds", name)
		}
	}
}

// reasons lists what the contract's package calls the reasons for which something is not applied.
func reasons(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../aggregator/contract/contract.go")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(text), "\n// Reasons why")
	if !found {
		t.Fatal("aggregator/contract has no block of reasons")
	}
	block, _, _ = strings.Cut(block, "\n)\n")
	var all []string
	for _, m := range regexp.MustCompile(`= "([a-z_]+)"`).FindAllStringSubmatch(block, -1) {
		all = append(all, m[1])
	}
	return all
}

func TestReasonsOfRefusalAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/reporting.md")
	if err != nil {
		t.Fatal(err)
	}
	all := reasons(t)
	if len(all) < 20 {
		t.Errorf("%d reasons found", len(all))
	}
	for _, reason := range all {
		if !strings.Contains(string(text), "`"+reason+"`") {
			t.Errorf("docs/reporting.md does not say what %s is", reason)
		}
	}
}
