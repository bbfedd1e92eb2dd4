package discover

import (
	"regexp"

	corev1 "k8s.io/api/core/v1"

	"github.com/inferencecache/inferencecache/agent/discover/engineargs"
)

// readable turns a container into what its engine is read from.
func readable(pod *corev1.Pod, c *corev1.Container, owner engineargs.Owner) engineargs.Container {
	out := engineargs.Container{Image: c.Image, Command: c.Command, Args: c.Args, EnvFrom: len(c.EnvFrom) > 0, Owner: owner}
	for i := range c.Env {
		out.Env = append(out.Env, variable(pod, &c.Env[i]))
	}
	return out
}

// variable reads an environment variable, or says where its value comes from. ConfigMaps and Secrets are
// not read: the agent has no permission to.
func variable(pod *corev1.Pod, e *corev1.EnvVar) engineargs.Env {
	v := engineargs.Env{Name: e.Name, Value: e.Value}
	from := e.ValueFrom
	switch {
	case from == nil:
	case from.FieldRef != nil:
		var ok bool
		if v.Value, ok = field(pod, from.FieldRef.FieldPath); !ok {
			v.Source = "the field " + from.FieldRef.FieldPath
		}
	case from.ConfigMapKeyRef != nil:
		v.Source = "the ConfigMap " + from.ConfigMapKeyRef.Name
	case from.SecretKeyRef != nil:
		v.Source = "the Secret " + from.SecretKeyRef.Name
	default:
		v.Source = "elsewhere than the pod"
	}
	return v
}

// keyed matches field paths like metadata.labels['x'].
var keyed = regexp.MustCompile(`^metadata\.(labels|annotations)\['([^']+)'\]$`)

// field returns what the downward API makes of a field path.
func field(pod *corev1.Pod, path string) (value string, ok bool) {
	if m := keyed.FindStringSubmatch(path); m != nil {
		if m[1] == "labels" {
			return pod.Labels[m[2]], true
		}
		value, ok = pod.Annotations[m[2]]
		return value, ok // others than ours are not kept
	}
	fields := map[string]string{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "metadata.uid": string(pod.UID),
		"spec.nodeName": pod.Spec.NodeName, "status.hostIP": pod.Status.HostIP, "status.podIP": pod.Status.PodIP,
	}
	value, ok = fields[path]
	return value, ok && value != ""
}
