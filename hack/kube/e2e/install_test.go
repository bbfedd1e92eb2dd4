package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/inferencecache/inferencecache/hack/kube/kubetest"
)

const (
	webhookService = "inference-cache-webhook-service"
	// webhookPort replaces the Service's 443, which not everybody may listen on.
	webhookPort = 9443
)

// install applies what daemonset/base renders and returns the host:port at which the API server calls
// webhooks. All is real but for the pods: no Kubernetes controller makes them, and the test runs the commands
// in their place.
func install(t *testing.T, c *kubetest.Cluster) (webhooks string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(kubetest.Programs(t), "kustomize"), "build", "../../../daemonset/base").Output()
	if err != nil {
		t.Fatalf("render the manifests: %v", err)
	}
	objects, err := kubetest.Objects(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		moveWebhooks(t, object)
		if _, err := c.ApplyObject(t.Context(), object, metav1.ApplyOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.AwaitCRDs(t)
	service, err := c.Client().CoreV1().Services(namespace).Get(t.Context(), webhookService, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s:%d", service.Spec.ClusterIP, webhookPort)
}

// moveWebhooks changes the port of the webhooks in what has it.
func moveWebhooks(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	var list, port []string
	switch {
	case object.GetName() == webhookService:
		list, port = []string{"spec", "ports"}, []string{"port"}
	case object.GetKind() == "MutatingWebhookConfiguration", object.GetKind() == "ValidatingWebhookConfiguration":
		list, port = []string{"webhooks"}, []string{"clientConfig", "service", "port"}
	default:
		return
	}
	items, _, err := unstructured.NestedSlice(object.Object, list...)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range items {
		if err := unstructured.SetNestedField(item.(map[string]any), int64(webhookPort), port...); err != nil {
			t.Fatal(err)
		}
	}
	if err := unstructured.SetNestedSlice(object.Object, items, list...); err != nil {
		t.Fatal(err)
	}
}

// workload is what the manifests say of a program's pods.
type workload struct {
	account string
	args    []string
}

// installed returns what the cluster was told of a program. Arguments that name a Service are left out:
// nothing resolves names here.
func installed(t *testing.T, c *kubetest.Cluster, program string) workload {
	t.Helper()
	var template corev1.PodTemplateSpec
	name := "inference-cache-" + program
	if set, err := c.Client().AppsV1().DaemonSets(namespace).Get(t.Context(), name, metav1.GetOptions{}); err == nil {
		template = set.Spec.Template
	} else if deployment, err := c.Client().AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{}); err == nil {
		template = deployment.Spec.Template
	} else {
		t.Fatalf("find the pods of %s: %v", program, err)
	}
	w := workload{account: template.Spec.ServiceAccountName}
	for _, arg := range template.Spec.Containers[0].Args {
		if !strings.HasPrefix(arg, "--aggregator=") && !strings.HasPrefix(arg, "--server-snapshot-url=") {
			w.args = append(w.args, arg)
		}
	}
	return w
}
