package discover

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// retry is the wait before the API server is asked again, doubled from one try to the next up to Cap, and
// up to twice as long at random.
var retry = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 5, Cap: 5 * time.Second}

// watch keeps the store to the pods of the node, and no others, until ctx ends: the API server selects.
func (d *Discovery) watch(ctx context.Context, store *podStore) {
	pods := d.cfg.Client.CoreV1().Pods(d.cfg.Namespace)
	selector := fields.OneTermEqualSelector("spec.nodeName", d.cfg.Node).String()
	calls := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			list, err := pods.List(ctx, o)
			d.api.called(ctx, listing, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			w, err := pods.Watch(ctx, o)
			d.api.called(ctx, watching, err)
			return w, err
		},
	}
	backoff := retry
	cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(calls, d.cfg.Client), &corev1.Pod{}, store,
		cache.ReflectorOptions{Name: "pods", Backoff: &backoff}).RunWithContext(ctx)
}

// podStore keeps what is read of pods, by namespace/name, and puts the key of each that changes into a
// queue, in which a key is once.
type podStore struct {
	queue workqueue.TypedInterface[string]

	mu   sync.Mutex
	pods map[string]*corev1.Pod
}

// get returns a pod, or nil.
func (s *podStore) get(key string) *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[key]
}

// put stores a pod under its key, or forgets the key.
func (s *podStore) put(key string, pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod == nil {
		delete(s.pods, key)
	} else {
		s.pods[key] = pod
	}
	s.queue.Add(key)
}

// Add implements cache.ReflectorStore.
func (s *podStore) Add(object any) error {
	pod, err := asPod(object)
	if err == nil {
		s.put(keyOf(pod), slim(pod))
	}
	return err
}

// Update implements cache.ReflectorStore.
func (s *podStore) Update(object any) error { return s.Add(object) }

// Delete implements cache.ReflectorStore.
func (s *podStore) Delete(object any) error {
	pod, err := asPod(object)
	if err == nil {
		s.put(keyOf(pod), nil)
	}
	return err
}

// Replace implements cache.ReflectorStore.
func (s *podStore) Replace(list []any, _ string) error {
	var errs []error
	all := make(map[string]*corev1.Pod, len(list))
	for _, object := range list {
		pod, err := asPod(object)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all[keyOf(pod)] = slim(pod)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.pods {
		s.queue.Add(key)
	}
	for key := range all {
		s.queue.Add(key)
	}
	s.pods = all
	s.queue.Add(listed)
	return errors.Join(errs...)
}

// Resync implements cache.ReflectorStore.
func (s *podStore) Resync() error { return nil }

func asPod(object any) (*corev1.Pod, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		return pod, nil
	}
	return nil, fmt.Errorf("an object is a %T and no pod", object)
}

func keyOf(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// maxAnnotation is the size from which annotations of others are not kept.
const maxAnnotation = 1 << 10

// slim drops what is not read of a pod before it is kept.
func slim(pod *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		Labels: pod.Labels, DeletionTimestamp: pod.DeletionTimestamp,
	}}
	for key, value := range pod.Annotations {
		if strings.HasPrefix(key, domain) || len(value) <= maxAnnotation {
			metav1.SetMetaDataAnnotation(&out.ObjectMeta, key, value)
		}
	}
	out.Spec.NodeName = pod.Spec.NodeName
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		out.Spec.Containers = append(out.Spec.Containers, corev1.Container{
			Name: c.Name, Image: c.Image, Command: c.Command, Args: c.Args, Env: c.Env, EnvFrom: c.EnvFrom,
		})
	}
	out.Status.Phase, out.Status.HostIP = pod.Status.Phase, pod.Status.HostIP
	out.Status.PodIP, out.Status.PodIPs = pod.Status.PodIP, pod.Status.PodIPs
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			out.Status.Conditions = append(out.Status.Conditions, corev1.PodCondition{Type: c.Type, Status: c.Status})
		}
	}
	for i := range pod.Status.ContainerStatuses {
		s := &pod.Status.ContainerStatuses[i]
		out.Status.ContainerStatuses = append(out.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: s.Name, ContainerID: s.ContainerID, RestartCount: s.RestartCount, State: s.State,
		})
	}
	return out
}

// plain drops from an error the address, of which parts are made up anew for each try.
func plain(err error) error {
	if failed := (*url.Error)(nil); errors.As(err, &failed) {
		return failed.Err
	}
	return err
}
