package daemonset

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"

	"github.com/inferencecache/inferencecache/controller"
)

// permission is one verb on one resource; the scope is "cluster" or "namespace", and an empty name stands for all.
type permission struct{ scope, group, resource, name, verb string }

// granted returns what the roles bound to a component's account permit.
func granted(i *install, component string) map[permission]bool {
	got := map[permission]bool{}
	for _, b := range i.bindings {
		if binds(b.Subjects, i, component) {
			for _, r := range i.roles {
				if r.Name == b.RoleRef.Name && b.RoleRef.Kind == "ClusterRole" {
					flatten(got, "cluster", r.Rules)
				}
			}
		}
	}
	for _, b := range i.localBound {
		if binds(b.Subjects, i, component) {
			for _, r := range i.local {
				if r.Name == b.RoleRef.Name && r.Namespace == b.Namespace && b.RoleRef.Kind == "Role" {
					flatten(got, "namespace", r.Rules)
				}
			}
		}
	}
	return got
}

func binds(subjects []rbac.Subject, i *install, component string) bool {
	for _, w := range i.workloads {
		if w.component() == component {
			return slices.Contains(subjects, rbac.Subject{
				Kind: rbac.ServiceAccountKind, Name: w.template.Spec.ServiceAccountName, Namespace: "inference-cache-system",
			})
		}
	}
	return false
}

func flatten(into map[permission]bool, scope string, rules []rbac.PolicyRule) {
	for _, r := range rules {
		names := r.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, name := range names {
					for _, verb := range r.Verbs {
						into[permission{scope, group, resource, name, verb}] = true
					}
				}
			}
		}
	}
}

// documented reads the table below a heading of docs/permissions.md.
func documented(t *testing.T, heading string) map[permission]bool {
	t.Helper()
	text, err := os.ReadFile("../docs/permissions.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/permissions.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	got := map[permission]bool{}
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 8 || strings.HasPrefix(cells[1], "---") || strings.TrimSpace(cells[1]) == "scope" {
			continue
		}
		group := list(cells[2])[0]
		if group == "core" {
			group = ""
		}
		for _, resource := range list(cells[3]) {
			for _, name := range list(cells[4]) {
				for _, verb := range list(cells[5]) {
					got[permission{strings.TrimSpace(cells[1]), group, resource, name, verb}] = true
				}
			}
		}
	}
	return got
}

// list splits a cell at its commas; an empty cell is one empty text.
func list(cell string) []string {
	var all []string
	for item := range strings.SplitSeq(cell, ",") {
		all = append(all, strings.Trim(strings.TrimSpace(item), "`"))
	}
	return all
}

func TestPermissionsAreThoseThatTheDocumentExplains(t *testing.T) {
	i := readBase(t)
	for component, heading := range map[string]string{"agent": "Agent", "aggregator": "Aggregator", "controller": "Controller"} {
		got, want := granted(i, component), documented(t, heading)
		if len(got) == 0 {
			t.Errorf("%s is granted nothing", component)
		}
		for _, p := range sorted(got) {
			if !want[p] {
				t.Errorf("%s is granted %+v, which docs/permissions.md does not explain", component, p)
			}
		}
		for _, p := range sorted(want) {
			if !got[p] {
				t.Errorf("docs/permissions.md explains %+v, which %s is not granted", p, component)
			}
		}
	}
}

func TestNobodyIsGrantedEverything(t *testing.T) {
	for _, r := range readBase(t).roles {
		for _, rule := range r.Rules {
			if slices.Contains(rule.Verbs, "*") || slices.Contains(rule.Resources, "*") || slices.Contains(rule.APIGroups, "*") {
				t.Errorf("ClusterRole %s grants %v", r.Name, rule)
			}
		}
	}
}

func TestAccountsGiveTheirTokenToNoOtherPod(t *testing.T) {
	for _, o := range readBase(t).objects {
		if a, ok := o.(*core.ServiceAccount); ok && (a.AutomountServiceAccountToken == nil || *a.AutomountServiceAccountToken) {
			t.Errorf("ServiceAccount %s mounts its token into every pod that names it", a.Name)
		}
	}
}

func sorted(set map[permission]bool) []permission {
	return slices.SortedFunc(maps.Keys(set), func(a, b permission) int {
		return cmp.Or(cmp.Compare(a.scope, b.scope), cmp.Compare(a.group, b.group), cmp.Compare(a.resource, b.resource),
			cmp.Compare(a.name, b.name), cmp.Compare(a.verb, b.verb))
	})
}

func TestTheControllerIsGrantedWhatItsCodeAsksFor(t *testing.T) {
	sameGrants(t, controllerConfig(), granted(readBase(t), "controller"))
}

// controllerConfig is that of a controller without flags.
func controllerConfig() *controller.Config {
	c := &controller.Config{WebhookAddress: ":9443"}
	c.Rotation.Secret.Name = controller.DefaultSecret
	c.Rotation.Mutating, c.Rotation.Validating = controller.DefaultMutatingHooks, controller.DefaultValidatingHooks
	return c
}

func sameGrants(t *testing.T, config *controller.Config, got map[permission]bool) {
	t.Helper()
	asked, want := controller.PermissionsOf(config), map[permission]bool{}
	flatten(want, "cluster", asked.Cluster)
	flatten(want, "namespace", asked.Namespace)
	if diff := gocmp.Diff(sorted(want), sorted(got), gocmp.AllowUnexported(permission{})); diff != "" {
		t.Errorf("what the controller asks for (-) and is granted (+):\n%s", diff)
	}
}
