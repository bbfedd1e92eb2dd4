package discover

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// newInformer returns an informer on the pods of the node, and no others: the API server selects.
func (d *Discovery) newInformer() (cache.SharedIndexInformer, error) {
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
	informer := cache.NewSharedIndexInformer(
		cache.ToListWatcherWithWatchListSemantics(calls, d.cfg.Client), &corev1.Pod{}, 0, cache.Indexers{})
	err := informer.SetTransform(slim)
	if err == nil {
		// What goes wrong is noted by the calls.
		err = informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {})
	}
	if err != nil {
		return nil, fmt.Errorf("prepare the watch of pods: %w", err)
	}
	return informer, nil
}

// maxAnnotation is the size from which annotations of others are not kept.
const maxAnnotation = 1 << 10

// slim drops what is not read of a pod before it is kept.
func slim(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil // a tombstone
	}
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
	return out, nil
}

// plain drops from an error the address, of which parts are made up anew for each try.
func plain(err error) error {
	if failed := (*url.Error)(nil); errors.As(err, &failed) {
		return failed.Err
	}
	return err
}
