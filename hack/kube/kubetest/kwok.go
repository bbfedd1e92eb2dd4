package kubetest

import (
	"context"
	_ "embed" // for the stages
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stages say what kwok makes of nodes and pods.
//
//go:embed stages.yaml
var stages []byte

// StartKwok makes nodes and pods seem to run: a node becomes Ready; a pod with a spec.nodeName becomes
// Running and Ready, with an address of cidr, such as PodCIDR(), on which a test can listen; a
// deleted pod goes at once.
func (c *Cluster) StartKwok(t testing.TB, cidr string) {
	t.Helper()
	file := filepath.Join(c.dir, "stages.yaml")
	if err := os.WriteFile(file, stages, 0o600); err != nil {
		t.Fatal(err)
	}
	c.start(t, "kwok", "--kubeconfig="+c.Kubeconfig(t), "--config="+file, "--cidr="+cidr, "--node-ip=127.0.0.1",
		"--manage-all-nodes=true", "--node-lease-duration-seconds=0")
}

// Node makes a node; once kwok runs, it becomes Ready.
func (c *Cluster) Node(t testing.TB, name string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   name,
		Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"},
	}}
	if _, err := c.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create node %s: %v", name, err)
	}
}

// AwaitPod waits until a pod is Ready and has an address, and returns it. It needs StartKwok.
func (c *Cluster) AwaitPod(t testing.TB, namespace, name string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	c.await(t, "pod "+namespace+"/"+name+" to run", func(ctx context.Context) (bool, error) {
		var err error
		pod, err = c.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil && pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != "", err
	})
	return pod
}
