package daemonset

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// alerts is the spec of the PrometheusRule, which is what a rules file of Prometheus holds.
type alerts struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Alert       string            `json:"alert"`
			Expr        string            `json:"expr"`
			For         string            `json:"for,omitempty"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

func readAlerts(t *testing.T) alerts {
	t.Helper()
	var rule struct {
		Spec alerts `json:"spec"`
	}
	all := documents(t, "components/observability/alerts.yaml")
	if err := yaml.Unmarshal(all[0], &rule); err != nil {
		t.Fatal(err)
	}
	return rule.Spec
}

// exported lists the metrics that the code declares.
func exported(t *testing.T) []string {
	t.Helper()
	whole := regexp.MustCompile(`"(inferencecache_[a-z0-9_]+)"`)
	short := regexp.MustCompile(`\bdesc\("([a-z0-9_]+)"`) // of the agent, which puts its prefix before
	endpoint := regexp.MustCompile(`"inferencecache_" \+ endpoint \+ "(_[a-z_]+)"`)
	var names []string
	for _, folder := range []string{"agent", "aggregator", "controller", "tlsconfig"} {
		root := os.DirFS(filepath.Join("..", folder))
		err := fs.WalkDir(root, ".", func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := fs.ReadFile(root, path)
			for _, m := range whole.FindAllSubmatch(text, -1) {
				names = append(names, string(m[1]))
			}
			for _, m := range short.FindAllSubmatch(text, -1) {
				names = append(names, "inferencecache_agent_"+string(m[1]))
			}
			for _, m := range endpoint.FindAllSubmatch(text, -1) {
				for _, name := range []string{"snapshot", "policy", "probe"} {
					names = append(names, "inferencecache_"+name+string(m[1]))
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// queried lists the metrics of ours in a query, histograms and summaries by their own name.
func queried(query string) []string {
	names := regexp.MustCompile(`\binferencecache_[a-z0-9_]+`).FindAllString(query, -1)
	for i := range names {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			names[i] = strings.TrimSuffix(names[i], suffix)
		}
	}
	return names
}

func TestAlertsAskForMetricsThatExist(t *testing.T) {
	known := exported(t)
	for _, g := range readAlerts(t).Groups {
		for _, r := range g.Rules {
			asked := queried(r.Expr)
			if len(asked) == 0 {
				t.Errorf("%s asks for no metric of ours", r.Alert)
			}
			for _, name := range asked {
				if !slices.Contains(known, name) {
					t.Errorf("%s asks for %s, which nothing exports", r.Alert, name)
				}
			}
		}
	}
}

func TestAlertsLeadToASectionOfTroubleshooting(t *testing.T) {
	text, err := os.ReadFile("../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range readAlerts(t).Groups {
		for _, r := range g.Rules {
			if section := r.Annotations["section"]; section == "" || !strings.Contains(string(text), "\n## "+section+"\n") {
				t.Errorf("%s leads to %q, which is no section of docs/troubleshooting.md", r.Alert, section)
			}
		}
	}
}

// panel is a row, a graph or a figure of the dashboard.
type panel struct {
	ID      int
	Title   string
	Type    string
	GridPos struct{ H, W, X, Y int }
	Targets []struct{ Expr string }
}

func readDashboard(t *testing.T) []panel {
	t.Helper()
	text, err := os.ReadFile("components/observability/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	return dashboard.Panels
}

func TestTheDashboardAsksForMetricsThatExist(t *testing.T) {
	known := exported(t)
	for _, p := range readDashboard(t) {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			for _, name := range queried(target.Expr) {
				if !slices.Contains(known, name) {
					t.Errorf("%s asks for %s, which nothing exports", p.Title, name)
				}
			}
		}
	}
}

func TestPanelsOfTheDashboardDoNotOverlap(t *testing.T) {
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range readDashboard(t) {
		if ids[p.ID] {
			t.Errorf("%s has the id of another panel", p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok {
					t.Fatalf("%s lies over %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// promtool runs Prometheus' own tool on files.
func promtool(t *testing.T, files map[string][]byte, arguments ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool on PATH: the package prometheus has it")
	}
	folder := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), path, arguments...)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
}

func TestTheDashboardsQueriesAreValid(t *testing.T) {
	type recording struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$namespace", "s", "$model", "m")
	var rules []recording
	for _, p := range readDashboard(t) {
		for i, target := range p.Targets {
			rules = append(rules, recording{fmt.Sprintf("panel:%d:%d", p.ID, i), variables.Replace(target.Expr)})
		}
	}
	file, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	promtool(t, map[string][]byte{"rules.yaml": file}, "check", "rules", "rules.yaml")
}

// TestAlertsFire runs the alerts over made-up series.
func TestAlertsFire(t *testing.T) {
	rules, err := yaml.Marshal(readAlerts(t))
	if err != nil {
		t.Fatal(err)
	}
	cases, err := os.ReadFile("testdata/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range readAlerts(t).Groups {
		for _, r := range g.Rules {
			if !strings.Contains(string(cases), "alertname: "+r.Alert+"\n") {
				t.Errorf("testdata/alerts.yaml does not say when %s fires", r.Alert)
			}
		}
	}
	files := map[string][]byte{"rules.yaml": rules, "cases.yaml": cases}
	promtool(t, files, "check", "rules", "rules.yaml")
	promtool(t, files, "test", "rules", "cases.yaml")
}
