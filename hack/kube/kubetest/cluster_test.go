package kubetest_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/inferencecache/inferencecache/hack/kube/kubetest"
)

func TestKubeCluster(t *testing.T) {
	c := kubetest.Start(t)
	t.Run("an account may do what it is granted and no more", func(t *testing.T) { testAccount(t, c) })
	t.Run("what is stored outlives the API server", func(t *testing.T) {
		c.Namespace(t, "kept")
		c.StopAPIServer(t)
		if _, err := c.TryKubectl(t, "get", "namespace", "kept"); err == nil {
			t.Error("the API server answers though it is stopped")
		}
		c.StartAPIServer(t)
		if out := c.Kubectl(t, "get", "namespace", "kept"); !strings.Contains(out, "Active") {
			t.Errorf("after a restart kubectl prints %s", out)
		}
	})
	t.Run("pods of kwok have addresses of their own, to listen on", func(t *testing.T) { testPods(t, c) })
}

func testAccount(t *testing.T, c *kubetest.Cluster) {
	client, err := kubernetes.NewForConfig(c.ServiceAccount(t, "team", "reader"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods("team").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("without a role: %v, want it forbidden", err)
	}
	c.Apply(t, []byte(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: team}
rules: [{apiGroups: [""], resources: [pods], verbs: [list]}]
---
# nothing but a comment
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: team}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: team}]
`))
	kubetest.Await(t, "the role to count", func() error {
		_, err := client.CoreV1().Pods("team").List(t.Context(), metav1.ListOptions{})
		return err
	})
	if _, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("in another namespace: %v, want it forbidden", err)
	}
}

func testPods(t *testing.T, c *kubetest.Cluster) {
	const pods = 20
	c.StartKwok(t, kubetest.PodCIDR())
	c.Node(t, "node-0")
	var created sync.WaitGroup
	for i := range pods {
		created.Go(func() {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i)}, Spec: corev1.PodSpec{
				NodeName:   "node-0",
				Containers: []corev1.Container{{Name: "main", Image: "example.com/main"}},
			}}
			if _, err := c.Client().CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	created.Wait()
	var addresses []string
	for i := range pods {
		pod := c.AwaitPod(t, "default", fmt.Sprint("pod-", i))
		if status := pod.Status.ContainerStatuses; len(status) != 1 || !status[0].Ready || status[0].ContainerID == "" {
			t.Errorf("container of %s: %+v", pod.Name, status)
		}
		addresses = append(addresses, pod.Status.PodIP)
		l, err := net.Listen("tcp", net.JoinHostPort(pod.Status.PodIP, "0"))
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
	slices.Sort(addresses)
	if n := len(slices.Compact(addresses)); n != pods {
		t.Errorf("%d addresses for %d pods", n, pods)
	}
	if out := c.Kubectl(t, "get", "node", "node-0"); !strings.Contains(out, "Ready") {
		t.Errorf("kubectl prints %s", out)
	}
	c.Kubectl(t, "delete", "pod", "pod-0", "--timeout=30s") // waits until it is gone
}
