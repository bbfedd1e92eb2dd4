package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inferencecache/inferencecache/controller/fleet"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

func TestConfigurationsAreChecked(t *testing.T) {
	good := Config{Namespace: "n", Interval: time.Second, Aggregators: fleet.Config{URLs: []string{DefaultSnapshotURL}}}
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no namespace", func(c *Config) { c.Namespace = "" }, "needs a namespace"},
		{"no interval", func(c *Config) { c.Interval = 0 }, "interval between polls is 0s, must be more than 0s"},
		{"no aggregators", func(c *Config) { c.Aggregators.URLs = nil }, "at least one URL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := good
			c.change(&config)
			if _, err := New(config); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestPodsAreSlim(t *testing.T) {
	pod := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: "p", UID: "u", ResourceVersion: "7", ManagedFields: []metav1.ManagedFieldsEntry{{}},
		Labels:      map[string]string{v1alpha1.LabelCacheDomain: "chat", "app": "x"},
		Annotations: map[string]string{v1alpha1.AnnotationInjectedBy: "n/b", "note": "long"},
	}}
	got, err := slimPod(pod)
	want := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: "p", UID: "u", ResourceVersion: "7",
		Labels: map[string]string{v1alpha1.LabelCacheDomain: "chat"}, Annotations: map[string]string{v1alpha1.AnnotationInjectedBy: "n/b"},
	}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("pod (-want +got):\n%s%v", diff, err)
	}
}

func TestPermissionsAreNoMoreThanNeeded(t *testing.T) {
	has := func(config Config, resource, verb string) (names []string, found bool) {
		p := PermissionsOf(&config)
		for _, rule := range append(p.Cluster, p.Namespace...) {
			if slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, verb) {
				return rule.ResourceNames, true
			}
		}
		return nil, false
	}
	own := Config{WebhookAddress: ":9443"}
	own.Rotation.Secret.Name, own.Rotation.Mutating, own.Rotation.Validating = "s", "m", "v"
	files, none := own, own
	files.CertDir, none.WebhookAddress = "/tls", ""
	for _, c := range []struct {
		name                       string
		config                     Config
		secrets, update, configure bool
	}{
		{"with certificates of its own", own, true, true, true},
		{"with certificates from files", files, false, false, true},
		{"without webhooks", none, false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if names, found := has(c.config, "secrets", "get"); found != c.secrets || found && !slices.Equal(names, []string{"s"}) {
				t.Errorf("secrets %v %v", names, found)
			}
			if names, found := has(c.config, "mutatingwebhookconfigurations", "update"); found != c.update || found && !slices.Equal(names, []string{"m"}) {
				t.Errorf("update of configurations %v %v", names, found)
			}
			if _, found := has(c.config, "validatingwebhookconfigurations", "watch"); found != c.configure {
				t.Errorf("watch of configurations %v", found)
			}
			for _, rule := range append(PermissionsOf(&c.config).Cluster, PermissionsOf(&c.config).Namespace...) {
				for _, verb := range rule.Verbs {
					if verb == "*" || strings.HasPrefix(verb, "delete") {
						t.Errorf("rule %v allows %s", rule, verb)
					}
				}
			}
		})
	}
}
